package peers

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options of a run. Zero values take the defaults.
type Options struct {
	Only  []string // systems or groups of them; default all
	Sizes []uint64 // default 4 KiB to 64 MiB
	Ops   []Op     // default both
	// Streams has every size measured with batches of 16 whole blocks and each of these
	// numbers of streams, cold; empty: a choice of cells.
	Streams []int
	Rounds  int           // of which the median is shown; default 5
	Round   time.Duration // of one measurement; default 250 ms
	Set     uint64        // working set of cold cells; default 5/4 of the last cache, within 256 MiB..1 GiB
	Full    bool          // the whole matrix
	Quick   bool          // a smoke run: two sizes, one short round, a set of 8 MiB

	// Require makes a peer that is not installed an error; without it the report
	// says which is skipped and why.
	Require bool
	Python  string   // folder of the Python packages of Mooncake and NIXL
	Helper  string   // meridian-ffi; "": beside this program
	Version string   // of this program, for the report
	Self    []string // how to start this program again so that it calls Play
	// Namespace tells whether the run has a network namespace of its own; it only
	// goes into the report.
	Namespace bool
	Progress  func(string)
}

const (
	minCold = 256 << 20
	maxCold = 1 << 30
)

// Check says what of the options Run would refuse.
func (o Options) Check() error { return o.fill() }

func (o *Options) fill() error {
	if o.Quick {
		orDefault(&o.Rounds, 1)
		orDefault(&o.Round, 20*time.Millisecond)
		orDefault(&o.Set, hotSet)
		if len(o.Sizes) == 0 {
			o.Sizes = quickSizes
		}
	}
	if len(o.Sizes) == 0 {
		o.Sizes = defaultSizes
	}
	orDefault(&o.Rounds, 5)
	orDefault(&o.Round, 250*time.Millisecond)
	orDefault(&o.Set, min(max(minCold, lastCache()*5/4), maxCold))
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if len(o.Self) == 0 {
		return fmt.Errorf("bench peers: no program to start as the other processes")
	}
	if o.Quick && o.Full {
		return fmt.Errorf("bench peers: quick and full exclude each other")
	}
	if o.Rounds < 1 || o.Rounds > 1000 || o.Round < time.Millisecond || o.Round > time.Minute {
		return fmt.Errorf("bench peers: %d rounds of %v: want 1..1000 of 1ms..1m", o.Rounds, o.Round)
	}
	for _, s := range o.Sizes {
		if s < 4<<10 || s > maxBlock || s&(s-1) != 0 {
			return fmt.Errorf("bench peers: block size %d: want a power of two from 4 KiB to 64 MiB", s)
		}
	}
	if o.Set < hotSet || o.Set > 8<<30 {
		return fmt.Errorf("bench peers: working set of %d bytes: want 8 MiB to 8 GiB", o.Set)
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(systems, func(s system) bool { return s.is(name) }) {
			return fmt.Errorf("bench peers: %q is no system; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

func orDefault[T int | uint64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// lastCache is the size of the last level of cache of the first processor, 0
// where the kernel does not tell.
func lastCache() uint64 {
	var last uint64
	for i := range 8 {
		b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu0/cache/index%d/size", i))
		if err != nil {
			continue
		}
		if k, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(string(b)), "K"), 10, 64); err == nil {
			last = max(last, k<<10)
		}
	}
	return last
}
