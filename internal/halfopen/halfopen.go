package halfopen

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Patience is how long after its last message a connection keeps its place when
// another one needs it: many times what the answer to a message takes.
const Patience = 500 * time.Millisecond

// Limits bounds the half-open connections of one listener. The keys are the
// configuration's names of the limits: a refusal shows them.
type Limits struct {
	Total        int
	TotalKey     string
	PerSource    int
	PerSourceKey string
}

// Table is the half-open connections of one listener. It may be used by several
// goroutines.
type Table struct {
	limits Limits

	mu  sync.Mutex
	all []*Conn // in the order of their arrival
}

// New makes an empty table.
func New(l Limits) *Table { return &Table{limits: l} }

// Conn is the place of one connection.
type Conn struct {
	table  *Table
	source string
	evict  func(*Refusal)
	spoke  bool
	last   time.Duration // when it came, or sent its last message
}

// Refusal says which limit left a connection without a place.
type Refusal struct {
	Key    string // of the limit, in the configuration
	Limit  int
	Source string // empty: the limit is that of all sources together
	Silent bool   // the connection had a place and lost it, because it was silent
}

// Error names the limit, its key and the source.
func (r *Refusal) Error() string {
	who := "half-open connections"
	if r.Source != "" {
		who += " from " + r.Source
	}
	text := fmt.Sprintf("%s: the limit %s is %d", who, r.Key, r.Limit)
	if r.Silent {
		text += ", and this one was silent for longest"
	}
	return text
}

// Enter takes a place for a connection from a source. Now is any monotonic clock.
// Where the place must be taken from another connection, that one's evict is
// called before Enter returns, in the same goroutine; it must not block, and must
// not call the table. Who gets a place owes Leave.
func (t *Table) Enter(now time.Duration, source string, evict func(*Refusal)) (*Conn, *Refusal) {
	t.mu.Lock()
	victim, why := t.makeRoom(now, source)
	if why != nil && victim == nil {
		t.mu.Unlock()
		return nil, why
	}
	if victim != nil {
		t.remove(victim)
	}
	c := &Conn{table: t, source: source, evict: evict, last: now}
	t.all = append(t.all, c)
	t.mu.Unlock()
	if victim != nil {
		victim.evict(why)
	}
	return c, nil
}

// makeRoom finds the connection that must go for a newcomer, if one must. A
// refusal without a connection: there is none that may go.
func (t *Table) makeRoom(now time.Duration, source string) (*Conn, *Refusal) {
	count := map[string]int{}
	for _, c := range t.all {
		count[c.source]++
	}
	l := t.limits
	switch {
	case count[source] >= l.PerSource:
		victim := t.silent(now, func(c *Conn) bool { return c.source == source })
		return victim, &Refusal{Key: l.PerSourceKey, Limit: l.PerSource, Source: source, Silent: victim != nil}
	case len(t.all) >= l.Total:
		most := 0
		for _, c := range t.all {
			if c.mayGo(now) {
				most = max(most, count[c.source])
			}
		}
		victim := t.silent(now, func(c *Conn) bool { return count[c.source] == most })
		return victim, &Refusal{Key: l.TotalKey, Limit: l.Total, Silent: victim != nil}
	}
	return nil, nil
}

// mayGo says whether the connection makes room for another one.
func (c *Conn) mayGo(now time.Duration) bool { return !c.spoke || now-c.last >= Patience }

// silent is the connection that goes first among some: the oldest that never sent
// a message, else the one whose message is longest ago.
func (t *Table) silent(now time.Duration, among func(*Conn) bool) *Conn {
	var first *Conn
	for _, c := range t.all {
		switch {
		case !c.mayGo(now) || !among(c):
		case first == nil, first.spoke && !c.spoke, first.spoke == c.spoke && c.last < first.last:
			first = c
		}
	}
	return first
}

func (t *Table) remove(c *Conn) {
	if i := slices.Index(t.all, c); i >= 0 {
		t.all = slices.Delete(t.all, i, i+1)
	}
}

// Len is how many places are taken.
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

// Leave gives the place back. It may be called again, and of a connection that
// lost its place.
func (c *Conn) Leave() {
	c.table.mu.Lock()
	c.table.remove(c)
	c.table.mu.Unlock()
}

// Source is the address by which a connection's sender is counted: an IPv4
// address, or the 64-bit network of an IPv6 address, since one host has all of
// it. Anything else is counted together, by the kind of its network.
func Source(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.Network()
	}
	if v4 := tcp.IP.To4(); v4 != nil {
		return v4.String()
	}
	if tcp.IP.IsLoopback() {
		return tcp.IP.String()
	}
	network := net.IPNet{IP: tcp.IP.Mask(net.CIDRMask(64, 128)), Mask: net.CIDRMask(64, 128)}
	return network.String()
}
