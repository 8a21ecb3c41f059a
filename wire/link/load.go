package link

import "meridian/wire"

const loadFixed = 16

// WantWait is a flag of LoadItem: what is not here is waited for.
const WantWait uint16 = 1 << 3

// Holder is an agent that has a block, as a hint of Load.
type Holder struct {
	Agent [16]byte // not zero
	Inc   uint64   // not zero
}

// LoadItem names a block of Load: by key, or by slot and generation as well.
type LoadItem struct {
	NS, Flags uint16
	Holder    uint16 // 0: none; k: Load.Holders[k-1], of which Slot and Gen are then
	Slot, Gen uint32 // Gen 0: the key alone
	Key       wire.Key
}

func (x *LoadItem) put(p []byte) {
	_ = p[loadItemLen-1]
	le.PutUint16(p, x.NS)
	le.PutUint16(p[2:], x.Flags)
	le.PutUint16(p[4:], x.Holder)
	le.PutUint16(p[6:], 0)
	le.PutUint32(p[8:], x.Slot)
	le.PutUint32(p[12:], x.Gen)
	copy(p[16:loadItemLen], x.Key[:])
}

// get takes the record at offset at of c, of a Load with so many holders.
func (x *LoadItem) get(c *cursor, p []byte, at, holders int) {
	_ = p[loadItemLen-1]
	x.NS = le.Uint16(p)
	x.Flags = le.Uint16(p[2:])
	x.Holder = le.Uint16(p[4:])
	if int(x.Holder) > holders {
		c.refuse(errValue("holder", at+4, uint64(x.Holder), uint64(holders)))
	}
	if r := le.Uint16(p[6:]); r != 0 {
		c.refuse(errValue("reserved", at+6, uint64(r), 0))
	}
	x.Slot = le.Uint32(p[8:])
	x.Gen = le.Uint32(p[12:])
	copy(x.Key[:], p[16:loadItemLen])
}

// Load asks for leases on mapped bytes, which are answered in parts.
type Load struct {
	DeadlineMS, LeaseMS uint32
	Hold                bool     // never lapses while the process lives; LeaseMS is not looked at
	Holders             []Holder // at most MaxHolders
	Items               []LoadItem
}

// Length is the bytes that Append adds.
func (x Load) Length() int {
	return loadFixed + len(x.Holders)*holderLen + len(x.Items)*loadItemLen
}

// Append appends the payload.
func (x Load) Append(b []byte) []byte {
	b, p := extend(b, x.Length())
	le.PutUint32(p, x.DeadlineMS)
	le.PutUint32(p[4:], x.LeaseMS)
	le.PutUint16(p[8:], uint16(flagByte(x.Hold)))
	le.PutUint16(p[10:], uint16(len(x.Holders)))
	le.PutUint32(p[12:], uint32(len(x.Items)))
	p = p[loadFixed:]
	for i := range x.Holders {
		copy(p, x.Holders[i].Agent[:])
		le.PutUint64(p[16:], x.Holders[i].Inc)
		p = p[holderLen:]
	}
	for i := range x.Items {
		x.Items[i].put(p[i*loadItemLen:])
	}
	return b
}

// Parse sets x from a payload, in the memory of x.Holders and x.Items.
func (x *Load) Parse(b []byte) error {
	c := cursor{b: b}
	x.DeadlineMS, x.LeaseMS = c.u32("deadline_ms"), c.u32("lease_ms")
	x.Hold = c.flag("hold")
	c.zero(1)
	h, n := c.size("holders_n", MaxHolders), c.count("n", MaxItems)
	holders, items := c.records("holders", h, holderLen), c.records("items", n, loadItemLen)
	if c.fail != nil {
		return c.end()
	}
	x.Holders, x.Items = sized(x.Holders, h), sized(x.Items, n)
	at := loadFixed
	for i := range x.Holders {
		v := &x.Holders[i]
		copy(v.Agent[:], holders)
		v.Inc = le.Uint64(holders[16:])
		switch {
		case v.Agent == [16]byte{}:
			c.refuse(errZero("agent", at))
		case v.Inc == 0:
			c.refuse(errZero("inc", at+16))
		}
		holders, at = holders[holderLen:], at+holderLen
	}
	for i := range x.Items {
		x.Items[i].get(&c, items[i*loadItemLen:], at+i*loadItemLen, h)
	}
	return c.end()
}
