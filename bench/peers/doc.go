// Package peers compares Meridian with other systems that move the same bytes
// from one process's memory to another's on this host: Mooncake's transfer
// engine, NIXL over UCX, Redis, and, as bounds, plain sockets, memcpy and the
// hash alone.
//
// # One run
//
// A cell of the matrix is a direction, a block size, a batch, a number of
// streams (batches under way at the same time) and a working set at the far
// end. For each cell every system is prepared and proves that the bytes it
// moves are right; then the rounds follow, each of them all systems in turn, so
// that the drift of a shared machine meets everybody. Figures are medians of
// the rounds, ratios are medians of the ratios of one round.
//
// Every system does the same work: a batch is so many scattered blocks of the
// far process, in the same order for all, which arrive in (or leave from) a
// buffer of the near process that the stream uses again and again.
//
// Options.Transfer makes the run another comparison, of transfer engines of
// Mooncake's protocol: each initiator, theirs and ours, with each target, and theirs with
// theirs through a relay (transfer.go, relay.go). Options.NIXL makes it one of Meridian's NIXL helper with NIXL (nixl.go).
//
// # Processes
//
// A pair is two processes, target and initiator, that run one or more of the
// systems; that of the relay has a daemon between them. Both speak lines of JSON with the harness (protocol.go), whether
// they are this program started again (Play) or a driver in Python (drivers/).
// The loop that is timed runs inside the initiator. The harness reads the
// processor time of both from the kernel's clocks of those processes.
//
// # Fairness
//
// No socket sets a congestion control of its own: all have the one of the
// network namespace, which the report names as a connection has it. No system
// keeps a core busy while another is measured: what spins when idle is stopped
// meanwhile. Each foreign system is set up as its own documentation advises;
// what differs from its defaults is said at the setting.
//
// The package may import what bench may. It must not print a figure that it did
// not measure in the same run, or report a system whose bytes it has not
// compared.
package peers
