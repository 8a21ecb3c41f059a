package objects

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/store"
	"meridian/fabric"
	"meridian/wire"
)

func payload(t *testing.T, text string) []byte {
	t.Helper()
	b, err := wire.AppendPayload(nil, wire.ThinkActive, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Other clients of the Store put, remove and replace what they like: what was not just
// read and compared is nothing.
func TestObjectsOfOtherClientsAreReadAsWhatTheyAre(t *testing.T) {
	master := realstore.StartMaster(t)
	newLender(t, master)
	theirs := realstore.StartClient(t, master.Address, 0)
	s := open(t, master.Address)
	one := func(key byte) []fabric.Item {
		return []fabric.Item{{NS: wire.Namespace{1}, Key: wire.Key{key}, M: fabric.Mem{B: make([]byte, 4096)}}}
	}
	put := func(key byte, b []byte) {
		t.Helper()
		if rc := theirs.Put(s.key(ident{wire.Namespace{1}, wire.Key{key}}), b); rc != 0 {
			t.Fatal("put:", rc)
		}
	}
	push := func(key byte, text string) fabric.Item {
		it := one(key)
		it[0].M.B = payload(t, text)
		s.Push(t.Context(), it)
		return it[0]
	}
	text := func(it fabric.Item) string { return string(it.M.B[wire.HeaderLen:][:it.Head.BodyLen]) }

	for name, b := range map[string][]byte{
		"short":       []byte("x"),
		"no header":   bytes.Repeat([]byte("x"), 100),
		"a byte more": append(payload(t, "body"), 0),
	} {
		key := name[0]
		put(key, b)
		it := one(key)
		if s.Pull(t.Context(), it); !errors.Is(it[0].Err, wire.CodeChecksum) || it[0].Proof != (wire.Verified{}) {
			t.Errorf("%s: pulled: %v", name, it[0].Err)
		}
		if s.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeChecksum) {
			t.Errorf("%s: found: %v", name, it[0].Err)
		}
		if it := push(key, "ours"); !errors.Is(it.Err, wire.CodeExists) || it.H != (fabric.Handle{}) {
			t.Errorf("%s: pushed over: %v", name, it.Err)
		}
		if got := theirs.Get(s.key(ident{wire.Namespace{1}, wire.Key{key}})); !bytes.Equal(got, b) {
			t.Errorf("%s: the object is another one now", name)
		}
	}
	if f := s.Findings()[1]; !f.Bad || f.ID != "foreign" {
		t.Errorf("%+v", f)
	}

	put(1, payload(t, "theirs"))
	it := one(1)
	if s.Pull(t.Context(), it); it[0].Err != nil || text(it[0]) != "theirs" {
		t.Fatal("an object of another client:", it[0].Err)
	}

	was := push(2, "first")
	if was.Err != nil {
		t.Fatal(was.Err)
	}
	if err := s.client.Remove(t.Context(), s.key(ident{wire.Namespace{1}, wire.Key{2}}), true); err != nil {
		t.Fatal(err)
	}
	it = one(2)
	put(2, payload(t, "second"))
	it[0].H = was.H
	if s.Pull(t.Context(), it); !errors.Is(it[0].Err, wire.CodeStale) || s.Keeps(was.H) {
		t.Error("replaced by another client:", it[0].Err)
	}
	it[0].H = fabric.Handle{}
	if s.Pull(t.Context(), it); it[0].Err != nil || text(it[0]) != "second" {
		t.Error("by its key:", it[0].Err)
	}
	if s.Pull(t.Context(), it); it[0].Err != nil || it[0].H == was.H {
		t.Error("by its new handle:", it[0].Err)
	}
}

// Two daemons that share a Store put the same blocks, and so does one that was restarted:
// the second one has a copy then.
func TestABlockThatAnotherDaemonPutIsACopy(t *testing.T) {
	master := realstore.StartMaster(t)
	newLender(t, master)
	first, second := open(t, master.Address), open(t, master.Address)
	push := func(s *Store) fabric.Item {
		it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload(t, "body")}}}
		s.Push(t.Context(), it)
		return it[0]
	}
	if it := push(first); it.Err != nil {
		t.Fatal(it.Err)
	}
	it := push(second)
	if !errors.Is(it.Err, wire.CodeExists) || !second.Keeps(it.H) {
		t.Fatalf("handle %v: %v", it.H, it.Err)
	}
	back := []fabric.Item{{Key: wire.Key{1}, H: it.H, M: fabric.Mem{B: make([]byte, 4096)}}}
	if second.Pull(t.Context(), back); back[0].Err != nil {
		t.Error(back[0].Err)
	}
	if err := first.client.Remove(t.Context(), first.key(ident{key: wire.Key{1}}), true); err != nil {
		t.Fatal(err)
	}
	back[0].M.B = make([]byte, 4096)
	if second.Find(t.Context(), back); !errors.Is(back[0].Err, wire.CodeAbsent) || second.Keeps(it.H) {
		t.Errorf("after it was removed: %v", back[0].Err)
	}
	if it := push(second); it.Err != nil {
		t.Error("put again:", it.Err)
	}
}

// Where an object lies is the master's word: a node that is not allowed is not connected
// to, and a push there fails too.
func TestAStoreConnectsOnlyWhereItMay(t *testing.T) {
	master := realstore.StartMaster(t)
	newLender(t, master)
	m, err := store.ParseMasters(master.Address, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	nowhere := metadata.DialAllowed(func(netip.Addr) bool { return false })
	s := New(Config{Label: "attic", Masters: m, Prefix: "mrdn", Resolver: &handshake.Client{Dial: nowhere}, Dial: nowhere})
	defer func() { _ = s.Close() }()
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload(t, "x")}}}
	if s.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeUnreachable) || !strings.Contains(it[0].Err.Error(), "not allowed") {
		t.Error("pushed:", it[0].Err)
	}
	open(t, master.Address).Push(t.Context(), it)
	if it[0].Err != nil {
		t.Fatal("by a fabric that may:", it[0].Err)
	}
	it[0].H, it[0].M.B = fabric.Handle{}, make([]byte, 100)
	if s.Pull(t.Context(), it); !errors.Is(it[0].Err, wire.CodeUnreachable) || !strings.Contains(it[0].Err.Error(), "not allowed") {
		t.Error("pulled:", it[0].Err)
	}
}

// Without a master each call fails within its bounds, and the fabric is passed over for a
// moment.
func TestAStoreWithoutItsMasterSaysSo(t *testing.T) {
	s := open(t, realstore.FreeAddress(t))
	if err := s.Usable(wire.Namespace{}); err != nil {
		t.Error("before the first call:", err)
	}
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payload(t, "x")}}}
	if s.Push(t.Context(), it); !errors.Is(it[0].Err, wire.CodeUnreachable) {
		t.Error(it[0].Err)
	}
	if err := s.Usable(wire.Namespace{}); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("after it:", err)
	}
	if f := s.Findings()[0]; !f.Bad || !strings.Contains(f.Reason, "refused") {
		t.Errorf("%+v", f)
	}
	if _, _, err := s.Probe(t.Context(), ""); !errors.Is(err, wire.CodeUnreachable) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.Find(ctx, it); !errors.Is(it[0].Err, wire.CodeCancelled) {
		t.Error(it[0].Err)
	}
}

// What handles name takes no more than its bound.
func TestHandlesHaveABound(t *testing.T) {
	k := newKnown()
	k.limit = 4
	for i := range 100 {
		h := k.note(ident{key: wire.Key{byte(i)}}, wire.Header{})
		if len(k.byH) > 4 || len(k.byKey) > 4 || !k.has(h) {
			t.Fatalf("%d handles, %d keys", len(k.byH), len(k.byKey))
		}
	}
}
