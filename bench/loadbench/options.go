package loadbench

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"meridian/bench/measure"
	"meridian/wire"
	"meridian/wire/link"
)

// Options of a run. Zero values take the defaults.
type Options struct {
	Sizes   []uint32      // body bytes of a block; default 64 KiB, 1 MiB
	Bytes   uint64        // of one load; default 1 GiB
	Holders []int         // numbers of holders; default 1 and 2
	Ahead   *uint64       // arena.ahead_bytes of the daemons; nil: their default
	Rounds  int           // of which the median is shown; default 3
	Round   time.Duration // of measuring sockets, hash and copy; default 500 ms
	// Self is how to start this program again as a daemon or a plain server.
	Self       []string
	Congestion string // of all sockets; default cubic where the kernel has it
	Dir        string // for sockets, configurations and logs; empty: one that is removed at the end
	Progress   func(string)
}

// Quick makes a run of a few seconds: it shows that everything runs, and its
// figures say nothing.
func (o *Options) Quick() {
	o.Bytes, o.Rounds, o.Round = 16<<20, 1, 20*time.Millisecond
	ahead := o.Bytes
	o.Ahead = &ahead
}

// maxHolders bounds the daemons of a run.
const maxHolders = 8

// Check says what is wrong with the options, before anything is started, and
// fills in the defaults.
func (o *Options) Check() error {
	if len(o.Sizes) == 0 {
		o.Sizes = []uint32{64 << 10, 1 << 20}
	}
	if len(o.Holders) == 0 {
		o.Holders = []int{1, 2}
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 30
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Round == 0 {
		o.Round = 500 * time.Millisecond
	}
	if o.Congestion == "" {
		o.Congestion = measure.Congestion()
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, s := range o.Sizes {
		if s == 0 || uint64(s) > o.Bytes || o.Bytes > uint64(s)*maxBlocks {
			return fmt.Errorf("block size %d: want one of which a load of %d bytes has between 1 and %d", s, o.Bytes, maxBlocks)
		}
	}
	for _, n := range o.Holders {
		if n < 1 || n > maxHolders {
			return fmt.Errorf("%d holders: want between 1 and %d", n, maxHolders)
		}
	}
	if o.Rounds < 1 {
		return fmt.Errorf("%d rounds: want at least 1", o.Rounds)
	}
	if len(o.Self) == 0 {
		return errors.New("no program to start as a daemon")
	}
	return nil
}

// maxBlocks bounds the blocks of a load: as many as requests in flight may ask for.
const maxBlocks = link.MaxItems * 64

// plainSet is the bytes that the plain server sends from in turn: more than
// caches hold, which is all that matters.
func (o *Options) plainSet() uint64 { return min(o.Bytes, 256<<20) }

// capacity of each arena: the blocks, what their size classes add, and a staging
// ring with the share that it takes.
func (o *Options) capacity() uint64 {
	return o.Bytes + o.Bytes/4 + min(max(o.Bytes/4, 64<<20), 256<<20)
}

// streams is how many plain connections there are: the lanes that a daemon opens
// by itself.
func (o *Options) streams() int { return min(4, runtime.NumCPU()) }

const tenant = "bench"

// manifest of the blocks of one size.
func manifest(size uint32) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: fmt.Sprintf("bench-%d", size), BlockBytes: size}
}

// keys of one load. Another generation's keys are other keys.
func (o *Options) keys(size uint32, generation int) []wire.Key {
	ns := manifest(size).Namespace()
	out := make([]wire.Key, o.Bytes/uint64(size))
	for i := range out {
		out[i] = wire.KeyOf(ns, fmt.Appendf(nil, "%d-%d", generation, i))
	}
	return out
}
