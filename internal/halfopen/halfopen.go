package halfopen

import (
	"slices"
	"sync"
	"time"
)

// Patience is how long after its last message a connection keeps its place when
// another one needs it: many times what the answer to a message takes.
const Patience = 500 * time.Millisecond

// Table is the half-open connections of one listener. The zero Table is empty. It
// may be used by several goroutines.
type Table struct {
	mu  sync.Mutex
	all []*Conn // in the order of their arrival
}

// Conn is one connection.
type Conn struct {
	table  *Table
	source string
	evict  func(why error)
	spoke  bool
	busy   bool
	last   time.Duration // when it came, or sent its last message
}

// Enter adds a connection from a source. Now is any monotonic clock. The caller
// owes Leave. Evict is called, once at most, when the connection must make room;
// it must not block, and must not call the table.
func (t *Table) Enter(now time.Duration, source string, evict func(why error)) *Conn {
	c := &Conn{table: t, source: source, evict: evict, last: now}
	t.mu.Lock()
	t.all = append(t.all, c)
	t.mu.Unlock()
	return c
}

// MakeRoom takes out the connection of a source that goes first, or with "" that
// of the source which has most, and tells it why before it returns. It reports
// whether there was one.
func (t *Table) MakeRoom(now time.Duration, source string, why error) bool {
	t.mu.Lock()
	c := t.first(now, source)
	if c != nil {
		t.remove(c)
	}
	t.mu.Unlock()
	if c == nil {
		return false
	}
	c.evict(why)
	return true
}

// first is the connection that goes first: the oldest that never sent a message,
// else the one whose message is longest ago.
func (t *Table) first(now time.Duration, source string) *Conn {
	count, most := map[string]int{}, 0
	for _, c := range t.all {
		count[c.source]++
	}
	for _, c := range t.all {
		if c.mayGo(now) {
			most = max(most, count[c.source])
		}
	}
	var first *Conn
	for _, c := range t.all {
		switch {
		case !c.mayGo(now), source != "" && c.source != source, source == "" && count[c.source] < most:
		case first == nil, first.spoke && !c.spoke, first.spoke == c.spoke && c.last < first.last:
			first = c
		}
	}
	return first
}

func (c *Conn) mayGo(now time.Duration) bool {
	return !c.busy && (!c.spoke || now-c.last >= Patience)
}

func (t *Table) remove(c *Conn) {
	if i := slices.Index(t.all, c); i >= 0 {
		t.all = slices.Delete(t.all, i, i+1)
	}
}

// Len is how many connections are half-open.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// Spoke says that the connection has sent a valid message: for as long as
// Patience it makes room for nobody.
func (c *Conn) Spoke(now time.Duration) {
	c.table.mu.Lock()
	c.spoke, c.last = true, now
	c.table.mu.Unlock()
}

// Busy says that the connection is at work: it makes room for nobody until Rest.
func (c *Conn) Busy() {
	c.table.mu.Lock()
	c.busy = true
	c.table.mu.Unlock()
}

// Wait says that the connection, which was at work, waits for the rest of a message: for as
// long as Patience it makes room for nobody, as after Spoke.
func (c *Conn) Wait(now time.Duration) {
	c.table.mu.Lock()
	c.busy, c.spoke, c.last = false, true, now
	c.table.mu.Unlock()
}

// Rest says that the work of the connection is done: from now on it may make room, after
// those that never sent a message.
func (c *Conn) Rest(now time.Duration) {
	c.table.mu.Lock()
	c.busy, c.spoke, c.last = false, true, now-Patience
	c.table.mu.Unlock()
}

// Yield says that nothing more is expected of the connection, which is about to be
// closed: it counts as silent, whatever it has sent.
func (c *Conn) Yield() {
	c.table.mu.Lock()
	c.spoke = false
	c.table.mu.Unlock()
}

// Leave takes the connection out. It may be called again, and after evict.
func (c *Conn) Leave() {
	c.table.mu.Lock()
	c.table.remove(c)
	c.table.mu.Unlock()
}
