package halfopen

import (
	"fmt"
	"net"
	"slices"
	"sync"
)

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
		text += ", and this one had sent nothing"
	}
	return text
}

// Enter takes a place for a connection from a source. Where the place must be
// taken from another connection, that one's evict is called before Enter
// returns, in the same goroutine; it must not block, and must not call the table.
// Who gets a place owes Leave.
func (t *Table) Enter(source string, evict func(*Refusal)) (*Conn, *Refusal) {
	t.mu.Lock()
	victim, why := t.makeRoom(source)
	if why != nil && victim == nil {
		t.mu.Unlock()
		return nil, why
	}
	if victim != nil {
		t.remove(victim)
	}
	c := &Conn{table: t, source: source, evict: evict}
	t.all = append(t.all, c)
	t.mu.Unlock()
	if victim != nil {
		victim.evict(why)
	}
	return c, nil
}

// makeRoom finds the connection that must go for a newcomer, if one must. A
// refusal without a connection: there is none that may go.
func (t *Table) makeRoom(source string) (*Conn, *Refusal) {
	count := map[string]int{}
	for _, c := range t.all {
		count[c.source]++
	}
	l := t.limits
	switch {
	case count[source] >= l.PerSource:
		victim := t.oldestSilent(func(c *Conn) bool { return c.source == source })
		return victim, &Refusal{Key: l.PerSourceKey, Limit: l.PerSource, Source: source, Silent: victim != nil}
	case len(t.all) >= l.Total:
		most := 0
		for _, c := range t.all {
			if !c.spoke {
				most = max(most, count[c.source])
			}
		}
		victim := t.oldestSilent(func(c *Conn) bool { return count[c.source] == most })
		return victim, &Refusal{Key: l.TotalKey, Limit: l.Total, Silent: victim != nil}
	}
	return nil, nil
}

func (t *Table) oldestSilent(of func(*Conn) bool) *Conn {
	if i := slices.IndexFunc(t.all, func(c *Conn) bool { return !c.spoke && of(c) }); i >= 0 {
		return t.all[i]
	}
	return nil
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

// Spoke says that the connection has sent a valid message: it makes room for
// nobody from now on.
func (c *Conn) Spoke() {
	c.table.mu.Lock()
	c.spoke = true
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
