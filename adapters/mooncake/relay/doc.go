// Package relay stands between Mooncake engines: those that open its segment are sources,
// and what they ask for is carried to one other engine, the target. Neither is told.
//
//	relay.go   start and end, and the handshake: descriptor, probes, notifies
//	admit.go   who may connect, and where the relay may
//	life.go    the target as it is seen, and what happens when it is another one
//	ports.go   data ports, of which each life has its own
//	lane.go    connections to the target
//	carry.go   one request: checked, and carried in pieces
//	count.go   what was carried, by source
//	fabric.go  the relay as a fabric of the daemon, which carries no blocks
//
// # A write, step by step (version 2; version 1 has no status)
//
//	source                relay                       target
//	header       ------>  check against the mirror
//	                      a share, and a lane ------> header
//	piece        ------>  one piece in memory ------> piece      until the last one
//	                                          <------ status
//	             <------  status
//
// A read goes the same way: the target's status first, then pieces from the target to
// the source.
//
// # The mirror
//
// The relay's descriptor has the target's buffers, at the target's addresses. Name, data
// host and data port are the relay's. Mooncake's engines read a descriptor once and keep
// it, so a source may ask for addresses of a target that was restarted since. Mooncake
// has no incarnation to tell by. So each life of the target has a data port of its own at
// the relay: with the life, its port ends, and an old address reaches no new memory. A
// lane is used only after a look at the target that began when the lane was there
// already: what answered then is what the lane leads to.
//
// The package may import fabric, wire, and what is below adapters/mooncake. It must never
// hold a whole body, acknowledge what the target has not acknowledged, or connect to
// where it may not.
package relay
