//go:build kernelgen

// Command gen writes the vector kernels of package blake3: kernels_amd64.s and
// kernels_amd64.go, in the folder that is its one argument.
//
// Its code has the build tag kernelgen, so that no ordinary build needs the
// assembler package; go generate in the folder above sets it. The kernels
// follow the BLAKE3 specification (O'Connor, Aumasson, Neves, Wilcox-O'Hearn,
// "BLAKE3: one function, fast everywhere", section 2).
//
//   - lanes.go: many inputs abreast, one a lane (16 in ZMM, 8 in YMM).
//   - transpose.go: rows of words in memory to one register a word, and back.
//   - rounds.go: the compression function on one register a word.
//   - reduce.go: the top of a tree without a way through memory.
//   - chain.go: one input, block after block, one register a row.
package main
