package store

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/structpack"
	"meridian/wire"
)

// nodeMaster is a fake master that knows a client and a segment, or none.
type nodeMaster struct {
	*fakeMaster
	mu        sync.Mutex
	client    UUID
	segments  []Segment // that were ever mounted
	unmounted []UUID
	refuse    int32
	log       lockedBuffer // of the node
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func newNodeMaster(t *testing.T) *nodeMaster {
	m := &nodeMaster{fakeMaster: newFakeMaster(t)}
	answers(m.fakeMaster, fnRemount, askRemount, func(q remount) expected[structpack.Void] {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.refuse == 0 {
			m.client, m.segments = q.Client, append(m.segments, q.Segments...)
		}
		return expected[structpack.Void]{Code: m.refuse}
	})
	answers(m.fakeMaster, fnPing, askUUID, func(u UUID) expected[pong] {
		m.mu.Lock()
		defer m.mu.Unlock()
		if u == m.client {
			return expected[pong]{Value: pong{Status: statusOK}}
		}
		return expected[pong]{Value: pong{Status: statusNeedRemount}}
	})
	answers(m.fakeMaster, fnUnmount, askUnmount, func(q unmount) expected[structpack.Void] {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.unmounted = append(m.unmounted, q.Segment)
		return expected[structpack.Void]{}
	})
	return m
}

func (m *nodeMaster) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.client = UUID{}
}

// steppedNode is a node that steps when the test says.
func steppedNode(t *testing.T, m *nodeMaster) (*Node, *Lent, chan<- time.Time) {
	t.Helper()
	return hiddenNode(t, m, nil)
}

func hiddenNode(t *testing.T, m *nodeMaster, hidden func() error) (*Node, *Lent, chan<- time.Time) {
	t.Helper()
	lent, err := NewLent(MinLent)
	if err != nil {
		t.Fatal(err)
	}
	tick := make(chan time.Time)
	n, err := startNode(NodeOptions{Log: slog.New(slog.NewTextHandler(&m.log, nil)), Masters: m.masters, Lent: lent, Name: "n", Segment: "127.0.0.1:1", Hidden: hidden, Timeout: time.Minute}, tick, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, lent, tick
}

func until(t *testing.T, n *Node, ok func(Status) bool) {
	t.Helper()
	if err := n.Wait(realstore.Bounded(t), ok); err != nil {
		t.Fatal(err)
	}
}

// An access that is under way when the node is forgotten goes on in the memory where
// it began; that memory is never offered again, and nothing new is offered before the
// access has ended.
func TestAForgottenNodeOffersOtherMemoryAtOtherAddresses(t *testing.T) {
	m := newNodeMaster(t)
	n, lent, tick := steppedNode(t, m)
	until(t, n, serving)
	old := n.Status().Base
	b, leave, err := lent.Enter("peer", old+4096, 5, true)
	if err != nil {
		t.Fatal(err)
	}
	m.forget()
	tick <- time.Time{}
	until(t, n, func(s Status) bool { return errors.Is(s.Err, errFormer) })
	copy(b, "late!")
	if _, _, err := lent.Enter("peer", old+4096, 5, false); !errors.Is(err, wire.CodeStale) {
		t.Errorf("an address of before: %v, want %v", err, wire.CodeStale)
	}
	leave(5)
	tick <- time.Time{}
	until(t, n, func(s Status) bool { return s.State == NodeServing && s.Offers == 2 })
	now := n.Status().Base
	if now == old {
		t.Fatal("the addresses of before are offered again")
	}
	b, leave, err = lent.Enter("peer", now+4096, 5, false)
	if err != nil || string(b) == "late!" {
		t.Errorf("%q, %v", b, err)
	}
	leave(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.segments) != 2 || m.segments[0].ID == m.segments[1].ID || len(m.unmounted) != 1 || m.unmounted[0] != m.segments[0].ID {
		t.Errorf("segments %+v, unmounted %v", m.segments, m.unmounted)
	}
}

func TestAnAccessOutsideOfWhatIsLentIsRefused(t *testing.T) {
	lent, err := NewLent(MinLent)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := lent.Enter("p", 0, 1, false); !errors.Is(err, wire.CodeStale) {
		t.Error("before any offer:", err)
	}
	base, err := lent.offer()
	if err != nil {
		t.Fatal(err)
	}
	defer lent.withdraw()
	for _, c := range []struct {
		addr, n uint64
		ok      bool
	}{
		{base, MinLent, true}, {base + MinLent - 1, 1, true}, {base, MinLent + 1, false}, {base - 1, 2, false}, {base + MinLent, 1, false},
		{base + 1, MinLent, false}, {0, 1, false}, {1<<64 - 1, 2, false}, {base, 1<<64 - 1, false},
	} {
		b, leave, err := lent.Enter("p", c.addr, c.n, false)
		if (err == nil) != c.ok || err == nil && (uint64(len(b)) != c.n || uint64(cap(b)) != c.n) {
			t.Errorf("%d bytes at %#x: %d bytes, %v", c.n, c.addr, len(b), err)
		}
		if err == nil {
			leave(0)
		}
	}
}

// A node that no peer can open offers nothing: what the master gave out of it could not
// be written. One whose name another node has by now takes back what it offered; one whose
// metadata server is away does not.
func TestANodeThatNobodyCanOpenOffersNothing(t *testing.T) {
	m := newNodeMaster(t)
	why := errors.New("hidden")
	var mu sync.Mutex
	n, lent, tick := hiddenNode(t, m, func() error {
		mu.Lock()
		defer mu.Unlock()
		return why
	})
	until(t, n, func(s Status) bool { return errors.Is(s.Err, why) })
	if _, size := lent.Range(); size != 0 || n.Status().State != NodeOffering {
		t.Error("offered:", n.Status())
	}
	mu.Lock()
	why = nil
	mu.Unlock()
	tick <- time.Time{}
	until(t, n, serving)
	say := func(err error) {
		mu.Lock()
		why = err
		mu.Unlock()
		tick <- time.Time{}
		tick <- time.Time{} // taken when the step before has ended
	}
	say(wire.CodeUnreachable)
	if n.Status().State != NodeServing {
		t.Error("without a metadata server:", n.Status())
	}
	say(wire.CodeExists)
	if _, size := lent.Range(); size != 0 || n.Status().State != NodeOffering {
		t.Error("after its name was taken:", n.Status())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.segments) != 1 || len(m.unmounted) != 1 {
		t.Error("mounted:", m.segments, "unmounted:", m.unmounted)
	}
}

func TestANodeThatTheMasterRefusesSaysWhyAndTriesAgain(t *testing.T) {
	m := newNodeMaster(t)
	m.mu.Lock()
	m.refuse = -102
	m.mu.Unlock()
	n, lent, tick := steppedNode(t, m)
	until(t, n, func(s Status) bool { return errors.Is(s.Err, Code(-102)) })
	if s := n.Status(); s.State != NodeOffering {
		t.Error(s)
	}
	for range 5 {
		tick <- time.Time{}
	}
	if told := m.log.count("not offered"); told != 1 {
		t.Errorf("the log has it %d times", told)
	}
	first, _ := lent.Range()
	m.mu.Lock()
	m.refuse = 0
	m.mu.Unlock()
	tick <- time.Time{}
	until(t, n, serving)
	if second, _ := lent.Range(); second == first {
		t.Error("the second try offers the addresses of the first")
	}
}

func TestADrainedNodeOffersNothingAnyMore(t *testing.T) {
	m := newNodeMaster(t)
	n, _, tick := steppedNode(t, m)
	until(t, n, serving)
	answers(m.fakeMaster, fnGracefulUnmount, askGraceful, func(q gracefulUnmount) expected[structpack.Void] {
		if q.GraceMS != 1500 {
			t.Errorf("grace of %d ms", q.GraceMS)
		}
		return expected[structpack.Void]{}
	})
	there := int32(0)
	answers(m.fakeMaster, fnSegmentStatus, askUUID, func(UUID) expected[int32] {
		m.mu.Lock()
		defer m.mu.Unlock()
		return expected[int32]{Value: 4, Code: there}
	})
	done := make(chan error, 1)
	go func() { done <- n.Drain(realstore.Bounded(t), 1500*time.Millisecond) }()
	until(t, n, func(s Status) bool { return s.State == NodeDraining })
	tick <- time.Time{}
	m.mu.Lock()
	there = int32(CodeNoSegment)
	m.mu.Unlock()
	tick <- time.Time{}
	if err := <-done; err != nil || n.Status().State != NodeDrained {
		t.Error(err, n.Status())
	}
	m.forget()
	tick <- time.Time{}
	tick <- time.Time{}
	if s := n.Status(); s.Offers != 1 || s.State != NodeDrained {
		t.Errorf("%+v", s)
	}
	if err := n.Close(); err != nil || n.Close() != nil {
		t.Error(err)
	}
}

func TestNodesOfASizeOrNameThatCannotBeAreRefused(t *testing.T) {
	for _, size := range []uint64{0, MinLent - 1, MaxLent + 1} {
		if _, err := NewLent(size); err == nil {
			t.Error(size, "bytes are lent")
		}
	}
	if _, err := StartNode(NodeOptions{Segment: "a:1"}); err == nil {
		t.Error("a node without a name started")
	}
}
