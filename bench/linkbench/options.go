package linkbench

import (
	"fmt"
	"runtime"
	"time"

	"meridian/bench/measure"
	"meridian/wire"
)

// Options of a run. Zero values take the defaults.
type Options struct {
	Sizes   []uint32      // body bytes; default 16 KiB, 64 KiB, 1 MiB, 4 MiB
	Mapped  []uint32      // block sizes of the mapped read, which must all cost the same; default 16 KiB and 64 MiB
	Urgent  uint32        // block size of the urgent pull under offload; default 64 KiB
	Batch   int           // blocks a pull; default 16, cut so that a batch has at most 16 MiB
	Streams int           // connections, and pulls at the same time; default min(4, cores)
	Round   time.Duration // of one measurement; default 500 ms
	Rounds  int           // of which the median is shown; default 5
	Set     uint64        // bytes that the holder sends from, in turn; default 256 MiB
	// Self is how to start this program again as the holder.
	Self []string
	// Congestion is the congestion control of all sockets; default cubic where
	// the kernel has it.
	Congestion string
	Progress   func(string)
}

// maxBatchBytes bounds a batch: larger ones only fall out of the caches, on both
// sides of the comparison.
const maxBatchBytes = 16 << 20

func (o *Options) fill() error {
	if len(o.Sizes) == 0 {
		o.Sizes = []uint32{16 << 10, 64 << 10, 1 << 20, 4 << 20}
	}
	if len(o.Mapped) == 0 {
		o.Mapped = []uint32{16 << 10, 64 << 20}
	}
	orDefault(&o.Urgent, 64<<10)
	orDefault(&o.Batch, 16)
	orDefault(&o.Streams, min(4, runtime.NumCPU()))
	orDefault(&o.Round, 500*time.Millisecond)
	orDefault(&o.Rounds, 5)
	orDefault(&o.Set, 256<<20)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Congestion == "" {
		o.Congestion = measure.Congestion()
	}
	if len(o.Self) == 0 {
		return fmt.Errorf("bench link: no program to start as the holder")
	}
	for _, s := range o.Sizes {
		if s == 0 || uint64(s) > o.Set {
			return fmt.Errorf("bench link: block size %d: want between 1 and %d bytes", s, o.Set)
		}
	}
	if o.Batch < 1 || o.Batch > 4096 || o.Streams < 1 || o.Streams > 16 {
		return fmt.Errorf("bench link: batch %d, streams %d: want 1..4096 and 1..16", o.Batch, o.Streams)
	}
	return nil
}

func orDefault[T int | uint32 | uint64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// batch is how many blocks of size go into one pull.
func (o *Options) batch(size uint32) int {
	return max(1, min(o.Batch, maxBatchBytes/int(size), int(o.Set/uint64(size))))
}

// manifest of the blocks of one size.
func manifest(size uint32) wire.Manifest {
	return wire.Manifest{Tenant: "bench", Model: fmt.Sprintf("bench-%d", size), BlockBytes: size}
}

// keys of the blocks of one size, as many as fit into the set.
func keys(size uint32, set uint64) []wire.Key {
	ns := manifest(size).Namespace()
	out := make([]wire.Key, max(1, int(set/uint64(size))))
	for i := range out {
		out[i] = wire.KeyOf(ns, []byte(fmt.Sprint(i)))
	}
	return out
}
