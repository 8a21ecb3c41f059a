package synthetic

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// Label is the name of this fabric in all telemetry.
const Label = "nixl-synth"

// Via is the transport that is really used: a copy in memory.
const Via = "mem"

// Limits and defaults.
const (
	DefaultCapacity = 1 << 30          // bytes of payload in a world
	DefaultMaxItem  = 256 << 20        // bytes, header included
	DefaultMaxBatch = 4096             // items, as on the link
	DefaultTimeout  = 5 * time.Second  // of a dropped message, as on the link
	PlaceTTL        = 30 * time.Second // a placement that nobody seals is freed after it
	MaxLoose        = 4096             // late accesses outstanding; more fail without a late touch
)

// Options of a world and its first endpoint. Zero values take the defaults.
type Options struct {
	Name     string // of the endpoint, for Range.Peer; default "synth-0"
	Seed     uint64
	Faults   []Fault
	Capacity uint64 // bytes of payload
	MaxItem  int    // bytes, header included
	MaxBatch int
	Timeout  time.Duration // until a dropped message gives CodeNoProgress
	// Wait blocks for d or until ctx ends, and returns the context's error.
	// The default is a timer of package time.
	Wait func(ctx context.Context, d time.Duration) error
}

// Stats of one endpoint; Blocks, Bytes, Placed and Windows, those of placements, are
// the world's.
type Stats struct {
	Blocks, Bytes, Placed, Windows uint64
	Loose                          uint64 // late accesses still outstanding
	LateDone                       uint64 // late accesses that have touched their memory
	Reused                         uint64 // of those, the ones whose memory the caller had changed before
	Hits                           map[string]uint64
}

// Fabric is one endpoint. It is safe for concurrent use.
type Fabric struct {
	name string
	opt  Options
	w    *world
	inj  faults

	serves fabric.Target // guarded by the world's mutex; nil: no windows

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	calls     sync.WaitGroup
	down      bool
	downUntil time.Time // zero: until Heal
	injected  uint64    // rules ever added
	loose     map[*lateOp]struct{}
	lateDone  uint64
	reused    uint64
}

var (
	_ fabric.Fabric      = (*Fabric)(nil)
	_ fabric.Finder      = (*Fabric)(nil)
	_ fabric.Dropper     = (*Fabric)(nil)
	_ fabric.Lister      = (*Fabric)(nil)
	_ fabric.Prober      = (*Fabric)(nil)
	_ fabric.Transporter = (*Fabric)(nil)
	_ fabric.Memory      = (*Fabric)(nil)
	_ fabric.Placer      = (*Fabric)(nil)
)

// New makes a world with one endpoint.
func New(o Options) *Fabric {
	o.Name = cmp.Or(o.Name, "synth-0")
	o.Capacity = cmp.Or(o.Capacity, DefaultCapacity)
	o.MaxItem = cmp.Or(o.MaxItem, DefaultMaxItem)
	o.MaxBatch = cmp.Or(o.MaxBatch, DefaultMaxBatch)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Wait == nil {
		o.Wait = sleep
	}
	f, _ := newWorld(o.Capacity).join(o)
	return f
}

// Join adds an endpoint with its own seed and faults to the world of f. A name
// that is taken gives CodeExists.
func (f *Fabric) Join(name string, seed uint64, list ...Fault) (*Fabric, error) {
	o := f.opt
	o.Name, o.Seed, o.Faults = name, seed, list
	return f.w.join(o)
}

func (w *world) join(o Options) (*Fabric, error) {
	f := &Fabric{name: o.Name, opt: o, w: w, loose: make(map[*lateOp]struct{})}
	f.inj.seed = o.Seed
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.Inject(o.Faults...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Name == "" || o.Name == StorePeer || w.peers[o.Name] != nil {
		f.cancel()
		return nil, &fabric.Error{Code: wire.CodeExists, Fabric: Label, Text: "endpoint name " + o.Name}
	}
	w.peers[o.Name] = f
	return f, nil
}

// sleep is the default of Options.Wait.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Label is "nixl-synth".
func (f *Fabric) Label() string { return Label }

// Transports implements fabric.Transporter.
func (f *Fabric) Transports() []string { return []string{Via} }

// Name is the endpoint's name, the Peer of its ranges.
func (f *Fabric) Name() string { return f.name }

// Caps says what the endpoint can do.
func (f *Fabric) Caps() fabric.Caps {
	return fabric.Caps{Verified: true, OneSided: true, TwoPhase: true, MaxItem: f.opt.MaxItem, MaxBatch: f.opt.MaxBatch}
}

// Inject adds rules; they are asked in the order in which they came.
func (f *Fabric) Inject(list ...Fault) {
	f.mu.Lock()
	from := f.injected
	f.injected += uint64(len(list))
	f.mu.Unlock()
	f.inj.mu.Lock()
	defer f.inj.mu.Unlock()
	f.inj.add(list, from)
}

// Heal removes all rules and ends a disconnect.
func (f *Fabric) Heal() {
	f.inj.mu.Lock()
	f.inj.rules = nil
	f.inj.mu.Unlock()
	f.mu.Lock()
	f.down = false
	f.mu.Unlock()
}

// Stats counts.
func (f *Fabric) Stats() Stats {
	s := Stats{Hits: make(map[string]uint64)}
	f.inj.mu.Lock()
	for k, n := range f.inj.hits {
		if n > 0 {
			s.Hits[Kind(k).String()] = n
		}
	}
	f.inj.mu.Unlock()
	f.mu.Lock()
	s.Loose, s.LateDone, s.Reused = uint64(len(f.loose)), f.lateDone, f.reused
	f.mu.Unlock()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.sweep(time.Now())
	s.Blocks, s.Bytes, s.Placed = uint64(len(f.w.byHandle)), f.w.used, uint64(len(f.w.placed))
	s.Windows = uint64(f.w.windows.Stats().Windows)
	return s
}

// enter admits a call; the caller calls f.calls.Done at its end.
func (f *Fabric) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: Label, Text: "the fabric is closed"}
	}
	f.calls.Add(1)
	return nil
}

// reach is an error while the endpoint is disconnected.
func (f *Fabric) reach() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down && !f.downUntil.IsZero() && !time.Now().Before(f.downUntil) {
		f.down = false
	}
	if f.down {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: Label, Text: "disconnected by a fault"}
	}
	return nil
}

func (f *Fabric) disconnect(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.downUntil = true, time.Time{}
	if d > 0 {
		f.downUntil = time.Now().Add(d)
	}
}

// Close ends the endpoint: calls under way fail, late accesses happen at once, and
// nobody reaches its windows any more. The blocks stay for the other endpoints. It returns when the
// endpoint touches no memory any more; Close again is nil.
func (f *Fabric) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.calls.Wait()
	f.finishLoose()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.w.peers[f.name] == f {
		delete(f.w.peers, f.name)
	}
	return nil
}

// sortByArrival orders the items of a batch as their messages arrive: by delay,
// and where reordering hit, by the draw. idx holds 0..len(v)-1.
func sortByArrival(idx []int, v []verdict) {
	var seats []int // places of the items that trade them
	var who []int
	for i := range v {
		if v[i].reorder != 0 {
			seats = append(seats, i)
			who = append(who, i)
		}
	}
	slices.SortStableFunc(who, func(a, b int) int { return cmp.Compare(v[a].reorder, v[b].reorder) })
	for i, s := range seats {
		idx[s] = who[i]
	}
	slices.SortStableFunc(idx, func(a, b int) int { return cmp.Compare(v[a].delay, v[b].delay) })
}
