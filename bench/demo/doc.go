// Package demo is `mrdn demo`: Meridian's main job in front of your eyes, with
// real processes, real sockets and real bytes.
//
//	          trace                                  judge (process)
//	            |                                   /      \
//	engine A (process)                             /        engine B (process)
//	    | engine socket                           /             | engine socket
//	daemon "prefill" (process) <-- TCP -- proxy <-- TCP -- daemon "decode" (process)
//
// Engine A is a stand-in for a prefill engine: for each request of the trace it
// looks up the prompt's blocks, stores those that are missing, and keeps a lease
// on all of them until the hand-off is done. Engine B is one for a decode
// engine: its daemon pulls what it lacks, the engine reads the mapped bytes and
// checks each of them; a share of the requests thinks, and when it stops, its
// daemon offloads the think blocks to the other node. Body bytes follow from the
// block's key, so the reader needs no checksum of ours to know what is right.
// The proxy turns one bit on the way. A judge in a process of its own hears of
// every block that was acknowledged and every body that was served.
//
// With the synthetic fabric both daemons live in one process and share its
// memory; there is no proxy then, and the fabric itself corrupts one item.
//
// The package may import what bench may. It must never print a figure that it
// did not measure.
package demo
