package link

import "meridian/wire"

// Flags of Want. A receiver ignores bits that it does not know.
const (
	WantFetch     uint16 = 1 << 0 // engine socket: pull from peers what is not here
	WantTransient uint16 = 1 << 1 // engine socket: do not publish what is fetched; free at release
	WantKeepLease uint16 = 1 << 2 // PULL: the lease goes on after END, until it lapses or RELEASE
)

// Want names a block: by key, or by slot and generation as well.
type Want struct {
	NS, Flags uint16
	Off       uint32 // first body byte wanted
	Max       uint32 // bytes of body that the asker has room for, counted from 0
	Slot, Gen uint32 // Gen 0: any
	Key       wire.Key
}

func (w *Want) put(p []byte) {
	_ = p[wantLen-1]
	le.PutUint16(p, w.NS)
	le.PutUint16(p[2:], w.Flags)
	le.PutUint32(p[4:], w.Off)
	le.PutUint32(p[8:], w.Max)
	le.PutUint32(p[12:], w.Slot)
	le.PutUint32(p[16:], w.Gen)
	copy(p[20:wantLen], w.Key[:])
}

func (w *Want) get(p []byte) {
	_ = p[wantLen-1]
	w.NS = le.Uint16(p)
	w.Flags = le.Uint16(p[2:])
	w.Off = le.Uint32(p[4:])
	w.Max = le.Uint32(p[8:])
	w.Slot = le.Uint32(p[12:])
	w.Gen = le.Uint32(p[16:])
	copy(w.Key[:], p[20:wantLen])
}

func putWants(p []byte, items []Want) {
	for i := range items {
		items[i].put(p[i*wantLen:])
	}
}

// wants takes n items into s's memory.
func (c *cursor) wants(s []Want, n int) []Want {
	p := c.records("items", n, wantLen)
	if c.fail != nil {
		return s[:0]
	}
	s = sized(s, n)
	for i := range s {
		s[i].get(p[i*wantLen:])
	}
	return s
}
