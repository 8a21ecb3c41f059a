package nixl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// newFakeNode is a fabric with the fake library, whose peers have names that say what
// becomes of their transfers. Each lends its own window in the helper.
func newFakeNode(t *testing.T, change func(c *Config), names ...string) *Node {
	t.Helper()
	var peers []PeerConfig
	for _, name := range names {
		peers = append(peers, PeerConfig{name, listen(t, func(c net.Conn) { answerAs(c, name) })})
	}
	cfg := config(t, peers...)
	cfg.Helper, cfg.Window = fakeConfig(t), 16<<20
	if change != nil {
		change(&cfg)
	}
	n := newNode(t, cfg)
	for _, name := range names {
		fakeLends(t, n, name)
	}
	return n
}

// fakeBlob is the metadata of an agent of the fake library.
func fakeBlob(name string) []byte {
	b := []byte("nixlSerDes|")
	field := func(tag string, value []byte) {
		b = binary.LittleEndian.AppendUint64(append(b, tag...), uint64(len(value)))
		b = append(append(b, value...), '|')
	}
	one := binary.LittleEndian.AppendUint64(nil, 1)
	field("Agent", []byte(name))
	field("Conns", one)
	field("t", []byte("FAKE"))
	field("c", []byte("address of "+name))
	field("", []byte("MemSection"))
	field("nixlSecElms", make([]byte, 8))
	return b
}

// answerAs is the listener of an agent of the fake library.
func answerAs(c net.Conn, name string) {
	for {
		f, err := plane.ReadFrame(c, nil)
		if err != nil {
			return
		}
		if f.Verb == plane.Send {
			tell(c, fakeBlob(name))
		}
	}
}

// fakeLends has a peer of the fake library lend its window, as soon as it is connected.
func fakeLends(t *testing.T, n *Node, name string) {
	t.Helper()
	var told *session // it lends once, so that it is answered once
	testbed.Until(t, "peer "+name+" lends memory", func() bool {
		for _, p := range n.roster.Load().peers {
			if l, err := p.now(); p.Name() == name && err == nil {
				g := l.guest(p)
				if l.lent.Off != g.at && told != l.session { // of no helper, or of an earlier one
					told = l.session
					l.deliver(name, []byte(message{verb: verbLend, addr: g.at, n: g.w.Len}.String()))
				}
				return l.lent.Off == g.at
			}
		}
		return false
	})
}

// pushTo pushes blocks to one peer, and returns what became of each.
func pushTo(ctx context.Context, t *testing.T, n *Node, peer string, bytes int, keys ...uint64) []fabric.Item {
	t.Helper()
	var list []fabric.Item
	for _, key := range keys {
		list = append(list, item(t, key, bytes))
	}
	n.Peer(peer).Push(ctx, list)
	return list
}

func lostBytes(n *Node) uint64 {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s == nil {
		return 0
	}
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	return s.stage.lost
}

// A call ends with its deadline, or when it is cancelled. What it used stays out of use
// until the library says that the transfer has ended; the library has no way to stop one.
func TestATransferIsMarkedAndDrained(t *testing.T) {
	n := newFakeNode(t, nil, "never", "late", "good")
	for name, c := range map[string]struct {
		ctx  func(time.Duration) (context.Context, context.CancelFunc)
		want error
	}{
		"a deadline": {func(d time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), d)
		}, wire.CodeDeadline},
		"cancellation": {func(d time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(d, cancel)
			return ctx, cancel
		}, wire.CodeCancelled},
	} {
		for key, peer := range []string{"late", "never"} {
			before := lostBytes(n)
			try := func(d time.Duration) {
				ctx, cancel := c.ctx(d)
				defer cancel()
				list := pushTo(ctx, t, n, peer, 1000, uint64(key))
				if !errors.Is(list[0].Err, c.want) || list[0].Loose {
					t.Errorf("%s, %s: %v, loose %v", name, peer, list[0].Err, list[0].Loose)
				}
			}
			d := time.Millisecond
			try(d)
			for peer == "never" && lostBytes(n) == before && d < 10*time.Second { // it may end before its transfer begins
				d *= 2
				try(d)
			}
			if peer == "late" {
				testbed.Until(t, "the late transfer ends, and its staging is free", func() bool { return lostBytes(n) == before })
			} else if lostBytes(n) == before {
				t.Errorf("%s: the staging of a transfer that has not ended is free", name)
			}
		}
	}
	// The others are not held up, and the stuck peer gets nothing new.
	if list := pushTo(t.Context(), t, n, "good", 1000, 9); list[0].Err != nil {
		t.Error(list[0].Err)
	}
	for _, p := range n.roster.Load().peers {
		if p.Name() == "never" {
			p.mu.Lock()
			p.since = time.Now().Add(-2 * stuckTime)
			p.mu.Unlock()
		}
	}
	list := pushTo(t.Context(), t, n, "never", 1000, 10)
	if !errors.Is(list[0].Err, wire.CodeBusy) || !strings.Contains(list[0].Err.Error(), "2 transfers of peer never have not ended") {
		t.Errorf("a peer with transfers that are stuck: %v", list[0].Err)
	}
}

// Transfers that never end take the staging, and in the end the helper, which is started
// again under another name; nothing of theirs is left.
func TestTransfersThatNeverEndCostTheHelperAndNoMore(t *testing.T) {
	n := newFakeNode(t, nil, "never", "never2", "good")
	s := helperOf(t, n)
	open := n.cfg.Windows.Stats()
	stuck := func(peer string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		list := []fabric.Item{item(t, 1, movesATime*pieceBytes-100)} // all its transfers are under way at once
		n.Peer(peer).Push(ctx, list)
		return list[0].Err
	}
	const half = MinStaging / 2
	for lostBytes(n)+movesATime*pieceBytes <= half {
		if err := stuck("never"); err == nil {
			t.Error("it ended")
		}
	}
	// One peer has half at most, and the others go on.
	if err := stuck("never"); !errors.Is(err, wire.CodeDeadline) || lostBytes(n) > half {
		t.Errorf("with half of the staging lost: %v, now %d bytes", err, lostBytes(n))
	}
	if list := pushTo(t.Context(), t, n, "good", 1<<20, 8); list[0].Err != nil || s.err() != nil || lostBytes(n) > half {
		t.Errorf("another peer: %v; the helper: %v; %d bytes of staging are lost", list[0].Err, s.err(), lostBytes(n))
	}
	// Two peers together have more: what the second one is given is lost as well.
	lost := func() uint64 {
		s.stage.mu.Lock()
		defer s.stage.mu.Unlock()
		return s.stage.lost
	}
	for lost() <= half {
		if stuck("never2") == nil {
			t.Error("it ended")
		}
	}
	<-s.quit
	testbed.Until(t, "another helper serves", func() bool { return n.Enabled() == nil && helperOf(t, n).agent != s.agent })
	fakeLends(t, n, "good")
	if list := pushTo(t.Context(), t, n, "good", 1000, 9); list[0].Err != nil || lostBytes(n) != 0 {
		t.Errorf("%v, %d bytes of staging are lost", list[0].Err, lostBytes(n))
	}
	if now := n.cfg.Windows.Stats(); now.Windows != open.Windows || now.Bytes != open.Bytes || now.InFlight != open.InFlight {
		t.Errorf("windows: %+v, before %+v", now, open)
	}
}

// A transfer that fails spoils no other of its batch, and its bytes rest: the library does
// not say that the last of them has moved.
func TestATransferThatFailsSpoilsNoOther(t *testing.T) {
	n := newFakeNode(t, nil, "breaks", "good")
	bad, good := pushTo(t.Context(), t, n, "breaks", 1000, 1, 2), pushTo(t.Context(), t, n, "good", 1000, 1, 2)
	for i := range bad {
		if !errors.Is(bad[i].Err, wire.CodeUnreachable) || !strings.Contains(bad[i].Err.Error(), "nixl_capi_get_xfer_status: backend error (-2)") || good[i].Err != nil {
			t.Errorf("item %d: %v, of the good peer %v", i, bad[i].Err, good[i].Err)
		}
	}
	if lostBytes(n) == 0 {
		t.Error("the staging of a transfer that failed under way does not rest")
	}
	// A peer of which a transfer failed is removed, and added again only after a pause: the
	// fake library ends the helper otherwise.
	s := helperOf(t, n)
	for range 2 {
		testbed.Until(t, "the peer is added again", func() bool {
			p := n.Peers()[0]
			return p.State == fabric.PeerReady
		})
		_ = pushTo(t.Context(), t, n, "breaks", 1000, 1)
		testbed.Until(t, "the peer is removed", func() bool { return n.Peers()[0].State != fabric.PeerReady })
	}
	if err := s.err(); err != nil {
		t.Error(err)
	}
}

// A batch is cut into transfers, of which some are at once under way; each item ends once.
func TestABatchIsCutIntoTransfers(t *testing.T) {
	n := newFakeNode(t, nil, "good")
	var keys []uint64
	for key := range uint64(40) {
		keys = append(keys, key)
	}
	list := pushTo(t.Context(), t, n, "good", 300_000, keys...)
	for i := range list {
		if list[i].Err != nil {
			t.Fatal(list[i].Err)
		}
	}
	for range 2 { // the second time by lists that are prepared
		got := make([]fabric.Item, len(list))
		for i := range got {
			got[i] = list[i]
			got[i].M.B = make([]byte, len(list[i].M.B))
		}
		n.Pull(t.Context(), got)
		for i := range got {
			if got[i].Err != nil || !bytes.Equal(got[i].M.B, list[i].M.B) {
				t.Fatalf("item %d: other bytes, or %v", i, got[i].Err)
			}
		}
	}
}

// From one moment on every call of the library fails: what is asked fails with that, the
// helper is started again, and serves as soon as the library does.
func TestALibraryOfWhichEveryCallFails(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	n := newFakeNode(t, func(c *Config) { c.Helper.Params = []string{"broken_by=" + broken} }, "good")
	s := helperOf(t, n)
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-s.quit
	if list := pushTo(t.Context(), t, n, "good", 1000, 1); !errors.Is(list[0].Err, wire.CodeUnreachable) {
		t.Errorf("a push: %v", list[0].Err)
	}
	if err := s.err(); !strings.Contains(err.Error(), "nixl_capi_get_notifs: backend error (-2)") {
		t.Errorf("it ended by %v", err)
	}
	testbed.Until(t, "it is said why there is none", func() bool {
		err := n.Enabled()
		return err != nil && strings.Contains(err.Error(), "backend error (-2)")
	})
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "another helper serves, or none is tried again", func() bool {
		err := n.Enabled()
		return err == nil || strings.Contains(err.Error(), "3 times in a row")
	})
}

// A notification that cannot be sent is counted, and nothing else fails for it.
func TestANotificationThatCannotBeSentIsCounted(t *testing.T) {
	n := newFakeNode(t, func(c *Config) { c.Notify = true }, "mute")
	testbed.Until(t, "the answer to what it lends is counted", func() bool { return n.count.untold.Load() > 0 })
	before := n.count.untold.Load()
	list := pushTo(t.Context(), t, n, "mute", 1000, 1, 2)
	if list[0].Err != nil || list[1].Err != nil || n.count.untold.Load() != before+2 {
		t.Errorf("%v, %v, %d notifications are counted", list[0].Err, list[1].Err, n.count.untold.Load()-before)
	}
	for _, f := range n.Findings() {
		if f.ID == "untold" && !f.Bad {
			t.Error("nobody is told")
		}
	}
}

// A peer that asks for more than is done at a time is refused, and holds up nobody.
func TestNotificationsBeyondTheirBoundAreDropped(t *testing.T) {
	ns, key := wire.Namespace{1}, wire.Key{7}
	n := newFakeNode(t, func(c *Config) {
		c.Tenants, c.Tenant = []string{"acme"}, func(wire.Namespace) (string, bool) { return "acme", true }
		store := c.Store.(*blocks.Store)
		if err := store.AddNamespace(ns, [32]byte{1}); err != nil {
			t.Fatal(err)
		}
		body := testbed.Content(1000, 1)
		o := store.NewOwner(0)
		v, err := store.Reserve(o, ns, []uint32{uint32(len(body))}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		block := &blocks.Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key, Len: uint32(len(body)), Att: wire.AttestProducer}
		if err := store.Ingest(o, body, block); err != nil {
			t.Fatal(err)
		}
	}, "never", "good")
	s := helperOf(t, n)
	get := message{verb: verbGet, ns: ns, key: key, addr: 1 << 40, n: 2000}
	s.deliver("never", []byte(get.String()))
	testbed.Until(t, "the get is under way", func() bool { return n.doing.Load() == 1 })
	before := n.count.refusals.Load()
	const more = 10
	for range heard + more {
		s.deliver("never", []byte(get.String()))
	}
	s.deliver("somebody", []byte("hello"))
	if dropped := n.count.refusals.Load() - before; dropped != more+1 {
		t.Errorf("%d notifications were dropped, want %d", dropped, more+1)
	}
	if list := pushTo(t.Context(), t, n, "good", 1000, 1); list[0].Err != nil {
		t.Error(list[0].Err)
	}
}
