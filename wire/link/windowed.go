package link

const windowedFixed = 20

// Windowed answers WindowReq: where the foreign peer writes. The ranges of the
// request lie one after the other from Addr on.
type Windowed struct {
	Addr uint64 // never reused in an incarnation
	Len  uint64 // bytes in all
	Peer string // the name by which the foreign fabric knows this agent
}

// Length is the bytes that Append adds.
func (x Windowed) Length() int { return windowedFixed + len(clip(x.Peer)) }

// Append appends the payload; Peer is cut at MaxText.
func (x Windowed) Append(b []byte) []byte {
	peer := clip(x.Peer)
	b = le.AppendUint64(b, x.Addr)
	b = le.AppendUint64(b, x.Len)
	b = le.AppendUint16(b, uint16(len(peer)))
	b = append(b, 0, 0)
	return append(b, peer...)
}

// Parse sets x from a payload.
func (x *Windowed) Parse(b []byte) error {
	c := cursor{b: b}
	x.Addr, x.Len = c.u64("addr"), c.u64("len")
	n := c.size("peer_len", MaxText)
	c.zero(2)
	x.Peer = c.text("peer", n)
	return c.end()
}
