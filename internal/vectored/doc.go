// Package vectored reads and writes several buffers by one call of the system, on a
// descriptor that does not block. The calls go past Go's scheduler, which takes a call of
// more than 20 µs for one that waits, and wakes a thread to look after it and another to
// go on with the processor; copying 256 KiB takes as long.
//
// The package may import x/sys. It must not be used with a descriptor that blocks: a
// garbage collection would wait for it.
package vectored

// Max is how many buffers a call takes at most: the kernel's bound.
const Max = 1024
