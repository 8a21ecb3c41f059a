package spaces

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/blocks/quota"
	"meridian/wire"
)

// shelf is a block store's namespaces: those named in full hold blocks.
type shelf struct {
	open, full map[wire.Namespace]bool
}

func (s *shelf) AddNamespace(ns wire.Namespace, _ [32]byte) error {
	s.open[ns] = true
	return nil
}

func (s *shelf) RemoveNamespace(ns wire.Namespace) bool {
	if s.full[ns] {
		return false
	}
	delete(s.open, ns)
	return true
}

func newShelf(limits map[quota.Kind]uint64) (*Registry, *shelf) {
	st := &shelf{open: map[wire.Namespace]bool{}, full: map[wire.Namespace]bool{}}
	var b quota.Book
	for k, n := range limits {
		b.SetLimit(quota.Namespaces, k, n)
	}
	return Over(st, &b), st
}

var (
	peerA   = quota.Holder{Kind: quota.Peer, Name: "a"}
	peerB   = quota.Holder{Kind: quota.Peer, Name: "b"}
	engine1 = quota.Holder{Kind: quota.Engine, Name: "process 1"}
)

func testManifest(tenant string) wire.Manifest {
	return wire.Manifest{Tenant: tenant, Model: "m", Role: "decode", BlockTokens: 16, BlockBytes: 4 << 20}
}

func numbered(tenant string, n int) wire.Manifest {
	m := testManifest(tenant)
	m.Model = fmt.Sprintf("m%d", n)
	return m
}

func TestRanksAndLayersOfOneModelStandSideBySide(t *testing.T) {
	r, _ := newShelf(nil)
	m := testManifest("t")
	m.TPSize, m.LayerLast = 2, 15
	if _, _, err := r.OpenEngine(engine1, m); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*wire.Manifest){
		"tensor parallel rank":   func(m *wire.Manifest) { m.TPRank = 1 },
		"pipeline parallel rank": func(m *wire.Manifest) { m.PPRank = 1 },
		"context parallel rank":  func(m *wire.Manifest) { m.DCPRank = 1 },
		"layers":                 func(m *wire.Manifest) { m.LayerFirst, m.LayerLast = 16, 31 },
		"cache group":            func(m *wire.Manifest) { m.KVGroup, m.KVGroupKind, m.KVWindow = 1, "sliding", 1024 },
	} {
		other := m
		change(&other)
		if _, _, err := r.OpenEngine(engine1, other); err != nil {
			t.Errorf("%s: an engine is refused: %v", name, err)
		}
		if _, _, err := r.OpenPeer(peerA, other); err != nil {
			t.Errorf("%s: a peer is refused: %v", name, err)
		}
		wrong := other
		wrong.Dtype = "fp8"
		var g *wire.GeometryError
		if _, _, err := r.OpenEngine(engine1, wrong); !errors.As(err, &g) || g.Field != "dtype" || g.Theirs != "fp8" {
			t.Errorf("%s: another dtype of the same part: %v", name, err)
		}
	}
}

// What a peer opened says nothing about what others may open.
func TestAPeerIsComparedWithEnginesOnly(t *testing.T) {
	r, _ := newShelf(nil)
	squat := testManifest("t")
	squat.Dtype = "fp8"
	if _, _, err := r.OpenPeer(peerA, squat); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.OpenPeer(peerB, testManifest("t")); err != nil {
		t.Errorf("another peer is refused for what the first opened: %v", err)
	}
	_, end, err := r.OpenEngine(engine1, testManifest("t"))
	if err != nil {
		t.Fatalf("this agent's engine is refused for what a peer opened: %v", err)
	}
	var g *wire.GeometryError
	if _, _, err := r.OpenPeer(peerB, squat); !errors.As(err, &g) || g.Field != "dtype" {
		t.Errorf("a peer that contradicts an engine: %v", err)
	}
	end()
	if _, _, err := r.OpenPeer(peerB, squat); err != nil {
		t.Errorf("the engine is gone, and a peer is still compared with it: %v", err)
	}
}

func TestThrowawayManifestsTakeNobodyElsesNamespaces(t *testing.T) {
	r, st := newShelf(map[quota.Kind]uint64{quota.Peer: 64, quota.Tenant: 100, quota.Engine: 8})
	var ends []func()
	for i := range 1020 {
		_, end, err := r.OpenPeer(peerA, numbered("t", i))
		if (err == nil) != (i < 64) {
			t.Fatalf("namespace %d: %v", i, err)
		}
		if err == nil {
			ends = append(ends, end)
			continue
		}
		var q *quota.Error
		if !errors.As(err, &q) || q.Holder != peerA || q.InUse != 64 || q.Rule.Key() != "quota.peer_namespaces" || !errors.Is(err, wire.CodeTooMany) {
			t.Fatalf("the refusal: %v", err)
		}
	}
	if _, again, err := r.OpenPeer(peerA, numbered("t", 3)); err != nil {
		t.Errorf("one that it has open already: %v", err)
	} else {
		ends = append(ends, again)
	}
	if _, _, err := r.OpenPeer(peerB, numbered("u", 0)); err != nil {
		t.Errorf("another peer: %v", err)
	}
	if _, _, err := r.OpenEngine(engine1, numbered("t", 5000)); err != nil {
		t.Errorf("an engine: %v", err)
	}
	for _, end := range ends {
		end()
		end()
	}
	if len(st.open) != 2 || r.Len() != 2 {
		t.Errorf("%d namespaces are left in the store and %d known, want 2", len(st.open), r.Len())
	}
}

// A namespace with blocks outlives the session that opened it, and counts for it.
func TestWhatAPeerLeavesBehindCountsForIt(t *testing.T) {
	r, st := newShelf(map[quota.Kind]uint64{quota.Peer: 4})
	for i := range 4 {
		ns, end, err := r.OpenPeer(peerA, numbered("t", i))
		if err != nil {
			t.Fatal(err)
		}
		st.full[ns] = true
		end()
	}
	if _, _, err := r.OpenPeer(peerA, numbered("t", 4)); !errors.Is(err, wire.CodeTooMany) {
		t.Errorf("a fifth: %v", err)
	}
	if _, ok := r.Manifest(numbered("t", 0).Namespace()); !ok {
		t.Error("a namespace with blocks was forgotten")
	}
	clear(st.full) // its blocks were evicted
	if _, _, err := r.OpenPeer(peerA, numbered("t", 4)); err != nil {
		t.Errorf("after its blocks are gone: %v", err)
	}
	if r.Len() != 1 {
		t.Errorf("%d are known, want 1", r.Len())
	}
}

// Peers together leave a quarter of the table for this agent's engines.
func TestPeersTogetherLeaveRoomForEngines(t *testing.T) {
	const peers, all = 768, 1024
	r, _ := newShelf(map[quota.Kind]uint64{quota.Peers: peers, quota.All: all})
	for i := range 1100 {
		who := quota.Holder{Kind: quota.Peer, Name: fmt.Sprint(i % 100)}
		if _, _, err := r.OpenPeer(who, numbered("t", i)); (err == nil) != (i < peers) {
			t.Fatalf("namespace %d of peers: %v", i, err)
		}
	}
	for i := range all - peers {
		if _, _, err := r.OpenEngine(engine1, numbered("e", i)); err != nil {
			t.Fatalf("namespace %d of engines: %v", i, err)
		}
	}
	if _, _, err := r.OpenEngine(engine1, numbered("e", all)); !errors.Is(err, wire.CodeTooMany) || !strings.Contains(err.Error(), "quota.namespaces") {
		t.Errorf("beyond the table: %v", err)
	}
}

// Tenant says what Manifest says, after each change.
func TestTheTenantFollowsTheManifest(t *testing.T) {
	r, _ := newShelf(nil)
	m := testManifest("t")
	ns := m.Namespace()
	same := func(want bool) {
		t.Helper()
		tenant, ok := r.Tenant(ns)
		got, known := r.Manifest(ns)
		if ok != want || known != want || tenant != got.Tenant {
			t.Errorf("tenant %q, %v; manifest of %q, %v; want %v", tenant, ok, got.Tenant, known, want)
		}
	}
	for range 3 {
		same(false)
		_, end, err := r.OpenEngine(engine1, m)
		if err != nil {
			t.Fatal(err)
		}
		same(true)
		end()
	}
	same(false)
	if _, err := r.Add(m); err != nil {
		t.Fatal(err)
	}
	same(true)
}
