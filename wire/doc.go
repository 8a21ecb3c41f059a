// Package wire is MRDN v1: the bytes of a KV block on any fabric, and the
// names and numbers that travel with them.
//
// A payload is a 32-byte header (length, tier, BLAKE3-128 of the body) and an
// opaque body. docs/spec/mrdn-v1.md has the format byte for byte, and
// conformance/vectors/mrdn-v1 has it as files for other languages.
//
// # Reading
//
//   - Decode: a whole payload in memory. The body aliases the input.
//   - ParseHeader, then Header.Check: header and body from different places.
//   - Reader: a stream. io.EOF comes only after the checksum matched.
//   - ParseEnvelope: takes the legacy envelope of Meridian 0.2 off.
//
// All make the same checks in the same order, and check a length against the
// caller's limit before anything is reserved. Mode is Strict between our own
// agents, and Lenient for what Meridian 0.x wrote.
//
// # Writing
//
//   - Seal: the body is already in place, the header goes in front of it.
//   - AppendPayload: header and body behind other bytes.
//   - WritePayload: from an io.ReaderAt, in two passes.
//   - Writer: to an io.WriteSeeker, in one pass, header last.
//
// # Hashing
//
// SumOf and Hasher hash bytes that no one else changes. CopySum is for bytes
// that someone else can change meanwhile: it copies first and hashes the copy,
// and is the only way from a window or staging ring into a segment.
//
// # Names
//
// Manifest describes a namespace, Namespace is its digest, Key names a block
// in it, Ref names a slot and grants nothing. None of these is inside a
// payload.
//
// # Errors
//
// Every failure is a type with the values that differ, and matches its Code:
//
//	if errors.Is(err, wire.CodeChecksum) { ... }
//
// CodeOf turns any error into the number that a peer is told, and Code.Err the
// number that a peer told into an error. errors.json is the source of the
// numbers; go generate makes codes.go and docs/errors.md from it.
//
// # Limits of this package
//
// It imports the standard library and BLAKE3, and may import nothing else. It
// never starts a goroutine, logs, reads a clock or keeps a caller's slice. It
// never changes a payload on its way: a header that came is the header that
// goes, byte for byte.
package wire
