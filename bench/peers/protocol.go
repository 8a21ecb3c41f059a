package peers

import "encoding/json"

// The lines between the harness and a process of a pair. Each order is answered
// by one answer, in turn; the first answer comes unasked, once the process is
// ready, and tells versions.
//
//	target     prepare  make ready for a cell; answers what the initiator needs to find it
//	           wipe     the cell's bytes become zero (systems that name addresses)
//	           verify   compare what was written
//	initiator  prepare  make ready for a cell, with the target's answer
//	           check    one batch a stream; a read compares every byte, a write
//	                    answers what the target should verify
//	           run      batches for MS milliseconds
type command struct {
	Do string `json:"do"`
	Cell
	Mode  string          `json:"mode,omitempty"` // which of the pair's systems
	Peer  json.RawMessage `json:"peer,omitempty"` // of the target's prepare
	MS    int64           `json:"ms,omitempty"`
	Wrote []written       `json:"wrote,omitempty"`
}

// answer has what its order asks for; any may have Error instead.
type answer struct {
	Error   string          `json:"error,omitempty"`
	Version string          `json:"version,omitempty"`
	Peer    json.RawMessage `json:"peer,omitempty"`
	Bytes   uint64          `json:"bytes,omitempty"` // moved, or compared
	Seconds float64         `json:"seconds,omitempty"`
	Took    []int64         `json:"took,omitempty"` // nanoseconds of each batch
	Wrote   []written       `json:"wrote,omitempty"`
	Helper  int             `json:"helper,omitempty"` // a process of the initiator's that does its work
	Via     string          `json:"via,omitempty"`    // the transport in use, where a check can tell
}

// written is one block that a check wrote: its number at the target, and the
// offset in the initiator's content that it was written from.
type written struct {
	Block uint64 `json:"block"`
	From  uint64 `json:"from"`
}

const (
	doPrepare = "prepare"
	doWipe    = "wipe"
	doVerify  = "verify"
	doCheck   = "check"
	doRun     = "run"
)
