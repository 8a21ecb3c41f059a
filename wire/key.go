package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Key names a block: BLAKE3-256 over its namespace and the engine's own block
// hash. It travels beside a payload, never inside it.
type Key [32]byte

// Namespace is BLAKE3-256 over a canonical Manifest.
type Namespace [32]byte

// Ref names a slot of an agent's arena and grants nothing. A slot that is
// used again has a new generation.
type Ref struct {
	Agent     [16]byte
	Inc       uint64 // the agent's incarnation: new at each start
	Slot, Gen uint32
}

// keyStack is how long an engine's block hash may be for KeyOf to work on the
// stack. Engines in use have 8 to 32 bytes.
const keyStack = 64

// KeyOf derives a block's key. engineHash is the engine's own hash of the
// block and of all before it, of any length; KeyOf does not allocate for
// lengths up to 64 bytes.
func KeyOf(ns Namespace, engineHash []byte) Key {
	var room [len(ns) + keyStack]byte
	b := append(room[:0], ns[:]...)
	return digestOf(append(b, engineHash...))
}

// String returns k in hex, 64 digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// MarshalText returns k in hex.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// UnmarshalText is ParseKey.
func (k *Key) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKey(string(b))
	return err
}

// ParseKey reads 64 hex digits. The error matches CodeInvalid.
func ParseKey(s string) (Key, error) {
	var k Key
	err := parseHex(k[:], "key", s)
	return k, err
}

// String returns n in hex, 64 digits.
func (n Namespace) String() string { return hex.EncodeToString(n[:]) }

// MarshalText returns n in hex.
func (n Namespace) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, n[:]), nil }

// UnmarshalText is ParseNamespace.
func (n *Namespace) UnmarshalText(b []byte) (err error) {
	*n, err = ParseNamespace(string(b))
	return err
}

// ParseNamespace reads 64 hex digits. The error matches CodeInvalid.
func ParseNamespace(s string) (Namespace, error) {
	var n Namespace
	err := parseHex(n[:], "namespace", s)
	return n, err
}

// Handle returns r as 32 bytes, little-endian: agent 16, incarnation u64, slot
// u32, generation u32. It is the fabric handle of a block on the link.
func (r Ref) Handle() (h [32]byte) {
	copy(h[:], r.Agent[:])
	binary.LittleEndian.PutUint64(h[16:], r.Inc)
	binary.LittleEndian.PutUint32(h[24:], r.Slot)
	binary.LittleEndian.PutUint32(h[28:], r.Gen)
	return h
}

// RefOf is the inverse of Handle. Every 32 bytes are some reference.
func RefOf(h [32]byte) Ref {
	return Ref{
		Agent: [16]byte(h[:]),
		Inc:   binary.LittleEndian.Uint64(h[16:]),
		Slot:  binary.LittleEndian.Uint32(h[24:]),
		Gen:   binary.LittleEndian.Uint32(h[28:]),
	}
}

// IsZero reports whether r is the zero reference, which names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns the bytes of Handle in hex, 64 digits.
func (r Ref) String() string {
	h := r.Handle()
	return hex.EncodeToString(h[:])
}

// MarshalText is String.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRef.
func (r *Ref) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRef(string(b))
	return err
}

// ParseRef reads 64 hex digits, the bytes of Handle. The error matches
// CodeInvalid.
func ParseRef(s string) (Ref, error) {
	var h [32]byte
	if err := parseHex(h[:], "reference", s); err != nil {
		return Ref{}, err
	}
	return RefOf(h), nil
}

// parseHex fills dst from exactly 2*len(dst) hex digits, or leaves it zero.
func parseHex(dst []byte, what, s string) error {
	clear(dst)
	if len(s) != 2*len(dst) {
		return fmt.Errorf("%s: want %d hex digits, got %d characters: %w", what, 2*len(dst), len(s), CodeInvalid)
	}
	if _, err := hex.Decode(dst, []byte(s)); err != nil {
		clear(dst)
		return fmt.Errorf("%s %q: %w: %w", what, s, err, CodeInvalid)
	}
	return nil
}
