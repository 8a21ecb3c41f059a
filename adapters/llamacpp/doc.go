// Package llamacpp joins llama-server processes, as they are, to Meridian: the KV
// state of a slot becomes blocks, and blocks become a state. It is a codec and an
// HTTP client; who starts servers and where blocks go is the business of others.
//
// # State files
//
// llama-server saves and restores a slot as a file (POST /slots/ID?action=save).
// Version 2, little-endian, as read from files of build 10434 of the package that
// the tests use:
//
//	u32 0x67677371, u32 version
//	u32 n, i32[n]: -1, 1, N, N tokens, 0
//	u32 streams; for each stream:
//	  u32 cells; nothing more if 0, else
//	  cells × { i32 position, u32 1, i32 sequence }
//	  u32 transposed, u32 layers
//	  K: layers × { i32 type, u64 row bytes, cells rows }
//	  V: the same; transposed: layers × { i32 type, u32 element bytes, u32 rows,
//	     rows × cells elements }
//
// There is a stream a slot, and the slot's own is the one with cells, unless the
// cache is unified; sequence is the slot's number. A restore puts the cells where
// the restoring slot is, so a state may be restored into another slot than it was
// saved from. V is transposed where flash attention is off.
//
// The file has no checksum: the server takes a changed byte without a word, and
// answers every other fault with the same HTTP 400 and an empty slot. So a state
// is checked before it is written.
//
// # Blocks
//
// The KV of a token does not depend on what follows it, so a state can be cut at
// any token. A block holds the rows of BlockTokens tokens, the last of a chain of
// fewer: K of each layer, then V of each layer, and within a layer token by token
// (transposed: row by row, in it token by token). It has no header of its own: what it
// holds follows from the manifest, and which tokens from its key.
//
// A chain hash names a block and all before it: BLAKE3-256 over a label, the hash
// of the block before, the number of tokens and the tokens. The label and the
// number keep a short block apart from the beginning of a full one.
//
// Only states whose cells are positions 0 to N-1 of one sequence are split:
// shifted contexts and shared cells are refused by name.
//
// # The server
//
// Some of what Server relies on, seen with that build:
//
//   - n_predict 0 computes the prompt and still answers with one token, whose KV
//     is not in the cache. A call whose prompt is cached but for its last token
//     computes that one.
//   - While it streams, the server sends nothing for a token that ends within a
//     character, and its id is lost; only the count of tokens tells. An answer as a
//     whole has every id. See Completion.
//   - Bytes of a token's text are those since the last complete character.
//
// # Imports
//
// wire and the standard library. It must never start a process, open a file by
// itself (HashModel aside), or log.
package llamacpp
