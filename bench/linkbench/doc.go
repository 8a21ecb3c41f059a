// Package linkbench measures the link between two agents, and an engine's
// mapped read, against what the machine itself can do in the same run.
//
// A holder runs in a process of its own: a block store, a link node, an
// engine's socket, and a plain TCP server that sends the same bytes from the
// same memory without any protocol. The measuring process pulls from the one
// and reads from the other, in turn:
//
//	S      plain sockets, the same block, batch, streams, working set and
//	       congestion control: what loopback carries
//	H      the hash on one core, over the memory that was just received
//	bound  1 / (1/S + 1/(cores × H)): nobody who verifies can be faster
//	pull   Meridian, verified, into slots of an arena
//
// All figures of a line are medians of several rounds that alternate, since a
// shared machine's speed drifts. The package may import what bench may.
package linkbench
