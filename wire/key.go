package wire

import "github.com/zeebo/blake3"

// Key names a block: BLAKE3 over its namespace and the engine's own block hash.
type Key [32]byte

// Namespace is BLAKE3 over a canonical manifest.
type Namespace [32]byte

// Ref names a slot and grants nothing.
type Ref struct {
	Agent     [16]byte
	Inc       uint64
	Slot, Gen uint32
}

// Attest says who vouched for a checksum.
type Attest uint8

// Producer: the engine's own agent hashed at commit. Ingest: the first agent
// that committed foreign raw bytes. None: nobody; the bytes are unverified.
const (
	AttestNone Attest = iota
	AttestIngest
	AttestProducer
)

// KeyOf derives a block's key.
func KeyOf(ns Namespace, engineHash []byte) Key {
	h := blake3.New()
	_, _ = h.Write(ns[:])
	_, _ = h.Write(engineHash)
	var k Key
	h.Sum(k[:0])
	return k
}
