// Package control is what the daemon and its NIXL helper say to each other over a
// socket pair.
//
//	message.go  the messages, and their limits
//	codec.go    bytes
//	conn.go     frames, and the descriptors that come with them
//
// A frame is a u32 of the length that follows, a u8 of the message's kind, and its
// fields in their order: integers little endian, texts and bytes with a u32 of their
// length before them. Every length has a limit, and a frame must be used up by its
// fields. A frame that is wrong ends the connection: the other side is broken.
//
// Each request has a number, chosen by the daemon, and exactly one answer with the same
// number; answers come in any order. A descriptor comes with Map only.
//
// The package may import the standard library and x/sys. It must never act on a message.
package control
