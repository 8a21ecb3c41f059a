// Package queue decides what each step of a batch engine does: which requests are
// admitted, which of them prefill and decode in the step, and which leave the engine's
// memory for a time.
//
// # Shape
//
// A [Queue] is a deterministic state machine without I/O, clock, lock or goroutine. Its
// owner is whoever runs the batch:
//
//	q.Add(now, request)      // it came, or is refused with a reason
//	q.Schedule(now, &step)   // what the next step does
//	q.Ran(now, id, ...)      // what the step made of each request in it
//	q.Moved(now, id)         // an offload or a load that a step asked for has ended
//	q.Cancel(now, id)
//
// The same calls at the same times give the same steps. Memory is counted in blocks of
// [Config].BlockTokens tokens; a request has as many as its tokens need.
//
// # A step
//
//  1. Where the blocks of those that decode do not fit, requests are preempted until they
//     do: at most [MaxPreempt] a step, never the last one that runs, and none that has
//     been back for less than [Config].MinResidency while there is another.
//  2. Where there is no slot or no room for who is admitted next, those that matter less to
//     the policy yield their place, as in 1; also the only one that runs, where there is one
//     slot.
//  3. Each running request whose prompt is in takes one token. Who has no block for it
//     waits for the next step.
//  4. Prompts of running requests get what is left of [Config].StepTokens, in order of
//     admission.
//  5. Requests are admitted while there is a slot, a token and room: at most
//     [MaxAdmit] a step. Whose turn it is waits for room; nobody passes it. Admission
//     leaves [Config].Headroom of the blocks to those that run, unless nothing runs, or
//     who is admitted makes thinking yield anyway (output-first). As in vLLM V1, fcfs
//     admits nobody in a step that has preempted.
//
// What order changes inside a step is nothing: its tokens share one forward pass. So a
// policy decides about admission and about who is preempted.
//
// # Policies
//
//	              admitted first           preempted first         yields its place
//	fcfs          who came first           who came last           nobody
//	output-first  who does not think, or   who thinks, of these    who thinks, to who
//	              answers already          who came last           does not
//	reason-first  who does not answer yet  the answer furthest     an answer that is
//	                                       ahead of its reader,    [Config].Buffer ahead,
//	                                       then who came last      to who does not answer
//	slo-slack     whose next token is due  whose next token is     whose next token is due
//	              first                    due last                seconds later, to whose
//	                                                               is due sooner
//
// Under output-first, thinking requests leave one slot in [Config].ThinkMultiplier+1 to
// others, where there are so many. A reader reads at [Config].OutputPace, so an answer that is ahead of him can be
// away for a time; that it stays in memory and takes no token would help nobody. A request
// that has waited for [Config].Aging comes first whatever the policy, in one of four
// admissions, and whoever is preempted first yields to it, so none waits for ever. It has
// its residency from its first turn on (Began), and comes first so again when it is
// preempted: it gets on each time that somebody makes room for it. An answer whose reader
// has enough does not wait. fcfs needs none of that.
//
// Under all but fcfs, requests in the background are admitted after all others, preempted
// before them, and yield their place to them; among themselves the policy decides.
//
// A preempted request is offloaded where [Config].Offload is set, and its blocks are
// loaded when its turn comes; else they are dropped and computed anew. An offloaded
// answer has its turn a second before its reader would notice.
//
// # Imports, and what it must never do
//
// meridian/scheduler for its names of phases. It must never sleep, read a clock or log.
package queue
