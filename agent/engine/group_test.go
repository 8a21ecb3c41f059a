package engine_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// member is how a session says which group it is of.
type member struct {
	agent byte
	inc   uint64
	auth  []link.TLV
}

func (m member) hello() []byte {
	return link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 1, Max: 1, Agent: [16]byte{m.agent}, Inc: m.inc, Features: link.FeatureLocal | link.FeatureRing | link.FeatureGroup, Auth: m.auth})
}

// withSecret is m with the element that carries the group's secret.
func (m member) withSecret(secret []byte) member {
	m.auth = []link.TLV{{Type: link.AuthGroup, Value: secret}}
	return m
}

// join says HELLO and returns the secret that came back, nil for none.
func (n *node) join(t testing.TB, m member) (*raw, []byte) {
	t.Helper()
	r := n.raw(t)
	r.write(m.hello())
	f := r.next()
	if f.f.Type == link.TypeError {
		e, _ := link.Parse[link.Error](f.p)
		t.Fatalf("ERROR %s (%s) instead of HELLO", e.Code, e.Text)
	}
	h, err := link.Parse[link.Hello](f.p)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := h.Find(link.AuthGroup)
	return r, secret
}

// ask sends a request and returns what came before its END, advice left out, and END.
func (r *raw) ask(req uint64, b []byte) ([]frame, link.End) {
	r.t.Helper()
	r.write(b)
	var got []frame
	for {
		f := r.next()
		switch {
		case f.f.Type == link.TypeMap || f.f.Type == link.TypePhase || f.f.Type == link.TypePhaseAt:
		case f.f.Type == link.TypeEnd:
			return got, r.end(f, req)
		default:
			got = append(got, f)
		}
	}
}

// open opens a namespace and returns its number.
func (r *raw) open(req uint64, tenant string) uint16 {
	r.t.Helper()
	got, e := r.ask(req, message(link.TypeOpen, req, link.Open{Manifest: manifest(tenant).Append(nil)}))
	if e.Code != wire.CodeOK || len(got) != 1 {
		r.t.Fatalf("OPEN: %s (%s)", e.Code, e.Text)
	}
	o, err := link.Parse[link.Opened](got[0].p)
	if err != nil {
		r.t.Fatal(err)
	}
	return o.NS
}

// lease acquires one block.
func (r *raw) lease(req uint64, ns uint16, name string, hold bool) (wire.Code, [16]byte) {
	r.t.Helper()
	got, e := r.ask(req, message(link.TypeAcquire, req, link.Acquire{DeadlineMS: 1000, LeaseMS: 30_000, Hold: hold, Items: []link.Want{{NS: ns, Key: keyOf(name)}}}))
	if e.Code != wire.CodeOK {
		return e.Code, [16]byte{}
	}
	a, err := link.Parse[link.Acquired](got[0].p)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Items[0].Status, a.Lease
}

func (r *raw) renew(req uint64, lease [16]byte) wire.Code {
	r.t.Helper()
	_, e := r.ask(req, message(link.TypeRenew, req, link.Renew{Lease: lease, MS: 30_000}))
	return e.Code
}

func (r *raw) release(req uint64, leases ...[16]byte) {
	r.t.Helper()
	r.ask(req, message(link.TypeRelease, req, link.Release{Leases: leases}))
}

// Namespaces, leases and requests are the group's: what one session opens, takes and
// begins, another one uses, renews, gives back and finishes. A stranger has none of it.
func TestSessionsOfAGroupShare(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 1000)})

	scheduler, _ := n.join(t, member{agent: 7, inc: 1})
	worker, _ := n.join(t, member{agent: 7, inc: 1})
	stranger, _ := n.join(t, member{agent: 7, inc: 2})
	num := scheduler.open(1, "acme")
	other := stranger.open(1, "other")
	if num != other || worker.open(1, "acme") != num {
		t.Errorf("numbers %d and %d, want each group's first, and one number for one namespace", num, other)
	}

	code, timed := scheduler.lease(3, num, "a", false)
	code2, hold := worker.lease(3, num, "b", true)
	if code != wire.CodeOK || code2 != wire.CodeOK {
		t.Fatalf("leases: %s, %s", code, code2)
	}
	for i, c := range []struct {
		name  string
		who   *raw
		lease [16]byte
		want  wire.Code
	}{
		{"the worker renews the scheduler's lease", worker, timed, wire.CodeOK},
		{"the scheduler renews the worker's hold", scheduler, hold, wire.CodeOK},
		{"a stranger renews", stranger, timed, wire.CodeLeaseLost},
		{"a stranger renews a hold", stranger, hold, wire.CodeLeaseLost},
	} {
		if got := c.who.renew(uint64(5+2*i), c.lease); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	stranger.release(21, timed, hold)
	if st := n.store.Stats(); st.Leases != 2 {
		t.Fatalf("%d leases after a stranger's RELEASE, want 2", st.Leases)
	}
	worker.release(23, timed)
	scheduler.release(25, hold)
	if st := n.store.Stats(); st.Leases != 0 {
		t.Fatalf("%d leases after each gave back the other's", st.Leases)
	}
}

// A session that goes takes what it alone had; the group's goes with the last one.
func TestTheLastSessionDropsWhatIsTheGroups(t *testing.T) {
	var p fakeProcess
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Process = func(int, int) (blocks.Process, error) { return &p, nil }
	})
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	scheduler, _ := n.join(t, member{agent: 7, inc: 1})
	worker, _ := n.join(t, member{agent: 7, inc: 1})
	num := scheduler.open(1, "acme")
	if _, e := scheduler.ask(3, message(link.TypeBegin, 3, link.Begin{Req: 9})); e.Code != wire.CodeOK {
		t.Fatalf("BEGIN: %s", e.Code)
	}
	scheduler.lease(5, num, "a", false)
	scheduler.lease(7, num, "a", true)
	_ = scheduler.c.Close()
	n.wait(1)
	if st := n.store.Stats(); st.Leases != 2 || st.Orphans != 1 {
		t.Fatalf("%d leases, %d orphans; want the timed one and the hold of the session that left", st.Leases, st.Orphans)
	}
	if st := n.srv.Stats(); st.Engines != 2 || st.Sessions != 2 || running(st) != 1 {
		t.Errorf("%d engines, %d sessions, %d requests; want 2, 2, and the request of the session that left", st.Engines, st.Sessions, running(st))
	}
	// Its number is in use still, and any session ends it.
	if _, e := worker.ask(3, message(link.TypeBegin, 3, link.Begin{Req: 9})); e.Code != wire.CodeInvalid {
		t.Errorf("BEGIN of a number that runs: %s", e.Code)
	}
	worker.ask(5, message(link.TypeFinish, 5, link.Finish{Req: 9}))
	if st := n.srv.Stats(); running(st) != 0 {
		t.Errorf("%d requests after FINISH by another session", running(st))
	}
	_ = worker.c.Close()
	n.wait(1)
	if st := n.store.Stats(); st.Leases != 1 {
		t.Errorf("%d leases after the last session, want the hold of a process that lives", st.Leases)
	}
	// Whoever comes now makes the group anew: nothing is open, and the name is free.
	p.gone.Store(true)
	n.store.Step(blocks.Input{})
	again, secret := n.join(t, member{agent: 7, inc: 1}.withSecret(nil))
	if len(secret) != link.GroupSecret {
		t.Errorf("a secret of %d bytes", len(secret))
	}
	if code, _ := again.lease(1, num, "a", false); code != wire.CodeNSUnknown {
		t.Errorf("a namespace of the group that ended: %s", code)
	}
}

// fakeProcess ends when the test says so.
type fakeProcess struct{ gone atomic.Bool }

func (p *fakeProcess) Gone() bool   { return p.gone.Load() }
func (p *fakeProcess) Close() error { return nil }

// Who may join: the secret must be what the first session said, or was told.
func TestWhoMayJoinAGroup(t *testing.T) {
	known := bytes.Repeat([]byte{5}, link.GroupSecret)
	for _, c := range []struct {
		name  string
		first []link.TLV // nil: none
		next  func(told []byte) []link.TLV
		want  wire.Code
	}{
		{"no secret", nil, func([]byte) []link.TLV { return nil }, wire.CodeOK},
		{"none here, one there", nil, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup, Value: known}} }, wire.CodeAuth},
		{"asked for late", nil, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup}} }, wire.CodeAuth},
		{"told", []link.TLV{{Type: link.AuthGroup}}, func(s []byte) []link.TLV { return []link.TLV{{Type: link.AuthPeer}, {Type: link.AuthGroup, Value: s}} }, wire.CodeOK},
		{"told and not brought", []link.TLV{{Type: link.AuthGroup}}, func([]byte) []link.TLV { return nil }, wire.CodeAuth},
		{"told and wrong", []link.TLV{{Type: link.AuthGroup}}, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup, Value: known}} }, wire.CodeAuth},
		{"asked for twice", []link.TLV{{Type: link.AuthGroup}}, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup}} }, wire.CodeAuth},
		{"given twice", []link.TLV{{Type: link.AuthGroup}}, func(s []byte) []link.TLV {
			return []link.TLV{{Type: link.AuthGroup, Value: s}, {Type: link.AuthGroup, Value: s}}
		}, wire.CodeAuth},
		{"brought by both", []link.TLV{{Type: link.AuthGroup, Value: known}}, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup, Value: known}} }, wire.CodeOK},
		{"of another length", nil, func([]byte) []link.TLV { return []link.TLV{{Type: link.AuthGroup, Value: known[1:]}} }, wire.CodeAuth},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, nil)
			_, told := n.join(t, member{7, 1, c.first})
			asked := len(c.first) == 1 && len(c.first[0].Value) == 0
			if asked != (len(told) == link.GroupSecret) {
				t.Fatalf("the first session asked %v and was told %d bytes", asked, len(told))
			}
			r := n.raw(t)
			r.write(member{7, 1, c.next(told)}.hello())
			if c.want == wire.CodeOK {
				if got := r.next(); got.f.Type != link.TypeHello {
					t.Fatalf("%s instead of HELLO", got.f.Type)
				}
				if st := n.srv.Stats(); st.Engines != 1 || st.Sessions != 2 {
					t.Errorf("%d engines of %d sessions", st.Engines, st.Sessions)
				}
				return
			}
			if e := r.refusedWith(c.want); e.Text == "" || bytes.Contains([]byte(e.Text), known) {
				t.Errorf("ERROR says %q", e.Text)
			}
		})
	}
}

// A name that is zero names no group. Without GROUP it is not looked at.
func TestAGroupNeedsAName(t *testing.T) {
	n := startNode(t, nil)
	for _, m := range []member{{}, {agent: 1}, {inc: 1}} {
		r := n.raw(t)
		r.write(m.hello())
		r.refusedWith(wire.CodeAuth)
	}
	for range 2 {
		n.greeted(t)
	}
	if st := n.srv.Stats(); st.Engines < 2 {
		t.Errorf("%d engines of two sessions without GROUP", st.Engines)
	}
}

// Sessions of a group are bounded, and the refusal says the limit. A thousand joins
// and leaves are no more than the last of them.
func TestSessionsOfAGroupAreBounded(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.GroupSessions = 3 })
	m := member{agent: 7, inc: 1}
	first, _ := n.join(t, m)
	first.open(1, "acme")
	n.join(t, m)
	n.join(t, m)
	r := n.raw(t)
	r.write(m.hello())
	if e := r.refusedWith(wire.CodeTooMany); !strings.Contains(e.Text, "limit engine.max_group_sessions is 3") {
		t.Errorf("ERROR says %q", e.Text)
	}
	n.wait(1)
	for range 2 {
		for i := range 1000 {
			m := member{agent: 9, inc: uint64(1 + i%10)}
			r, _ := n.join(t, m)
			if i%3 == 0 {
				r.open(1, "acme")
			}
			_ = r.c.Close()
		}
		n.wait(1000)
	}
	if st := n.srv.Stats(); st.Engines != 1 || st.Sessions != 3 {
		t.Errorf("%d engines of %d sessions are left", st.Engines, st.Sessions)
	}
	if st := n.store.Stats(); st.Owners != n.owners+4 {
		t.Errorf("%d owners, want the group's and its three sessions'", st.Owners-n.owners)
	}
}

// Two engines of a scheduler and eight ranks each fit the defaults, all of them
// there before the first opens anything.
func TestTwoEnginesOfNineSessionsFitTheDefaults(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, c *engine.Config) { c.Limits = engine.Limits{} })
	var all []*raw
	for i := range 18 {
		r, _ := n.join(t, member{agent: byte(1 + i%2), inc: 1})
		all = append(all, r)
	}
	for i, r := range all {
		r.open(1, "acme")
		got, e := r.ask(3, message(link.TypeMap, 3, link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: 1 << 20}}}))
		if e.Code != wire.CodeOK || len(got) != 0 {
			t.Fatalf("session %d asks for a ring: %s (%s)", i, e.Code, e.Text)
		}
	}
	if st := n.srv.Stats(); st.Engines != 2 || st.Sessions != 18 {
		t.Errorf("%d engines of %d sessions", st.Engines, st.Sessions)
	}
}

// An engine of many sessions takes one place of those that may be connected.
func TestAGroupIsOneEngine(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 2 })
	for i := range 2 {
		for range 4 {
			r, _ := n.join(t, member{agent: byte(1 + i), inc: 1})
			r.open(1, "acme")
		}
	}
	r := n.raw(t)
	r.write(member{agent: 3, inc: 1}.hello())
	if e := r.refusedWith(wire.CodeTooMany); !strings.Contains(e.Text, "limit engine.max_sessions is 2") {
		t.Errorf("ERROR says %q", e.Text)
	}
	r, _ = n.join(t, member{agent: 2, inc: 1}) // one more of an engine that is there
	if num := r.open(1, "acme"); num != 0 {
		t.Errorf("number %d", num)
	}
}

// The silent sessions of a group have one place of the connections that open
// nothing, and lose it together.
func TestASilentGroupMakesRoomAsOne(t *testing.T) {
	n := startNode(t, nil)
	var group []*raw
	for range 4 {
		r, _ := n.join(t, member{agent: 7, inc: 1})
		group = append(group, r)
	}
	for range link.HalfOpenPerSource - 1 {
		n.greeted(t)
	}
	for { // until what was said by the group is long enough ago
		r := n.raw(t)
		_, _ = r.c.Write(hello()) // it may be refused already
		if f, err := r.read(); err == nil && f.f.Type == link.TypeHello {
			break
		}
		_ = r.c.Close()
	}
	for _, r := range group {
		if e := r.refusedWith(wire.CodeTooMany); !strings.Contains(e.Text, "silent") {
			t.Errorf("ERROR says %q", e.Text)
		}
	}
}

// running counts the generation requests that are followed now.
func running(st engine.Stats) (n uint64) {
	for _, k := range st.Scheduler.Phases {
		n += k
	}
	return n
}
