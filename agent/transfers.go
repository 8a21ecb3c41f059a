package agent

import (
	"sync"
	"time"

	"meridian/wire"
)

// recentTransfers is how many finished transfers `mrdn transfer list` can
// show; older ones live on in the counters only.
const recentTransfers = 8192

// Direction of a transfer, seen from this daemon.
type direction uint8

const (
	dirIn direction = iota + 1
	dirOut
)

func (d direction) String() string {
	if d == dirIn {
		return "in"
	}
	return "out"
}

// transfer is one batch on one fabric.
type transfer struct {
	id            uint64
	fabric, peer  string
	dir           direction
	op            string // pull, push
	class         uint8
	via           string
	bytes         uint64
	items, failed int
	began         time.Time
	running       bool
	took          time.Duration // 0 while it runs
	code          wire.Code
}

// transferLog remembers the running transfers and the last finished ones.
type transferLog struct {
	mu      sync.Mutex
	next    uint64
	running map[uint64]*transfer
	recent  []transfer // ring
	head    int        // where the next finished one goes
}

func newTransferLog() *transferLog {
	return &transferLog{running: map[uint64]*transfer{}, recent: make([]transfer, 0, recentTransfers)}
}

// begin registers a running transfer; every begin is followed by one end.
func (l *transferLog) begin(t transfer) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	t.id, t.running = l.next, true
	l.running[t.id] = &t
	return t.id
}

// end moves a transfer from running to recent, with what became of it.
func (l *transferLog) end(id uint64, via string, bytes uint64, failed int, code wire.Code, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.running[id]
	if t == nil {
		return
	}
	delete(l.running, id)
	t.via, t.bytes, t.failed, t.code, t.took, t.running = via, bytes, failed, code, took, false
	if len(l.recent) < recentTransfers {
		l.recent = append(l.recent, *t)
		return
	}
	l.recent[l.head] = *t
	l.head = (l.head + 1) % recentTransfers
}

// list returns running transfers, then finished ones, newest first.
func (l *transferLog) list(limit int, peer string, runningOnly bool) []transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []transfer
	add := func(t transfer) bool {
		if peer == "" || t.peer == peer {
			out = append(out, t)
		}
		return len(out) < limit
	}
	for _, t := range l.running {
		if !add(*t) {
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

// inFlight counts the running transfers of a direction.
func (l *transferLog) inFlight(d direction) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.running {
		if t.dir == d {
			n++
		}
	}
	return n
}
