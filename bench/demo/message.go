package demo

import "time"

// Engines get their work and give their results as JSON lines: start first,
// then one order a request; results in any order, and a summary at the end.

// start says to an engine what it is.
type start struct {
	Socket     string `json:"socket"` // of its daemon
	Judge      string `json:"judge"`
	At         string `json:"at"` // its daemon's name
	BlockBytes uint32 `json:"block_bytes"`
	Requests   int    `json:"requests"`
	Seed       uint64 `json:"seed"`
	Window     int    `json:"window"`
}

// order asks for request N; Release ends the prefill side's lease on it.
type order struct {
	N       int  `json:"n"`
	Release bool `json:"release,omitempty"`
}

// result is one request done, or the summary of all.
type result struct {
	N       int      `json:"n"`
	Error   string   `json:"error,omitempty"`
	Summary *summary `json:"summary,omitempty"`
}

// summary is what an engine counted.
type summary struct {
	Requests    int     `json:"requests"`
	Reasoned    int     `json:"reasoned"`
	Exits       int     `json:"exits"` // ExitThink events that the daemon sent
	Lookups     int     `json:"lookups"`
	Hits        int     `json:"hits"` // blocks in the unbroken run from the front that were there already
	Stored      int     `json:"stored"`
	StoredBytes uint64  `json:"stored_bytes"`
	Read        int     `json:"read"` // blocks read mapped, each byte checked
	ReadBytes   uint64  `json:"read_bytes"`
	ReadAgain   int     `json:"read_again"` // think blocks that a resumed request asked for
	WrongBytes  uint64  `json:"wrong_bytes"`
	Local       []int64 `json:"local_ns"` // ACQUIREs with everything in the arena
	PerBlock    []int   `json:"local_n"`  // blocks of each of those
}

// requestTimeout bounds each call of an engine.
const requestTimeout = 20 * time.Second
