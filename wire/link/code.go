package link

import "meridian/wire"

// Outward is the status as a peer may learn it: DENIED would tell that a block
// exists, so it becomes ABSENT. Every Append and Parse of this package applies
// it to the statuses of items and to the codes of END, GOAWAY and ERROR.
func Outward(c wire.Code) wire.Code {
	if c == wire.CodeDenied {
		return wire.CodeAbsent
	}
	return c
}

// outwardOpen is Outward for OPENED: another tenant's namespace answers
// exactly as an unknown one.
func outwardOpen(c wire.Code) wire.Code {
	if c == wire.CodeDenied {
		return wire.CodeNSUnknown
	}
	return c
}

func putCodes(p []byte, codes []wire.Code) {
	for i, c := range codes {
		le.PutUint16(p[i*codeLen:], uint16(Outward(c)))
	}
}

// codes takes n statuses into s's memory.
func (c *cursor) codes(field string, s []wire.Code, n int) []wire.Code {
	p := c.records(field, n, codeLen)
	if c.fail != nil {
		return s[:0]
	}
	s = sized(s, n)
	for i := range s {
		s[i] = Outward(wire.Code(le.Uint16(p[i*codeLen:])))
	}
	return s
}
