// Package bridge measures what the gateway costs: blocks that a peer of one fabric brings
// to a daemon, and that go on to a peer of another one.
//
// Five bridges are measured: link to NIXL, Mooncake to NIXL, NIXL to link, and link to link,
// where blocks go on while they come and where each is stored first. Daemons are
// processes of their own with a configuration file. Applications of NIXL and Mooncake are
// Python processes with the released wheels (drivers/); the link's other end is
// adapters/link in the measuring process. All rates of a row are measured in one run, in
// turn in each round:
//
//	leg1    what the source brings into a daemon that has no route for it, until the
//	        daemon has told of each block that it has it
//	leg2    what a daemon sends to the sink by itself: it off-loads blocks that an engine
//	        has PUT before, in batches as large as the gateway's, until each is at the sink
//	H       the hash of one core, over the same payloads
//	bridge  from the first byte at the source until each block is at the sink
//	bound   1 / (1/leg1 + 1/leg2 + 1/(cores × H))
//	one     link to link: for one block alone, from its first byte at the source until it
//	        is at the sink
//
// The bound is that of a bridge whose parts do nothing at the same time: one whose blocks go
// on while they come may be above it. Processor time is that of the gateway's daemon, without
// its helper's.
//
// A block is at a sink of NIXL when the application has heard the notification that says
// so, and at a sink of the link when its store has published the block. After each bridge
// and each leg2 the sink compares header and body of every block with what was sent,
// outside of the time that counts.
//
// # Processes
//
//	link → NIXL       this process, daemons leg and gate, one Python process
//	Mooncake → NIXL   daemons leg and gate, two Python processes
//	NIXL → link       this process, daemons leg and gate, one Python process
//	link → link       this process, with both ends, and daemons leg and gate
//
// leg has no route with from, and no sink; gate has both, and does leg2 too. A daemon with
// a NIXL fabric has a meridian-ffi besides. gateway.queue_bytes holds all blocks of a
// run, so that none is refused when leg1 is faster than leg2; a source in the field holds
// back, or tries again.
//
// The package may import what bench may. It must not print a figure that it did not
// measure in the same run, or that of blocks which it has not compared.
package bridge
