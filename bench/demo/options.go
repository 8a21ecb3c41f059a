package demo

import (
	"fmt"
	"slices"
	"time"

	"meridian/bench/trace"
)

// Options of a run.
type Options struct {
	Size   string // small, medium, large
	Seed   uint64
	Fabric string // link, synthetic
	// Self is how to start this program again as one of the demo's processes.
	Self []string
	Dir  string // where sockets, configs and logs go; empty: a folder that is removed at the end
	// Progress gets lines, or on a terminal one line that changes.
	Progress Progress
}

// size is how much a run does.
type size struct {
	requests   int
	blockBytes uint32
	prefill    uint64 // bytes of the prefill daemon's arena
	decode     uint64
	window     int           // requests on their way at the same time
	replay     time.Duration // the trace's time is compressed into this
}

var sizes = map[string]size{
	"small":  {requests: 150, blockBytes: 32 << 10, prefill: 96 << 20, decode: 64 << 20, window: 4, replay: 3 * time.Second},
	"medium": {requests: 1200, blockBytes: 64 << 10, prefill: 768 << 20, decode: 512 << 20, window: 8, replay: 15 * time.Second},
	"large":  {requests: 12031, blockBytes: 16 << 10, prefill: 768 << 20, decode: 512 << 20, window: 8, replay: 30 * time.Second},
}

// Sizes are the names that Options.Size takes.
func Sizes() []string { return []string{"small", "medium", "large"} }

// Fabrics are the names that Options.Fabric takes.
func Fabrics() []string { return []string{"link", "synthetic"} }

// Check says what is wrong with the options, before anything is started.
func (o Options) Check() error {
	_, err := o.check()
	return err
}

func (o Options) check() (size, error) {
	sz, ok := sizes[o.Size]
	if !ok {
		return sz, fmt.Errorf("size %q: want one of %v", o.Size, Sizes())
	}
	if !slices.Contains(Fabrics(), o.Fabric) {
		return sz, fmt.Errorf("fabric %q: want one of %v", o.Fabric, Fabrics())
	}
	if len(o.Self) == 0 {
		return sz, fmt.Errorf("demo: no program to start as daemons and engines")
	}
	return sz, nil
}

// work is the part of the trace that a run replays.
func (s size) work() ([]trace.Request, error) { return trace.Conversation(s.requests) }
