package link

import (
	"fmt"

	"meridian/wire"
)

// Features of HELLO. Unknown bits are ignored.
const (
	FeatureLocal    uint64 = 1 << 0 // the engine's block socket
	FeatureStanding uint64 = 1 << 1 // pushes in one flight: Standing and Deliver
	FeatureRing     uint64 = 1 << 2 // on it: the staging ring comes when it is asked for, not with the first namespace
	FeatureGroup    uint64 = 1 << 3 // on it: sessions are groups, and the types from Load to Process
	FeaturePlain    uint64 = 1 << 4 // on it: checksums of frames are 0
)

// Auth elements of HELLO. Elements of other types are carried and ignored.
const (
	AuthNone uint16 = 0 // empty; only where the configuration says insecure
	AuthCert uint16 = 1 // TLS certificate, bound by exported keying material
	AuthPSK  uint16 = 2 // HMAC over both nonces
	AuthPeer uint16 = 3 // empty: the credentials of the Unix socket's peer
	AuthName uint16 = 4 // UTF-8: the name by which the other side lists the sender
	// AuthGroup is the group's secret: GroupSecret bytes, or empty where the first
	// session of a group asks for one.
	AuthGroup uint16 = 5
)

// helloMagic opens a lane's first message.
const helloMagic = "MLNK"

const (
	helloFixed = 116
	tlvFixed   = 4
)

// Limits are what a side grants to its peer.
type Limits struct {
	Reqs          uint32 // requests in flight
	Items         uint32 // items of a batch
	Frame         uint32 // bytes of a DATA payload, offset included
	BytesInFlight uint32 // body bytes promised and not ended
	LingerMS      uint32 // how long a session outlives lane 0
}

// TLV is an auth element of HELLO.
type TLV struct {
	Type  uint16
	Value []byte // at most MaxTLV bytes
}

// Hello opens a lane, both ways.
type Hello struct {
	Min, Max uint16
	Agent    [16]byte
	Inc      uint64
	Session  [16]byte // zero: a new session
	Lane     uint8
	Features uint64
	Limits   Limits
	Nonce    [32]byte
	Auth     []TLV // at most MaxTLVs
}

// Length is the bytes that Append adds.
func (x Hello) Length() int {
	n := helloFixed
	for i := range x.Auth {
		n += tlvFixed + len(x.Auth[i].Value)
	}
	return n
}

// Append appends the payload.
func (x Hello) Append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = le.AppendUint16(b, x.Min)
	b = le.AppendUint16(b, x.Max)
	b = append(b, x.Agent[:]...)
	b = le.AppendUint64(b, x.Inc)
	b = append(b, x.Session[:]...)
	b = append(b, x.Lane, 0, 0, 0)
	b = le.AppendUint32(b, x.Limits.Reqs)
	b = le.AppendUint32(b, x.Limits.Items)
	b = le.AppendUint32(b, x.Limits.Frame)
	b = le.AppendUint32(b, x.Limits.BytesInFlight)
	b = le.AppendUint32(b, x.Limits.LingerMS)
	b = le.AppendUint64(b, x.Features)
	b = append(b, x.Nonce[:]...)
	b = le.AppendUint16(b, uint16(len(x.Auth)))
	b = append(b, 0, 0)
	for i := range x.Auth {
		b = le.AppendUint16(b, x.Auth[i].Type)
		b = le.AppendUint16(b, uint16(len(x.Auth[i].Value)))
		b = append(b, x.Auth[i].Value...)
	}
	return b
}

// Parse sets x from a payload. Values of Auth alias b. A payload that does not
// start with the magic is LINK_MAGIC, whatever else is wrong with it.
func (x *Hello) Parse(b []byte) error {
	c := cursor{b: b}
	if m := c.bytes("magic", len(helloMagic)); m == nil || string(m) != helloMagic {
		return &FrameError{Code: wire.CodeLinkMagic, Field: "magic", Text: fmt.Sprintf("magic: %q, want %q", b[:min(len(b), len(helloMagic))], helloMagic)}
	}
	x.Min, x.Max = c.u16("min"), c.u16("max")
	x.Agent = c.id("agent")
	x.Inc = c.u64("inc")
	x.Session = c.id("session")
	x.Lane = c.u8("lane")
	if x.Lane > MaxLanes {
		c.refuse(errValue("lane", c.off-1, uint64(x.Lane), MaxLanes))
	}
	c.zero(3)
	x.Limits = Limits{c.u32("reqs"), c.u32("items"), c.u32("frame"), c.u32("bytes_in_flight"), c.u32("linger_ms")}
	x.Features = c.u64("features")
	copy(x.Nonce[:], c.bytes("nonce", len(x.Nonce)))
	n := c.size("auth", MaxTLVs)
	c.zero(2)
	x.Auth = x.Auth[:0]
	for range n {
		t := TLV{Type: c.u16("auth.type")}
		t.Value = c.bytes("auth.value", c.size("auth.len", MaxTLV))
		if c.fail != nil {
			break
		}
		x.Auth = append(x.Auth, t)
	}
	return c.end()
}

// Find gives the value of the first auth element of type t.
func (x Hello) Find(t uint16) (value []byte, ok bool) {
	for i := range x.Auth {
		if x.Auth[i].Type == t {
			return x.Auth[i].Value, true
		}
	}
	return nil, false
}

// Agree gives the newest version that both ranges hold, else LINK_VERSION.
func (x Hello) Agree(peer Hello) (uint16, error) {
	v := min(x.Max, peer.Max)
	if v < max(x.Min, peer.Min) {
		return 0, &FrameError{Code: wire.CodeLinkVersion, Field: "max", Got: uint64(peer.Max), Limit: uint64(x.Max),
			Text: fmt.Sprintf("versions %d to %d here, %d to %d there", x.Min, x.Max, peer.Min, peer.Max)}
	}
	return v, nil
}
