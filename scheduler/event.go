package scheduler

import "strconv"

// Time is a monotonic instant in nanoseconds since an origin of the caller's.
// A Core treats an instant before the latest one it has seen as the latest.
type Time int64

// Never is later than every instant: Ready.Next when nothing is due.
const Never Time = 1<<63 - 1

// ID names a request within one engine session. Any value is valid; it may be
// used again after Done, Abort or Reaped.
type ID uint32

// Kind is the kind of an Input.
type Kind uint8

// The kinds of Input, with the fields they read.
const (
	Arrive Kind = 1 + iota // ID, Model, Tokens: the prompt, First, Decoded
	Tokens                 // ID, Tokens: decoded since the last input, in order
	KV                     // ID, Blocks, Think: blocks of the request were published
	Abort                  // ID: the request is gone; idempotent
	Done                   // ID: the request has ended; idempotent
	Probed                 // ID, Signal: measured after the tokens so far
)

// Input is one thing an engine said. The slices are not kept.
type Input struct {
	Kind   Kind
	Think  bool // KV: think blocks whatever the phase; false: only if the request is in ThinkDecode
	ID     ID
	Blocks uint32  // KV
	Signal Signal  // Probed
	Tokens []int32 // Arrive, Tokens
	Model  string  // Arrive: the served model's name

	First   uint32  // Arrive: position of the first token of the prompt; above 0 where it was cut
	Decoded []int32 // Arrive: tokens that were decoded before, of a request that is resumed
}

// Phase is where a request stands. It only ever grows.
type Phase uint8

// The phases.
const (
	Prefill Phase = iota
	ThinkDecode
	OutputDecode
	Complete

	phases = 4
)

var phaseNames = [phases]string{"prefill", "think", "output", "complete"}

// String is the phase's name as metric labels use it.
func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return "phase(" + strconv.Itoa(int(p)) + ")"
}

// EventKind is the kind of an Event. The numbers are stable: they travel to
// the engine.
type EventKind uint8

// The kinds of Event, with the fields they fill.
const (
	EnterThink  EventKind = 1 // thinking starts with the next token, or with the first one
	ExitThink   EventKind = 2 // Used: thinking tokens, the end marker included
	ForceBudget EventKind = 3 // Used, Reason, Inject: the end marker to append
	Completed   EventKind = 4 // Used, Reason (EOS, Finished)
	Offload     EventKind = 5 // Blocks: the next n think blocks went cold
	Reaped      EventKind = 6 // Used, Reason Stale: the entry is free without Done or Abort
	Refused     EventKind = 7 // Reason (Full, Duplicate): the arrival changed nothing
	CannotForce EventKind = 8 // Used, Reason NoEnd: to be forced, and there is no end marker to inject

	eventKinds = 9
)

var eventNames = [eventKinds]string{"none", "enter_think", "exit_think", "force_budget", "complete", "offload", "reaped", "refused", "cannot_force"}

// String is the kind's name as metric labels use it.
func (k EventKind) String() string {
	if k < eventKinds {
		return eventNames[k]
	}
	return "event(" + strconv.Itoa(int(k)) + ")"
}

// Reason says why an event happened. The numbers are stable: they travel to
// the engine.
type Reason uint8

// The reasons.
const (
	NoReason     Reason = 0
	Converged    Reason = 1 // ForceBudget: a signal has settled where thinking may end
	Overthinking Reason = 2 // ForceBudget: a signal says that thinking strays
	HardCap      Reason = 3 // ForceBudget: MaxThink reached
	EOS          Reason = 4 // Completed: an end-of-sequence id
	Finished     Reason = 5 // Completed: Done
	Stale        Reason = 6 // Reaped: no sign of life for ReapAfter
	Full         Reason = 7 // Refused: MaxRequests are tracked
	Duplicate    Reason = 8 // Refused: the id is tracked already
	NoEnd        Reason = 9 // CannotForce: the model has no end marker

	reasons = 10
)

var reasonNames = [reasons]string{"none", "converged", "overthinking", "hard_cap", "eos", "finished", "stale", "full", "duplicate", "no_end"}

// String is the reason's name as metric labels use it.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "reason(" + strconv.Itoa(int(r)) + ")"
}

// Event is one thing that follows from what the engine said. Pos is a place in the
// request's tokens, prompt first: the first think token (EnterThink), the first
// answer token (ExitThink), else how many tokens there are, which is where Inject
// goes.
type Event struct {
	Kind   EventKind
	Reason Reason
	ID     ID
	Pos    uint32  // of Refused and Offload: 0
	Used   uint32  // thinking tokens so far
	Blocks uint32  // Offload
	Inject []int32 // ForceBudget; shared, must not be changed
}

// Ready is what follows from the inputs since the last call.
type Ready struct {
	Events []Event // in order of cause
	Next   Time    // when Tick has work; Never if nothing is due
}
