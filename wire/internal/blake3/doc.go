// Package blake3 is BLAKE3-256 in its plain mode, as fast as one core does it.
//
// # What there is
//
//   - Sum256: the digest of bytes in memory.
//   - CopySum256: copies, and gives the digest of the copy, in one pass.
//   - Hasher: the digest of bytes that come piece by piece.
//
// None starts a goroutine, and only a Hasher's first Write allocates.
//
// # Paths
//
// The work is done on one of three paths, which give the same digests:
//
//   - avx512: 16 chunks or parent nodes abreast. Needs AVX512F and AVX512VL,
//     and an operating system that keeps the ZMM registers.
//   - avx2: 8 abreast.
//   - generic: github.com/zeebo/blake3, and the only path but on amd64.
//
// The best that the processor has is taken. The environment variable
// MERIDIAN_BLAKE3, read once at start, sets another: avx512, avx2 or generic.
// Of a path that the processor lacks the next one down is taken, and any other
// value counts for nothing. Current says what it came to, Force is for tests.
//
// # How a digest is made
//
// A tree node's place follows from the length alone: pairs of neighbours,
// level by level, an odd one out moving up as it is. So the chunks' chaining
// values go into one list, and a level is as many parents abreast as there
// are. A list ends at 256 chunks, a complete subtree, whose one value goes on
// a stack, where complete subtrees of equal size become one.
//
// No call of a kernel works on more than 64 KiB: the runtime cannot stop a
// goroutine within one, and a collection waits for all.
//
// # Kernels
//
// kernels_amd64.s is made by ./gen from the specification, go generate makes it
// anew, and a test compares. A kernel reads whole blocks only, never a byte
// outside its input.
//
// # Limits of this package
//
// It imports the standard library, golang.org/x/sys/cpu and zeebo/blake3, and
// may import nothing else. It has neither the keyed nor the derivation mode,
// nor digests longer than 32 bytes.
package blake3

//go:generate go run -tags kernelgen ./gen .
