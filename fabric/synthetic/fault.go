package synthetic

import (
	"sync"
	"time"

	"meridian/wire"
)

// Kind is a kind of fault.
type Kind uint8

const (
	// Delay means: the item's message arrives For later than it would have. Items of
	// one batch overtake each other by it.
	Delay Kind = iota + 1
	// Drop means: the message is lost. The item fails when the context ends, or with
	// CodeNoProgress after Options.Timeout; nothing is stored or moved.
	Drop
	// Duplicate means: the message arrives twice. The second has no effect that a
	// caller can see, except two calls of OnWrite.
	Duplicate
	// Corrupt means: one bit of the body is flipped on the way. Push and Pull notice
	// (CodeChecksum); one-sided accesses do not, they have no checksum.
	Corrupt
	// Reorder means: the items of the batch that are hit trade places, by the seed.
	Reorder
	// Late means: the item fails with CodeDeadline and Loose set, and its memory is
	// touched after that: For later, or, with For zero, at the last moment,
	// inside the Quiesce that makes it quiet. What arrives late is not published.
	Late
	// Disconnect means: this item and all later ones fail with CodeUnreachable, for
	// the time For, or, with For zero, until Heal.
	Disconnect
	// Full means: a push or a placement fails with CodeFull.
	Full
	kinds
)

var kindNames = [kinds]string{"", "delay", "drop", "duplicate", "corrupt", "reorder", "late", "disconnect", "full"}

// String is the kind's name in lower case.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// Op is a set of operations that a fault may hit.
type Op uint8

// The operations; a Fault with no Op hits all of them.
const (
	OpPush  Op = 1 << iota // Push and Place
	OpPull                 // Pull
	OpRead                 // Memory.Read
	OpWrite                // Memory.Write
)

// Fault is one rule. Conditions that are zero hold for every access.
type Fault struct {
	Kind   Kind
	Op     Op
	Key    wire.Key      // Push and Pull only
	Peer   string        // Read and Write only
	Skip   uint64        // let the first Skip matching accesses pass
	Times  uint64        // then hit at most Times; 0: no limit
	Chance float64       // hit with this probability, by the seed; 0: always
	For    time.Duration // Delay, Late, Disconnect
	Bit    uint64        // Corrupt: the bit of the body to flip, from 1; 0: by the seed
}

// access is what rules are matched against.
type access struct {
	op   Op
	key  wire.Key
	peer string
}

// verdict is what the rules that hit one access add up to.
type verdict struct {
	delay   time.Duration
	late    bool
	lateFor time.Duration
	drop    bool
	dup     bool
	reorder uint64 // sort key; 0: keeps its place
	down    bool
	downFor time.Duration
	full    bool
	corrupt bool
	bit     uint64 // Corrupt: taken modulo the bits there are
}

// faults holds the rules of one endpoint and how often each has matched and hit.
type faults struct {
	mu    sync.Mutex
	seed  uint64
	rules []rule
	hits  [kinds]uint64
}

type rule struct {
	Fault
	id           uint64 // place in the order of injection, over the endpoint's life
	matched, hit uint64
}

func (j *faults) add(list []Fault, from uint64) {
	for i, f := range list {
		j.rules = append(j.rules, rule{Fault: f, id: from + uint64(i)})
	}
}

// judge asks every rule about one access.
func (j *faults) judge(a access) (v verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.rules {
		r := &j.rules[i]
		if !r.matches(a) {
			continue
		}
		n := r.matched
		r.matched++
		draw := mix(j.seed ^ mix(r.id<<40|n+1))
		if n < r.Skip || (r.Times != 0 && r.hit >= r.Times) || (r.Chance != 0 && unit(draw) >= r.Chance) {
			continue
		}
		r.hit++
		j.hits[r.Kind]++
		v.apply(r.Fault, mix(draw))
	}
	return v
}

func (r *rule) matches(a access) bool {
	return r.Kind > 0 && r.Kind < kinds &&
		(r.Op == 0 || r.Op&a.op != 0) &&
		(r.Key == wire.Key{} || r.Key == a.key) &&
		(r.Peer == "" || r.Peer == a.peer) &&
		(r.Kind != Full || a.op == OpPush)
}

func (v *verdict) apply(f Fault, draw uint64) {
	switch f.Kind {
	case Delay:
		v.delay += f.For
	case Drop:
		v.drop = true
	case Duplicate:
		v.dup = true
	case Corrupt:
		v.corrupt, v.bit = true, draw
		if f.Bit > 0 {
			v.bit = f.Bit - 1
		}
	case Reorder:
		v.reorder = draw | 1
	case Late:
		v.late, v.lateFor = true, f.For
	case Disconnect:
		v.down, v.downFor = true, f.For
	case Full:
		v.full = true
	}
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps a draw to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
