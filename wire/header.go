package wire

import (
	"encoding/binary"
)

// HeaderLen is the size of an MRDN v1 header in bytes.
const HeaderLen = 32

// Version is the only MRDN version that this package reads or writes.
const Version = 1

// MaxBody is the largest body that a header can name.
const MaxBody = 1<<32 - 1

// Tier says how soon a block may go: lower tiers are evicted first.
type Tier uint8

// The three tiers, in the order in which they are evicted.
const (
	ThinkComplete  Tier = 0
	ThinkActive    Tier = 1
	OutputCritical Tier = 2
)

// Mode selects between the strict reader of Meridian's own agents and the
// lenient one that also takes what Meridian 0.x wrote.
type Mode uint8

// The two modes of reading.
const (
	Strict Mode = iota
	Lenient
)

// Header is an MRDN v1 header without its constants.
type Header struct {
	BodyLen uint32
	Tier    Tier
	Sum     Sum
}

// Append appends the 32 bytes of h to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, 'M', 'R', 'D', 'N')
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, h.BodyLen)
	b = append(b, byte(h.Tier), 0, 0, 0)
	return append(b, h.Sum[:]...)
}
