// Package identity says which KV a llama-server computes, by content: two servers
// share keys only if the bytes of their weights and adapters are the same, and each
// setting that may change KV.
//
// # What is in the key
//
//   - every file of the model: all shards of a split one
//   - each argument but those that are known to change no KV (args.go). A value that
//     is a file, such as an adapter, counts by its bytes and not by its path
//   - each variable of the environment that the child gets and that may change what a
//     device computes (env.go)
//   - the adapters that the server itself reports, whatever loaded them
//   - the context, for a model whose rotation depends on it
//   - the build; where the server does not know its own, what --version says and the
//     bytes of its file
//
// What is not known here changes the key: nodes then compute what they might have
// shared, and never read KV that is not theirs.
//
// # When files change
//
// Open opens the files and remembers what the file system says of them. Changed
// compares that with what is at the paths and in the open files now. A caller opens
// before it starts a server and asks once the server has loaded: what is hashed is
// then what the server has. A replaced file has another inode and an overwritten one
// another time, so that a sum is kept for (device, inode, size, times) only, and
// not for a file that was changed less than racy ago: a second change may show the
// same times.
//
// # Imports
//
// BLAKE3 and the standard library. It starts nothing but SERVER --version, and never
// writes a file.
package identity
