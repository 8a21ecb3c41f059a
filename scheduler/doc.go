// Package scheduler follows the token stream of each generation request and
// says what follows from it: when a request starts and stops thinking, when
// its thinking must be cut short, and which of its KV blocks went cold and may
// be offloaded.
//
// # Shape
//
// A [Core] is a deterministic state machine in the manner of etcd's raft: it
// does no I/O, owns no clock, takes no lock and starts no goroutine. There is
// one Core an engine session, driven by the one goroutine that reads the
// session's socket:
//
//	core.Step(now, inputs) // what the engine said
//	core.Tick(now)         // when Ready.Next has passed
//	core.Ready(&r)         // what follows: r.Events in order, r.Next
//
// Ready follows every Step and every Tick; events pile up until it is called.
// The same inputs at the same times give the same events. [Core.Stats] alone
// may be called from any goroutine at any time, without stopping the core.
//
// # Phases
//
// A request goes Prefill, ThinkDecode, OutputDecode, Complete. It may leave
// phases out and never goes back.
//
//   - Arrive looks at the end of the prompt, since many chat templates put the
//     start marker there. A prompt that ends with one, and white space, makes the
//     first decoded token a thinking one. A marker further in front was written
//     by a user, who opens nothing.
//   - Prefill stays until the first decoded token that is not white space and
//     cannot belong to a start marker. A whole start marker means EnterThink; an end-of-sequence
//     id means Complete; anything else is output.
//   - ThinkDecode counts a token first and looks at it afterwards, so the count
//     of ExitThink includes the end marker. A nested start marker is a token
//     like any other. The start marker itself is not counted.
//   - A thinking request that has reached its MaxThink after the tokens of
//     one input gets one ForceBudget in its life, with the end marker as Inject.
//     An end marker in the same input wins: advice to end what has ended would
//     only put a second marker into the answer.
//   - A signal may force earlier, see below. Whatever the reason, a request is
//     forced once.
//   - A model without an end marker is never forced; CannotForce says so, once
//     a request, at the moment when it would have been.
//   - An end-of-sequence id, or Done, means Complete, once. The entry stays
//     until Done, Abort, or [Config].ReapAfter without a sign of life, so that
//     late blocks still find it. Done and Abort are idempotent in every state.
//
// # Positions
//
// Tokens of a request are counted from 0, prompt first. An engine that sends the
// end of a prompt only says where it stands (Input.First). Events have a position,
// and [Core.PartOf] says what a run of tokens is: of a thinking that goes on, of
// one that is over, or something else. A request thinks once at most, so what a block
// holds follows from its position, whenever the block comes. Thinking that goes on
// has no end yet: a block behind its begin is Thinking, also where the core
// has not seen all of the block's tokens.
//
// Arrive with Decoded resumes a request that another Core followed: its phase,
// count and positions are those that it would have had. Said is where it stands
// (EnterThink only if it thinks now), and what is due at that moment. Signals begin anew.
//
// # Text
//
// Ids cannot tell a marker that the tokenizer has merged with what stands beside
// it. The owner of the batch knows the text of each token and uses a [Watch], one
// a request, instead of a Core: it finds markers in the text, however the tokens
// cut them, says what a reader may see, and holds budgets to the token. Both find
// markers by the same matcher.
//
// # Signals
//
// Five measurements of a request that thinks, each under its own name, say
// whether more thinking helps. Here are their definitions, as functions of a row
// of logits or log-probabilities, and the rules of what follows:
//
//	entropy          Entropy, EntropyOfLogits; EntropyLowerBound of a row's best
//	p_end            PEnd, PEndOfLogits; PEndBounds of a row's best
//	eat              Entropy of an extra row, after an end marker and a newline
//	rpdi             RPDI, at the ends of sentences
//	rpdi_indicator   made by a Monitor of entropy
//
// [Rules] are the settings, checked; a [Monitor] applies them to one request. A
// Core with [Config].Signals has one for each request, fed by Probed inputs; who
// owns the batch may have them without a Core, and asks Due before it pays for
// a row.
//
//   - Converged: the moving variance of p_end is below its threshold and the
//     moving average has reached PEndLevel. Or the moving variance of eat is,
//     at any level unless EATLevel names one.
//   - Overthinking: rpdi is above RPDILambda. Or rpdi_indicator is above
//     RPDIThreshold, and the moving average it is made of has reached
//     TransitionLevel.
//   - HardCap: MaxThink, without any signal.
//
// A moving average starts with its first sample, and is not looked at before
// 4/Alpha others have followed. A mean is over samples. Nothing is decided
// before MinThink, without a new sample, or twice. A sample closer to the last
// than ProbeInterval is left out, and so is a value that is none: Stats counts
// both.
//
// The levels are this package's own. The literature has none for p_end, but a
// model that never thinks of ending is as calm as one that is about to. One half
// is the level at which ending is more probable than all else together; no
// measurement stands behind it.
//
// # Offload
//
// Blocks are counted, not named: the caller keeps the keys of a request's
// think blocks in order of arrival, and Offload{Blocks: n} means the next n of
// them. From ExitThink on, think blocks leave in batches of exactly
// [Config].OffloadThreshold; a remainder leaves when [Config].OffloadAfter has
// passed, and at Complete. Think blocks that are written after ExitThink (the
// engine saves asynchronously) count too. A request that completes while it
// thinks offloads nothing, and an aborted or reaped one nothing more.
// Whether the model's template keeps thinking in the history decides only what
// [Stats] counts: copies that nothing reads again are Dropped, else Kept.
//
// # Limits
//
// Entries are bounded by [Config].MaxRequests; an arrival beyond it is refused
// with an event and changes nothing. Markers are bounded by [MaxMarker],
// end-of-sequence ids by [MaxEOS]. A token costs O(1) and no heap allocation.
//
// # Imports, and what it must never do
//
// The standard library only. It must never sleep, read a clock, log, or know
// what a fabric or a socket is.
//
// # What is elsewhere
//
// Measuring is: rows of logits come from the runner of the model, and the ends
// of sentences from a caller that can read the text. The order of requests, admission
// and preemption are those of package queue, for whoever owns the batch.
package scheduler
