package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/wire"
)

// Options of a run. Zero values take the defaults.
type Options struct {
	Only   []string      // bridges, by name; default all
	Sizes  []uint32      // body bytes of a block; default 64 KiB, 256 KiB, 1 MiB, 4 MiB
	Bytes  uint64        // bodies of one measurement; default 128 MiB
	Rounds int           // of which the median is shown; default 5
	Round  time.Duration // of measuring the hash; default 200 ms
	// Require makes a part that is not installed an error; without it the report says
	// what is skipped and why.
	Require bool
	Python  string   // folder of the Python packages of Mooncake and NIXL
	Helper  string   // path of meridian-ffi; empty: beside this program, else in PATH
	UCX     string   // UCX_TLS of applications and daemons; default tcp,self
	Version string   // of this program, for the report
	Self    []string // how to start this program again so that it calls Play
	// Namespace tells whether the run has a network namespace of its own; it only goes
	// into the report.
	Namespace bool
	Dir       string // for sockets, configurations and logs; empty: one that is removed at the end
	Progress  func(string)
}

// The bridges, by name.
const (
	LinkToNIXL     = "link-nixl"
	MooncakeToNIXL = "mooncake-nixl"
	NIXLToLink     = "nixl-link"
	LinkToLink     = "link-link"        // each block goes on while it comes
	LinkStored     = "link-link-stored" // each block is stored first
)

// Names are all bridges.
func Names() []string {
	return []string{LinkToNIXL, MooncakeToNIXL, NIXLToLink, LinkToLink, LinkStored}
}

// Quick makes a run of some seconds: it shows that everything runs, and its figures say
// nothing.
func (o *Options) Quick() {
	o.Bytes, o.Rounds, o.Round = 8<<20, 1, 20*time.Millisecond
}

// maxBlocks bounds the blocks of a measurement: their keys go to the applications in one
// line.
const maxBlocks = 1 << 16

// Check says what is wrong with the options, before anything is started, and fills in the
// defaults.
func (o *Options) Check() error {
	if len(o.Only) == 0 {
		o.Only = Names()
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []uint32{64 << 10, 256 << 10, 1 << 20, 4 << 20}
	}
	orDefault(&o.Bytes, 128<<20)
	orDefault(&o.Rounds, 5)
	orDefault(&o.Round, 200*time.Millisecond)
	orDefault(&o.UCX, "tcp,self")
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("%q is no bridge; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, s := range o.Sizes {
		if s == 0 || uint64(s) > o.Bytes || o.Bytes > uint64(s)*maxBlocks {
			return fmt.Errorf("block size %d: want one of which a measurement of %d bytes has between 1 and %d", s, o.Bytes, maxBlocks)
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

func orDefault[T int | uint64 | time.Duration | string](v *T, def T) {
	var none T
	if *v == none {
		*v = def
	}
}

const tenant = "bench"

// What goes in one call: what the gateway sends in one (agent/transfer).
const (
	batchItems = 64
	batchBytes = 16 << 20
)

// set is the blocks of one measurement: all of one size.
type set struct {
	size     uint32
	count    int
	stride   int // bytes from one payload to the next
	ns       wire.Namespace
	payloads []byte // one after the other
	path     string // the same in a file, for the applications
}

func manifest(size uint32) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: fmt.Sprintf("bench-%d", size), BlockBytes: size}
}

// keys are those of one measurement: no two have one.
func (s *set) keys(name string) []wire.Key {
	out := make([]wire.Key, s.count)
	for i := range out {
		out[i] = wire.KeyOf(s.ns, fmt.Appendf(nil, "%s-%d", name, i))
	}
	return out
}

// payload is header and body of block i.
func (s *set) payload(i int) []byte {
	n := wire.HeaderLen + int(s.size)
	return s.payloads[i*s.stride:][:n:n]
}

// batch is how many blocks go in one call.
func (s *set) batch() int { return max(1, min(batchItems, batchBytes/int(s.size))) }

// bytes are those of all bodies.
func (s *set) bytes() uint64 { return uint64(s.count) * uint64(s.size) }
