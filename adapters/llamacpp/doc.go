// Package llamacpp joins llama-server processes, as they are, to Meridian: the KV
// state of a slot becomes blocks, and blocks become a state. It is a codec and an
// HTTP client; who starts servers and where blocks go is the business of others.
//
// # State files
//
// llama-server saves and restores a slot as a file (POST /slots/ID?action=save).
// Versions 2 and 4, little-endian, as build b1-7e4c0a9 and xllamacpp 2026.10.11549
// write them:
//
//	u32 0x67677371, u32 version
//	u32 n, i32[n]: -1, 1, N, N tokens, 0
//	u32 streams; for each stream:
//	  u32 cells; nothing more if 0, else
//	  cells × { i32 position, u32 1, i32 sequence }
//	  u32 transposed, u32 layers
//	  version 4: u32 K rotation, u32 V rotation
//	  K: layers × { i32 type, u64 row bytes, cells rows }
//	  V: the same; transposed: layers × { i32 type, u32 element bytes, u32 rows,
//	     rows × cells elements }
//
// There is a stream a slot, and the slot's own is the one with cells, unless the
// cache is unified, which has one stream; sequence is the slot's number. A restore
// puts the cells where the restoring slot is and reads the sequence without using
// it, so a state may be restored into another slot than it was saved from. An
// Assembler writes what slot 0 would. V is transposed where flash attention is off.
// A rotation is how many elements are rotated together before they are quantised: 0
// with an f16 cache, 64 with q8_0. A server takes states of its own version and
// rotations only, so both are part of the geometry and are written as they were read.
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
// Only states whose cells are positions 0 to N-1 in order of one sequence are
// split; others are refused by name, and so are those with tokens that are no ids,
// which stand for parts of an image. A server that shifts its context
// (--context-shift) or moves cached pieces (--cache-reuse) keeps KV that was computed
// behind other tokens than those in front of it now. New cells then fill the gaps, so
// that the order is refused, but a file need not show it: such a server must run
// without both.
//
// A block of a transposed state is gathered row by row, a read of a few bytes for
// each row of V of each layer. It is right, and slow.
//
// # The server
//
// Some of what Server relies on, seen with that build:
//
//   - A slot's number is taken modulo the number of slots, in completions and in
//     slot actions: erasing slot 8 of 2 empties slot 0. So Server asks for /props
//     once and refuses a slot that there is not.
//   - Calls on a slot that is busy wait until it is free; so do its save, restore
//     and erase.
//   - n_predict 0 computes the prompt and still answers with one token, whose KV
//     is not in the cache. A call whose prompt is cached but for its last token
//     computes that one.
//   - A prompt must be shorter than the slot's context; one that is not gives
//     exceed_context_size_error, status 400, also when a stream is asked for. A slot
//     that becomes full while it decodes ends with stop type limit, truncated.
//   - A token that ends within a character is held back: a stream sends nothing for
//     it and its id is lost, only the count of tokens tells. An answer as a whole has
//     every id, and no probability for such a token. See Completion.
//   - Bytes of a token's text are those since the last complete character of the
//     call: of a character that began in an earlier call they are the rest. Bytes of
//     alternatives are their own.
//   - Log-probabilities are of the model's distribution, before temperature and
//     top-k, also at temperature 0. With as many as the vocabulary has, all are there.
//   - The end of a sequence is a token of its own with no text, in streams too, but
//     /detokenize writes it as its marker.
//   - NUL is a character like others. Text that is not UTF-8 gives status 500 from
//     its JSON parser; Server refuses it first, since encoding/json would change it.
//   - Stop strings hold text and ids back, so none are sent: who reads the stream
//     can stop it.
//   - Bits depend on how a prompt is batched. Two slots that hold the same KV of all
//     but the last token go on bit-equally; a prefill from nothing may differ.
//
// # Imports
//
// wire, BLAKE3 and the standard library. It must never start a process, open a file by
// itself, or log.
package llamacpp
