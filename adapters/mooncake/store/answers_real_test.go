package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/realstore"
	"meridian/wire"
)

// What the real master refuses, and what it makes of leases, ranges, batches, a drain
// and a probe.
func TestTheRealMasterAnswers(t *testing.T) {
	master := realstore.StartMaster(t, "--default_kv_lease_ttl=2000")
	node := ourNode(t, master, 64<<20)
	ours := ourClient(t, master)
	theirs := realstore.StartClient(t, master.Address, 0, realstore.WithChecksum...)
	t.Run("a probe finds no difference", func(t *testing.T) {
		r, err := ours.Probe(realstore.Bounded(t))
		if err != nil || !r.Fits() {
			t.Fatal(err, r)
		}
		t.Log(r)
	})
	t.Run("refusals", func(t *testing.T) { refusals(t, ours, theirs) })
	t.Run("a payload is MRDN to a reader made from the page", func(t *testing.T) { mrdnPayload(t, ours, theirs) })
	t.Run("batches", func(t *testing.T) { batches(t, ours, theirs) })
	t.Run("a range", func(t *testing.T) { ranges(t, ours, theirs) })
	t.Run("a lease that ran out", func(t *testing.T) { leases(t, ours) })
	t.Run("a drain", func(t *testing.T) { drain(t, node, ours) })
}

// It has a master of its own, since one that finds no space evicts objects for some time.
func TestTheRealMasterHasNoSpace(t *testing.T) {
	master := realstore.StartMaster(t)
	ourNode(t, master, 16<<20)
	ours := ourClient(t, master)
	if _, err := ours.Put(realstore.Bounded(t), "large", make([]byte, 17<<20)); !errors.Is(err, CodeNoSpace) {
		t.Errorf("put of more than there is: %v, want %v", err, CodeNoSpace)
	}
}

// A master says 2.0.0 whatever its release is. A probe names each function that differs from
// those that are spoken; a call of one that differs fails and says so, and where none
// differs a put is understood.
func TestAMasterOfAnotherReleaseIsToldByItsFunctions(t *testing.T) {
	ours := ourClient(t, realstore.StartMaster(t))
	r, err := ours.Probe(realstore.Bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	_, err = ours.Put(realstore.Bounded(t), "a", []byte("b"))
	differs := func(name string) bool {
		return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Function == name && f.Err != nil })
	}
	switch {
	case differs(fnPutStart.Name) && (err == nil || errors.Is(err, CodeNoSpace)):
		t.Errorf("%s differs, and a put: %v", fnPutStart.Name, err)
	case !differs(fnPutStart.Name) && !errors.Is(err, CodeNoSpace): // there is no node
		t.Errorf("a put to a master without nodes: %v", err)
	}
	if r.Fits() != !strings.Contains(r.String(), "differs: ") {
		t.Errorf("fits: %v, and it says\n%s", r.Fits(), r)
	}
}

func refusals(t *testing.T, ours *Client, theirs *realstore.Client) {
	ctx := realstore.Bounded(t)
	if _, _, err := ours.Get(ctx, "nothing", 1); !errors.Is(err, CodeNotFound) {
		t.Errorf("get of nothing: %v, want %v", err, CodeNotFound)
	}
	if err := ours.Remove(ctx, "nothing", false); !errors.Is(err, CodeNotFound) {
		t.Errorf("remove of nothing: %v, want %v", err, CodeNotFound)
	}
	if _, err := ours.Put(ctx, "empty", nil); !errors.Is(err, CodeBadArgument) {
		t.Errorf("put of no bytes: %v, want %v", err, CodeBadArgument)
	}
	theirs.Put("leased", []byte("first"))
	if existed, err := ours.Put(ctx, "leased", []byte("second")); !existed || err != nil {
		t.Errorf("put of what exists: existed %v, %v", existed, err)
	}
	if got, _, err := ours.Get(ctx, "leased", 10); string(got) != "first" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := ours.Remove(ctx, "leased", false); !errors.Is(err, CodeLeased) {
		t.Errorf("remove of what is leased: %v, want %v", err, CodeLeased)
	}
	if err := ours.Remove(ctx, "leased", true); err != nil {
		t.Errorf("forced remove: %v", err)
	}
	if ok, err := ours.Exist(ctx, "leased"); ok || err != nil {
		t.Errorf("exist: %v, %v", ok, err)
	}
}

func mrdnPayload(t *testing.T, ours *Client, theirs *realstore.Client) {
	body := randomBody(9, 20_000)
	h, err := wire.Mint(wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Put(realstore.Bounded(t), "mrdn/1", append(h.Append(nil), body...)); err != nil {
		t.Fatal(err)
	}
	got := realstore.Ask[struct {
		Right bool
		Tier  int
		Body  string
	}](theirs, "mrdn", map[string]any{"key": "mrdn/1"})
	if !got.Right || got.Tier != int(wire.ThinkActive) || got.Body != hex.EncodeToString(body) {
		t.Errorf("the reader sees header right %v, tier %d, %d hexadecimal digits of body", got.Right, got.Tier, len(got.Body))
	}
}

func batches(t *testing.T, ours *Client, theirs *realstore.Client) {
	ctx := realstore.Bounded(t)
	const n = 1500 // more than one call takes
	items, wants, all := make([]Item, n), make([]Want, n), make([]string, n)
	for i := range n {
		all[i] = fmt.Sprintf("batch/%d", i)
		items[i] = Item{Key: all[i], Body: randomBody(uint64(i), 1+i*7)}
		wants[i] = Want{Key: all[i], To: make([]byte, 16<<10)}
	}
	ours.PutBatch(ctx, items)
	wants[7].Key = "batch/none"
	wants[8].To = wants[8].To[:3]
	ours.GetBatch(ctx, wants)
	for i := range n {
		if items[i].Err != nil || items[i].Existed {
			t.Fatal(i, items[i].Err, items[i].Existed)
		}
		switch w := wants[i]; {
		case i == 7:
			if !errors.Is(w.Err, CodeNotFound) {
				t.Errorf("the missing one: %v", w.Err)
			}
		case i == 8:
			if w.Err == nil {
				t.Error("an object was read into less memory than it has")
			}
		case w.Err != nil || !w.Object.Verified || !bytes.Equal(w.To[:w.Object.Size], items[i].Body):
			t.Fatal(i, w.Object, w.Err)
		}
	}
	if got := theirs.Get(all[n-1]); !bytes.Equal(got, items[n-1].Body) {
		t.Error("the real client got other bytes")
	}
	ours.PutBatch(ctx, items[:2])
	if !items[0].Existed || !items[1].Existed {
		t.Error("a second put of the same did not find them")
	}
	for i, err := range ours.RemoveBatch(ctx, all, true) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	there, err := ours.ExistBatch(ctx, all)
	if err != nil || len(there) != n {
		t.Fatal(len(there), err)
	}
	for i, ok := range there {
		if ok {
			t.Fatal(all[i], "is still there")
		}
	}
}

func ranges(t *testing.T, ours *Client, theirs *realstore.Client) {
	ctx := realstore.Bounded(t)
	body := randomBody(3, 70_000)
	theirs.Put("range", body)
	part := make([]byte, 1000)
	if o, err := ours.GetRange(ctx, "range", 69_000, part); err != nil || o.Size == 0 || !bytes.Equal(part, body[69_000:]) {
		t.Error("the last bytes:", err)
	}
	if _, err := ours.GetRange(ctx, "range", 69_001, part); err == nil {
		t.Error("a range beyond the object was read")
	}
	if _, err := ours.GetRange(ctx, "range", 1<<63, part); err == nil {
		t.Error("a range beyond all was read")
	}
}

// slowEngine lets time pass while it reads.
type slowEngine struct {
	Engine
	read func()
}

func (e slowEngine) Read(ctx context.Context, segment string, address uint64, to []byte) error {
	err := e.Engine.Read(ctx, segment, address, to)
	e.read()
	return err
}

func leases(t *testing.T, ours *Client) {
	ctx := realstore.Bounded(t)
	if _, err := ours.Put(ctx, "slow", []byte("bytes")); err != nil {
		t.Fatal(err)
	}
	engine, now := ours.engine, ours.now
	defer func() { ours.engine, ours.now = engine, now }()
	var skew time.Duration
	reads := 0
	ours.now = func() time.Time { return time.Now().Add(skew) }
	ours.engine = slowEngine{engine, func() { reads++; skew += 3 * time.Second }}
	if b, _, err := ours.Get(ctx, "slow", 10); !errors.Is(err, CodeLeaseOver) || b != nil {
		t.Errorf("%q, %v, want %v", b, err, CodeLeaseOver)
	}
	if reads != readTries {
		t.Errorf("%d reads, want %d", reads, readTries)
	}
	ours.engine = slowEngine{engine, func() {
		if reads++; reads == readTries+1 {
			skew += 3 * time.Second
		}
	}}
	if b, _, err := ours.Get(ctx, "slow", 10); string(b) != "bytes" {
		t.Errorf("read again within the lease: %q, %v", b, err)
	}
}

func drain(t *testing.T, node *Node, ours *Client) {
	ctx := realstore.Bounded(t)
	if _, err := ours.Put(ctx, "drained", []byte("bytes")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- node.Drain(ctx, 3*time.Second) }()
	if err := node.Wait(ctx, func(s Status) bool { return s.State == NodeDraining }); err != nil {
		t.Fatal(err)
	}
	if b, _, err := ours.Get(ctx, "drained", 10); string(b) != "bytes" {
		t.Errorf("a reader during the drain got %q, %v", b, err)
	}
	if _, err := ours.putStart(ctx, "more", 10); !errors.Is(err, CodeNoSpace) {
		t.Errorf("a put during the drain: %v, want %v", err, CodeNoSpace)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
}
