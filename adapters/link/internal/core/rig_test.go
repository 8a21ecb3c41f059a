package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// memStore is a Store in memory that counts what it gave out.
// namespaces knows tenant "t" and "other", and one geometry.
func (namespaces) Open(m wire.Manifest) (ns wire.Namespace, code wire.Code, field, ours, theirs string) {
	want := manifest(m.Tenant)
	if m.SameFamily(want) && m != want {
		field, ours, theirs = want.Diff(m)
		return ns, wire.CodeGeometry, field, ours, theirs
	}
	return m.Namespace(), wire.CodeOK, "", "", ""
}

// rig is two sessions and the bytes between them: a dials, b accepts.
type rig struct {
	tb    testing.TB
	now   time.Duration
	end   [2]*Session
	store [2]*memStore
	lanes int
	piece int // the most bytes that one read or write moves
	homes int
	watch [2]map[uint8]*proto.Splitter
	log   strings.Builder
	quiet bool
	held  bool // jobs wait for work

	stockHeld bool // and only those that make homes
	jobs      [2][]Job

	stocks [2][]Job // those that stockHeld holds
}

var sides = [2]string{"a", "b"}

func newRig(tb testing.TB, lanes int, mine proto.Limits) *rig { return newHomeRig(tb, lanes, mine, 0) }

// newHomeRig is a rig whose sides keep that many homes for each other's pushes.
func newHomeRig(tb testing.TB, lanes int, mine proto.Limits, homes int) *rig {
	// A session may begin at any time of its agent.
	r := &rig{tb: tb, now: 1000 * time.Hour, lanes: lanes, piece: 1 << 30, homes: homes}
	if mine == (proto.Limits{}) {
		mine = DefaultLimits
	}
	for i := range r.end {
		r.store[i] = newMemStore()
		r.end[i] = New(Config{
			Dialler: i == 0, Store: r.store[i], Namespaces: namespaces{}, Tenants: Tenants{Names: []string{"t"}},
			Mine: mine, Theirs: mine, OneFlight: true, Homes: r.homes, HomeBytes: 64 << 20,
		})
		r.watch[i] = map[uint8]*proto.Splitter{}
	}
	for l := range lanes + 1 {
		r.addLane(uint8(l))
	}
	return r
}

func (r *rig) addLane(idx uint8) {
	for i := range r.end {
		if _, err := r.end[i].AddLane(r.now, idx, proto.Splitter{}); err != nil {
			r.tb.Fatal(err)
		}
		r.watch[i][idx] = &proto.Splitter{Begun: true}
	}
}

// move carries at most n bytes of a lane from side i to the other, and reports
// how many there were.
func (r *rig) move(i int, idx uint8, n int) int {
	tx, rx := r.end[i].Lane(idx), r.end[1-i].Lane(idx)
	if tx == nil || rx == nil {
		return 0
	}
	var run []byte
	for _, p := range tx.TxWant(nil) {
		run = append(run, p[:min(len(p), n-len(run))]...)
	}
	tx.TxDid(r.now, len(run))
	r.show(i, idx, run)
	for b := run; len(b) > 0; {
		took := 0
		for _, p := range rx.RxWant(nil) {
			took += copy(p, b[took:])
		}
		rx.RxGot(r.now, took)
		b = b[took:]
		r.gather(1-i, rx)
		if rx.Dead() {
			break
		}
	}
	r.reap()
	return len(run)
}

func (r *rig) gather(i int, l *Lane) {
	r.jobs[i] = append(r.jobs[i], l.TakeJobs()...)
	if !r.held {
		r.work(i)
	}
}

// work does the jobs of side i, and those that come of them.
func (r *rig) work(i int) {
	for len(r.jobs[i]) > 0 {
		jobs := r.jobs[i]
		r.jobs[i] = nil
		if r.stockHeld && jobs[0].stock != 0 {
			r.stocks[i] = append(r.stocks[i], jobs...)
			continue
		}
		for k := range jobs {
			jobs[k].Run()
		}
		r.end[i].Finish(r.now, jobs)
		for _, l := range r.end[i].lanes {
			if l != nil {
				r.jobs[i] = append(r.jobs[i], l.TakeJobs()...)
			}
		}
	}
}

// reap closes what is dead: the other side sees its connection end.
func (r *rig) reap() {
	for i := range r.end {
		for idx := range uint8(proto.MaxLanes + 1) {
			if l := r.end[i].Lane(idx); l != nil && (l.Dead() || l.TxFlushed()) {
				r.lose(idx)
			}
		}
	}
	for i, s := range r.end {
		for _, e := range s.TakeEvents() {
			r.event(i, e)
		}
	}
}

// lose ends a lane's connection on both sides.
func (r *rig) lose(idx uint8) {
	for i := range r.end {
		if l := r.end[i].Lane(idx); l != nil {
			r.end[i].LaneDown(r.now, l, wire.CodeLaneLost)
		}
	}
}

// run moves bytes until nothing moves any more.
func (r *rig) run() {
	for moved := true; moved; {
		moved = false
		for i := range r.end {
			for idx := range uint8(r.lanes + 1) {
				if r.move(i, idx, r.piece) > 0 {
					moved = true
				}
			}
		}
	}
}

// frame moves bytes of one lane until one more whole frame has left side i.
func (r *rig) frame(i int, idx uint8) {
	before := r.log.Len()
	for r.log.Len() == before && r.move(i, idx, 1024) > 0 {
	}
}

func (r *rig) printf(format string, args ...any) {
	if !r.quiet {
		fmt.Fprintf(&r.log, format+"\n", args...)
	}
}

// show writes down each frame that has gone by in full.
func (r *rig) show(i int, idx uint8, b []byte) {
	sp := r.watch[i][idx]
	for len(b) > 0 {
		n, ev, err := sp.Next(b)
		if err != nil {
			r.printf("%s %d broken: %v", sides[i], idx, err)
			return
		}
		b = b[n:]
		f := ev.Frame
		switch {
		case ev.Kind == proto.EventMessage:
			r.printf("%s %d %s req=%d%s", sides[i], idx, f.Type, f.Req, describe(f, ev.Payload))
		case ev.Kind == proto.EventSkipped:
			r.printf("%s %d %s req=%d", sides[i], idx, f.Type, f.Req)
		case ev.Kind == proto.EventBytes && ev.Left == 0:
			r.printf("%s %d DATA req=%d class=%d item=%d bytes=%d", sides[i], idx, f.Req, f.Class, f.Arg, f.Len-proto.DataPrefixLen)
		}
	}
}

func describe(f proto.Frame, p []byte) string {
	codes := func(c []wire.Code) string {
		var s []string
		for _, x := range c {
			s = append(s, x.String())
		}
		return " [" + strings.Join(s, " ") + "]"
	}
	switch f.Type {
	case proto.TypeEnd:
		m, _ := proto.Parse[proto.End](p)
		return " " + m.Code.String() + codes(m.Status)
	case proto.TypeGrant:
		m, _ := proto.Parse[proto.Grant](p)
		return codes(m.Status)
	case proto.TypeTable:
		m, _ := proto.Parse[proto.Table](p)
		var c []wire.Code
		for _, h := range m.Items {
			c = append(c, h.Status)
		}
		return codes(c)
	case proto.TypeError:
		m, _ := proto.Parse[proto.Error](p)
		return fmt.Sprintf(" %s at %d: %s", m.Code, m.Offset, m.Text)
	case proto.TypeOpened:
		m, _ := proto.Parse[proto.Opened](p)
		return fmt.Sprintf(" %d %s %s %s %s", m.NS, m.Status, m.Field, m.Ours, m.Theirs)
	}
	return ""
}

func (r *rig) event(i int, e Event) {
	switch e.Kind {
	case EventLaneDead:
		r.printf("%s: lane %d is dead: %s: %s", sides[i], e.Lane, e.Code, e.Text)
	case EventRefused:
		r.printf("%s: lane %d refused: %s", sides[i], e.Lane, e.Code)
	case EventPeerError:
		r.printf("%s: lane %d: peer says %s", sides[i], e.Lane, e.Code)
	case EventGoAway:
		r.printf("%s: peer leaves: %s", sides[i], e.Code)
	case EventChecksum:
		r.printf("%s: checksum failure", sides[i])
	case EventGone:
		r.printf("%s: session over: %s", sides[i], e.Code)
	}
}

func (r *rig) key(name string) wire.Key { return wire.KeyOf(manifest("t").Namespace(), []byte(name)) }

// open opens tenant t's namespace from side i, and gives its number.
func (r *rig) open(i int) uint16 {
	c := &Call{Type: proto.TypeOpen, Manifest: manifest("t").Append(nil), Timeout: time.Second}
	r.end[i].Start(r.now, c)
	r.run()
	if c.Code != wire.CodeOK {
		r.tb.Fatalf("open: %v", c.Code)
	}
	return c.Opened.NS
}

func (r *rig) pull(i int, class proto.Class, num uint16, size int, names ...string) *Call {
	c := &Call{Type: proto.TypePull, Class: class, Timeout: 30 * time.Second}
	for _, n := range names {
		c.Items = append(c.Items, Item{NS: num, Key: r.key(n), Room: make([]byte, size)})
	}
	r.end[i].Start(r.now, c)
	return c
}

func (r *rig) push(i int, class proto.Class, num uint16, size int, names ...string) *Call {
	c := &Call{Type: proto.TypePush, Class: class, Timeout: 30 * time.Second}
	for _, n := range names {
		b := body(n, size)
		h := wire.Header{BodyLen: uint32(size), Tier: wire.OutputCritical, Sum: wire.SumOf(b)}
		c.Items = append(c.Items, Item{
			NS: num, Key: r.key(n), Room: b, Tier: wire.OutputCritical, Att: wire.AttestProducer, Head: [32]byte(h.Append(nil)),
		})
	}
	r.end[i].Start(r.now, c)
	return c
}

// streamCall is a push of one block whose body comes meanwhile.
func (r *rig) streamCall(num uint16, size int, name string) *Call {
	b := body(name, size)
	h := wire.Header{BodyLen: uint32(size), Tier: wire.ThinkActive, Sum: wire.SumOf(b)}
	return &Call{Type: proto.TypePush, Grows: true, Timeout: 30 * time.Second, Items: []Item{{
		NS: num, Key: r.key(name), Room: b, Tier: wire.ThinkActive, Att: wire.AttestProducer, Head: [32]byte(h.Append(nil)),
	}}}
}

func (r *rig) stream(i int, num uint16, size int, name string) *Call {
	c := r.streamCall(num, size, name)
	r.end[i].Start(r.now, c)
	return c
}

// small opens a namespace of blocks of at most 4 KiB from side i, and pushes one block
// into it, after which homes stand ready at the other side.
func (r *rig) small(i int) uint16 {
	m := manifest("t")
	m.Role, m.BlockBytes = "small", 4096
	c := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
	r.end[i].Start(r.now, c)
	r.run()
	r.push(i, proto.ClassUrgent, c.Opened.NS, 3000, "first of "+sides[i])
	r.run()
	if st := r.end[1-i].nsIn[c.Opened.NS-1].stock; len(st.homes) != r.homes {
		r.tb.Fatalf("%d homes, want %d", len(st.homes), r.homes)
	}
	return c.Opened.NS
}

func (r *rig) mustDeliver(c *Call) {
	r.tb.Helper()
	if !c.Delivered {
		r.tb.Fatal("the push waits for GRANT")
	}
}

func body(name string, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7>>2) ^ name[i%len(name)]
	}
	return b
}

func (r *rig) put(i int, size int, names ...string) {
	for _, n := range names {
		r.store[i].put(manifest("t").Namespace(), r.key(n), body(n, size))
	}
}

func codesOf(c *Call) []string {
	var s []string
	for i := range c.Items {
		s = append(s, c.Items[i].Code.String())
	}
	return s
}

// settled fails the test unless nothing runs and nothing is held.
func (r *rig) settled() {
	r.tb.Helper()
	for i, s := range r.end {
		st := s.Stats()
		if st.Calls != 0 || st.Served != 0 || st.Refs != 0 || st.Waiting != 0 || st.CallBytes != 0 || st.ServedBytes != 0 {
			r.tb.Errorf("%s: %+v", sides[i], st)
		}
		if s.growReqs != 0 || s.growBytes != 0 {
			r.tb.Errorf("%s: %d pushes that grow, of %d bytes", sides[i], s.growReqs, s.growBytes)
		}
		if s.homes != 0 || s.homeBytes != 0 || s.making != 0 {
			r.tb.Errorf("%s: %d homes of %d bytes, %d jobs for more", sides[i], s.homes, s.homeBytes, s.making)
		}
		for ns, a := range s.allowed {
			if a.out != 0 {
				r.tb.Errorf("%s: namespace %d has %d items under way", sides[i], ns, a.out)
			}
		}
		if len(s.leased) != 0 {
			r.tb.Errorf("%s: %d leases of pulls that are over", sides[i], len(s.leased))
		}
		h := r.store[i]
		if len(h.reserved) != 0 || len(h.leases) != 0 || len(h.faults) != 0 {
			r.tb.Errorf("%s: %d reservations, %d leases, faults %v", sides[i], len(h.reserved), len(h.leases), h.faults)
		}
		for _, l := range s.lanes {
			if l != nil && l.load != 0 {
				r.tb.Errorf("%s: lane %d has a load of %d", sides[i], l.idx, l.load)
			}
		}
	}
}

func wantCodes(tb testing.TB, c *Call, want ...wire.Code) {
	tb.Helper()
	var got []wire.Code
	for i := range c.Items {
		got = append(got, c.Items[i].Code)
	}
	if !slices.Equal(got, want) {
		tb.Errorf("items: %v, want %v", got, want)
	}
}
