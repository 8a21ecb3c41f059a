// Package think measures what the order of requests is worth to those who wait for
// answers, in virtual time: requests come at random, think, answer, and compete for the
// slots, tokens and KV blocks of one batch engine. Phases are those of the real
// scheduler.Core, fed with a token stream; what each step does is decided by the real
// scheduler/queue. Only the duration of a step is a model (Cost), whose parameters the
// report names.
//
// The same options give the same report, byte for byte, on every machine. The package may
// import scheduler, scheduler/queue and bench/plot.
package think
