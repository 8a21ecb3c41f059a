// Package link is the codec of MRDN LINK v1: the frames of the agent-to-agent
// link and, with feature LOCAL, of the engine's block socket. Bytes in, values
// out, and back. docs/spec/link-v1.md is the same thing for other languages.
//
// A frame is a 24-byte header and a payload. All integers are little-endian.
//
//	n, ev, err := splitter.Next(b)              // crc32c, type, length for the type
//	m, err := link.Parse[link.Pull](ev.Payload) // or m.Parse, which reuses m's slices
//	b = link.AppendMessage(b, f, m)             // header, payload, trailer; fills Len
//
// A reader of a stream feeds what it got, in pieces of any size, to a [Splitter],
// which assembles control payloads in one bounded buffer and hands DATA bytes
// on as they come, or announces their place so that the shell can read them
// straight to their home.
//
// # Strictness
//
// A payload has one encoding. Reserved bytes are zero, counts fit the bytes
// that are there, and nothing follows the last field; all else is refused. The
// version range of HELLO is agreed before anything else is sent, so a later
// version can change a layout; within a version, new frame types (skipped when
// not CRITICAL), feature bits, auth elements and flag bits of Want extend the
// protocol. Status codes above those known are kept as they are.
//
// DENIED never leaves: it is written as ABSENT (in OPENED as NS_UNKNOWN), and
// read so as well.
//
// # Errors
//
// Every failure is a [*FrameError], which matches its wire.Code by errors.Is:
// LENGTH, CRC, INVALID, LINK_MAGIC, UNSUPPORTED, STATE.
//
// # What it may import, what it must never do
//
// Only the standard library and wire. It never does I/O, reads a clock, takes a
// lock or starts a goroutine. It never allocates for a count before it has
// seen that the bytes for it are there, and never keeps a reference to its input
// beyond what a function says.
package link
