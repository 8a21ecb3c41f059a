package helper

import (
	"regexp"
	"slices"
	"strings"
)

// None is the transport of a direction for which UCX has none, Emulated what follows the
// name of one that UCX makes up in software: the peer's processor takes part.
const (
	None     = "none"
	Emulated = "-emulated"
)

// direction is that of one-sided transfers.
type direction int

const (
	read direction = iota
	write
	directions
)

// uses are the transports of a peer's two directions; "" is one that is not known.
type uses [directions]string

// transports knows which transports UCX has chosen. With UCX_PROTO_INFO=y UCX prints a
// table when it first needs a way: once for each kind of way ("intra-node cfg#1"), which
// several peers may share. It does so within the call that needs it, or later in its own
// thread; each line has the number of its thread.
//
// What is said of a peer is what a table said that was printed within a call for it, or
// else what all tables agree on. Where neither tells, nothing is said.
type transports struct {
	threads map[string]*table            // those that are being printed
	chosen  map[string]*[directions]list // by the kind of way
	ours    string                       // the thread that calls the library
	calling bool                         // it calls the library now
	told    []string                     // kinds whose tables were printed within this call
	peers   map[string]string            // the kind of way of those for which one was printed
	said    string                       // the last error that UCX told
}

// list is names of transports, ascending. nil: no table was printed; empty: UCX has none.
type list []string

// table is one that is being printed.
type table struct {
	kind string
	dir  direction
	ours bool // of a direction that is looked at
	bars int
	via  list
}

func newTransports() *transports {
	return &transports{threads: map[string]*table{}, chosen: map[string]*[directions]list{}, peers: map[string]string{}}
}

var (
	logLine  = regexp.MustCompile(`^\[\d+\.\d+\] \[[^\]]*:(\w+)\]\s+(.*)$`)
	wayKind  = regexp.MustCompile(`(\S+ cfg#\d+)\s*$`)
	wayName  = regexp.MustCompile(`(?:^|\s)([a-z][a-z0-9_]*)/`)
	ucxError = regexp.MustCompile(`UCX\s+(?:ERROR|FATAL)\s+(.*)$`)
)

// line takes a line of UCX's log; false: it is none of a table.
func (t *transports) line(text string) bool {
	m := logLine.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	thread, body := m[1], m[2]
	tb := t.threads[thread]
	bar, row := strings.HasPrefix(body, "+-"), strings.HasPrefix(body, "|")
	if !bar && !row {
		t.finish(thread)
		if e := ucxError.FindStringSubmatch(body); e != nil {
			t.said = e[1]
		}
		return false
	}
	if tb == nil {
		tb = &table{via: list{}}
		t.threads[thread] = tb
		if bar {
			tb.bars = 1
			return true
		}
		tb.bars = 1
	}
	if bar {
		if tb.bars++; tb.bars == 4 {
			t.finish(thread)
		}
		return true
	}
	tb.row(body)
	return true
}

// row takes a row: the kind of way, the operation, the titles of the columns, and then a
// range of sizes with its protocol and its transports.
func (tb *table) row(body string) {
	cells := strings.Split(strings.Trim(body, "|"), "|")
	first := strings.TrimSpace(cells[0])
	switch {
	case tb.bars == 1 && wayKind.MatchString(first):
		tb.kind = wayKind.FindString(first)
	case tb.bars == 1 && strings.HasPrefix(first, "remote memory read"):
		tb.dir, tb.ours = read, true
	case tb.bars == 1 && strings.HasPrefix(first, "remote memory write"):
		tb.dir, tb.ours = write, true
	case tb.bars == 3 && len(cells) == 3:
		for _, name := range wayName.FindAllStringSubmatch(strings.TrimSpace(cells[2]), -1) {
			via := name[1]
			if strings.Contains(cells[1], "software emulation") {
				via += Emulated
			}
			tb.via = add(tb.via, via)
		}
	}
}

func add(l list, via string) list {
	if at, found := slices.BinarySearch(l, via); !found {
		return slices.Insert(l, at, via)
	}
	return l
}

// finish takes what a thread's table says, as far as it has come.
func (t *transports) finish(thread string) {
	tb := t.threads[thread]
	delete(t.threads, thread)
	if tb == nil || !tb.ours || tb.kind == "" || tb.bars < 3 {
		return
	}
	if strings.HasPrefix(tb.kind, "self ") { // the way to this process itself
		if t.ours == "" {
			t.ours = thread // no other thread is there when it is made
		}
		return
	}
	c := t.chosen[tb.kind]
	if c == nil {
		c = &[directions]list{}
		t.chosen[tb.kind] = c
	}
	if c[tb.dir] == nil {
		c[tb.dir] = list{}
	}
	for _, via := range tb.via {
		c[tb.dir] = add(c[tb.dir], via)
	}
	if t.calling && thread == t.ours {
		t.told = append(t.told, tb.kind)
	}
}

// begin is before a call of the library for a peer, end after it.
func (t *transports) begin() { t.calling, t.told = true, nil }

func (t *transports) end(peer string) {
	t.finish(t.ours) // a table without a row has no end
	t.calling = false
	if len(t.told) > 0 {
		t.peers[peer] = t.told[len(t.told)-1]
	}
}

// forget is for a peer that is not known any more.
func (t *transports) forget(peer string) { delete(t.peers, peer) }

// of is what is known of a peer.
func (t *transports) of(peer string) (u uses) {
	for dir := range directions {
		u[dir] = t.way(peer, dir)
	}
	return u
}

func (t *transports) way(peer string, dir direction) string {
	if kind, known := t.peers[peer]; known {
		return name(t.chosen[kind][dir])
	}
	said := ""
	for _, c := range t.chosen {
		switch one := name(c[dir]); {
		case said == "":
			said = one
		case one != said:
			return ""
		}
	}
	return said
}

// name is a list in one word.
func name(l list) string {
	switch {
	case l == nil:
		return ""
	case len(l) == 0:
		return None
	}
	return strings.Join(l, "+")
}
