package link

import "meridian/wire"

// TierAuto is the tier of a StoreItem for which the agent chooses, by the position
// of the block in its request.
const TierAuto wire.Tier = 255

// StorePin is a flag of StoreItem: the block is not evicted for PinMS.
const StorePin uint8 = 1 << 0

// StoreItem is one block of Reserve or PutAt.
type StoreItem struct {
	NS    uint16
	Tier  wire.Tier // or TierAuto
	Flags uint8
	Len   uint32 // bytes of body
	Off   uint64 // PutAt: of the body in the staging ring; Reserve: 0
	Key   wire.Key
	Req   uint32 // the generation request it belongs to; 0: none
	Pos   uint32 // of the block's first token in the request's tokens, the prompt first
	PinMS uint32 // with StorePin only
}

func (x *StoreItem) put(p []byte) {
	_ = p[storeItemLen-1]
	le.PutUint16(p, x.NS)
	p[2] = byte(x.Tier)
	p[3] = x.Flags
	le.PutUint32(p[4:], x.Len)
	le.PutUint64(p[8:], x.Off)
	copy(p[16:48], x.Key[:])
	le.PutUint32(p[48:], x.Req)
	le.PutUint32(p[52:], x.Pos)
	le.PutUint32(p[56:], x.PinMS)
}

// get takes the record at offset at of c.
func (x *StoreItem) get(c *cursor, p []byte, at int) {
	_ = p[storeItemLen-1]
	x.NS = le.Uint16(p)
	if x.Tier = wire.Tier(p[2]); x.Tier != TierAuto {
		c.tier(p[2], at+2)
	}
	if x.Flags = p[3]; x.Flags > StorePin {
		c.refuse(errValue("flags", at+3, uint64(x.Flags), uint64(StorePin)))
	}
	x.Len = le.Uint32(p[4:])
	x.Off = le.Uint64(p[8:])
	copy(x.Key[:], p[16:48])
	x.Req = le.Uint32(p[48:])
	x.Pos = le.Uint32(p[52:])
	if x.PinMS = le.Uint32(p[56:]); x.PinMS != 0 && x.Flags&StorePin == 0 {
		c.refuse(errValue("pin_ms", at+56, uint64(x.PinMS), 0))
	}
}

func putStoreItems(p []byte, items []StoreItem) {
	for i := range items {
		items[i].put(p[i*storeItemLen:])
	}
}

// storeItems takes n items into s's memory.
func (c *cursor) storeItems(s []StoreItem, n int) []StoreItem {
	at := c.off
	p := c.records("items", n, storeItemLen)
	if c.fail != nil {
		return s[:0]
	}
	s = sized(s, n)
	for i := range s {
		s[i].get(c, p[i*storeItemLen:], at+i*storeItemLen)
	}
	return s
}
