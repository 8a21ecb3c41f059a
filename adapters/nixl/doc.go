// Package nixl speaks to NIXL agents. Their library runs in a process of its own, the
// helper meridian-ffi: it may end that process, and the daemon goes on.
//
//	process.go one run of the helper: requests, answers, signs of life, its end
//	ways.go    the transports that UCX chooses
//	roster.go  the listed peers, and a list that replaces them
//	guest.go   their windows in the helper
//	capi       the library's functions; in the helper only
//	control    the messages between daemon and helper
//	helper     what the helper does
//
// Memory that the helper maps is a window of package blocks/window, which comes to it as
// a descriptor: never a segment. NIXL has no read-only registration, and UCX checks no
// range of a write that it does in software, so a process that has the agent's metadata may
// write all of a window, at any time.
//
// A helper that dies, hangs or breaks the rules is killed; what it was asked for fails
// with the reason. No window that it had is used again before it is dead. The next one
// has another agent name and other windows, so that nothing meant for one reaches the
// other.
//
// The package may import fabric, wire, blocks, its own folders but capi and helper, and
// rooms of internal. It must never load a library.
package nixl
