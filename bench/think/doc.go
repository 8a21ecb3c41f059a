// Package think measures what the order of requests is worth to those who wait for
// answers, in virtual time: requests come at random, think, answer, and compete for the
// slots, tokens and KV blocks of one batch engine. What happens is decided by the real
// parts: phases, and when thinking went cold, by scheduler.Core, fed with a token stream;
// what each step does by scheduler/queue; which block is where, what the prefix cache
// hits and what is evicted by blocks.Core, without bodies. Models are the duration of a
// step and of a copy (Cost), whose parameters the report names.
//
// # Blocks
//
//	block of    while its request lives                       after its end
//	a prompt    OutputCritical                                ThinkComplete
//	thinking    ThinkActive, when it is over ThinkComplete    dropped, or ThinkComplete
//	            (where the history keeps it)
//	an answer   OutputCritical                                ThinkComplete
//
// Who runs references its blocks. Those of who was preempted and not offloaded are idle:
// what of them is evicted before it comes back is computed once more, and an evicted block
// of a prompt or an answer is an output-critical eviction. Engines that we compare with
// have one tier, in order of the last use, and the same prefix cache.
//
// Blocks of a thinking that is over are copied away in batches, as an agent does. Who
// answers still reads them, so that they free no memory; a preemption then copies them no
// second time. Copies go over one path each way, one after the other.
//
// The same options give the same report, byte for byte, on every machine. The package may
// import scheduler, scheduler/queue, blocks, wire, bench/trace and bench/plot.
package think
