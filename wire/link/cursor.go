package link

import (
	"unicode/utf8"

	"meridian/wire"
)

// cursor reads a payload front to back. The first failure sticks and every
// later read gives zero, so a parser checks once, in end.
type cursor struct {
	b    []byte
	off  int
	fail *FrameError
}

// bytes takes n bytes, nil when they are not there.
func (c *cursor) bytes(field string, n int) []byte {
	if c.fail != nil {
		return nil
	}
	if left := len(c.b) - c.off; left < n {
		c.fail = errShort(field, len(c.b), uint64(left), uint64(n))
		return nil
	}
	p := c.b[c.off : c.off+n]
	c.off += n
	return p
}

func (c *cursor) u8(field string) uint8 {
	if p := c.bytes(field, 1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16(field string) uint16 {
	if p := c.bytes(field, 2); p != nil {
		return le.Uint16(p)
	}
	return 0
}

func (c *cursor) u32(field string) uint32 {
	if p := c.bytes(field, 4); p != nil {
		return le.Uint32(p)
	}
	return 0
}

func (c *cursor) u64(field string) uint64 {
	if p := c.bytes(field, 8); p != nil {
		return le.Uint64(p)
	}
	return 0
}

// id takes 16 bytes: an agent, a session, a lease.
func (c *cursor) id(field string) (v [16]byte) {
	copy(v[:], c.bytes(field, len(v)))
	return v
}

// flag takes a byte that is 0 or 1.
func (c *cursor) flag(field string) bool {
	v := c.u8(field)
	if v > 1 {
		c.refuse(errValue(field, c.off-1, uint64(v), 1))
	}
	return v == 1
}

// zero takes n reserved bytes.
func (c *cursor) zero(n int) {
	for i, v := range c.bytes("reserved", n) {
		if v != 0 {
			c.refuse(errValue("reserved", c.off-n+i, uint64(v), 0))
			return
		}
	}
}

// most takes a u32 or u16 that was read as v and refuses it above limit.
func (c *cursor) most(field string, v uint64, limit uint64, width int) int {
	if c.fail == nil && v > limit {
		c.fail = errAbove(field, c.off-width, v, limit)
	}
	if c.fail != nil {
		return 0
	}
	return int(v)
}

// count takes a u32 number of records.
func (c *cursor) count(field string, limit int) int {
	return c.most(field, uint64(c.u32(field)), uint64(limit), 4)
}

// size takes a u16 length in bytes or records.
func (c *cursor) size(field string, limit int) int {
	return c.most(field, uint64(c.u16(field)), uint64(limit), 2)
}

// records takes n records of width bytes: the check that comes before the
// caller allocates for them.
func (c *cursor) records(field string, n, width int) []byte {
	return c.bytes(field, n*width)
}

// text takes n bytes of UTF-8.
func (c *cursor) text(field string, n int) string {
	p := c.bytes(field, n)
	if !utf8.Valid(p) {
		c.refuse(&FrameError{Code: wire.CodeInvalid, Offset: uint64(c.off - n), Field: field, Text: field + ": not UTF-8"})
		return ""
	}
	return string(p)
}

func (c *cursor) refuse(e *FrameError) {
	if c.fail == nil {
		c.fail = e
	}
}

// end is the parser's result: the first failure, or bytes too many.
func (c *cursor) end() error {
	if c.fail != nil {
		return c.fail
	}
	if n := len(c.b) - c.off; n > 0 {
		return errTrailing(c.off, uint64(n))
	}
	return nil
}
