package link

import "meridian/wire"

// Have describes a block, in 48 bytes.
type Have struct {
	Status    wire.Code
	Tier      wire.Tier // the current tier; Head has the one it left with
	Att       wire.Attest
	Len       uint32 // bytes of body
	Head      [wire.HeaderLen]byte
	Slot, Gen uint32
}

func (h *Have) put(p []byte) {
	_ = p[haveLen-1]
	le.PutUint16(p, uint16(Outward(h.Status)))
	p[2] = byte(h.Tier)
	p[3] = byte(h.Att)
	le.PutUint32(p[4:], h.Len)
	copy(p[8:40], h.Head[:])
	le.PutUint32(p[40:], h.Slot)
	le.PutUint32(p[44:], h.Gen)
}

// get takes the record at offset at of c.
func (h *Have) get(c *cursor, p []byte, at int) {
	_ = p[haveLen-1]
	h.Status = Outward(wire.Code(le.Uint16(p)))
	h.Tier, h.Att = c.tier(p[2], at+2), c.attest(p[3], at+3)
	h.Len = le.Uint32(p[4:])
	copy(h.Head[:], p[8:40])
	h.Slot = le.Uint32(p[40:])
	h.Gen = le.Uint32(p[44:])
}

// tier checks a tier byte at offset at.
func (c *cursor) tier(v byte, at int) wire.Tier {
	if v > byte(wire.OutputCritical) {
		c.refuse(errValue("tier", at, uint64(v), uint64(wire.OutputCritical)))
	}
	return wire.Tier(v)
}

// attest checks an attest byte at offset at.
func (c *cursor) attest(v byte, at int) wire.Attest {
	if v > byte(wire.AttestProducer) {
		c.refuse(errValue("attest", at, uint64(v), uint64(wire.AttestProducer)))
	}
	return wire.Attest(v)
}
