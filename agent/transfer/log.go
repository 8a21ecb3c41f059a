package transfer

import (
	"sync"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// recentTransfers is how many finished transfers `mrdn transfer list` can
// show; older ones live on in the counters only.
const recentTransfers = 8192

// Op is what a transfer was for.
type Op string

// The operations. Pull and push are what a peer asks of this daemon as well.
const (
	OpPull    Op = "pull"        // somebody asked for blocks
	OpPush    Op = "push"        // a peer hands blocks over
	OpOffload Op = "offload"     // cold blocks leave
	OpStore   Op = "store"       // a write-through copy, before the engine's PUT is acknowledged
	OpForward Op = "forward"     // a block that a peer brought goes on
	OpThrough Op = "cut-through" // the same while it comes
	OpProbe   Op = "probe"       // a self-test moves a block of its own
)

// Record is one call on one fabric.
type Record struct {
	ID            uint64
	Fabric        string // its registry name without the peer
	Peer          string // of a fabric made of peers, where the call was for one; else the registry name
	In            bool   // body bytes came here
	Op            Op
	Class         fabric.Class
	Via           string // the transport really used
	Bytes         uint64 // body bytes of the blocks that were moved
	Items, Failed int
	Exists        int // of Items: were there already
	Began         time.Time
	Running       bool
	Took          time.Duration // 0 while it runs
	Code          wire.Code     // of the last block that failed
}

// family is a registry name without its peer.
func family(name string) string {
	f, _ := fabric.SplitName(name)
	return f
}

// peerOf is the peer of a registry name; of a fabric without peers, its name.
func peerOf(name string) string {
	if _, p := fabric.SplitName(name); p != "" {
		return p
	}
	return name
}

// Log remembers the running transfers and the last finished ones. The zero Log is
// ready to use.
type Log struct {
	mu      sync.Mutex
	next    uint64
	running map[uint64]*Record
	recent  []Record // ring
	head    int      // where the next finished one goes
}

// Begin registers a running transfer and returns its id; every Begin is followed
// by one End.
func (l *Log) Begin(r Record) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = map[uint64]*Record{}
	}
	l.next++
	r.ID, r.Running = l.next, true
	l.running[r.ID] = &r
	return r.ID
}

// End moves a transfer from the running ones to the recent ones, as r says it
// ended. One that is not running is left alone.
func (l *Log) End(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[r.ID] == nil {
		return
	}
	delete(l.running, r.ID)
	r.Running = false
	if len(l.recent) < recentTransfers {
		l.recent = append(l.recent, r)
		return
	}
	l.recent[l.head] = r
	l.head = (l.head + 1) % recentTransfers
}

// List returns running transfers, then finished ones, newest first.
func (l *Log) List(limit int, peer string, runningOnly bool) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Record
	add := func(r Record) bool {
		if peer == "" || r.Peer == peer {
			out = append(out, r)
		}
		return len(out) < limit
	}
	for _, r := range l.running {
		if !add(*r) {
			return out
		}
	}
	if runningOnly {
		return out
	}
	n := len(l.recent)
	for i := range n {
		if !add(l.recent[(l.head+2*n-1-i)%n]) {
			break
		}
	}
	return out
}

// InFlight counts the running transfers of a direction.
func (l *Log) InFlight(in bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.running {
		if r.In == in {
			n++
		}
	}
	return n
}
