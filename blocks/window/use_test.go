package window

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
)

// segment is memory without items.
func (r *rig) segment(t *testing.T, s Spec) Window {
	t.Helper()
	w, err := r.Open(r.o, s)
	if err != nil {
		t.Fatal(err)
	}
	if w.FD != -1 || w.Items != nil {
		t.Errorf("a segment that no process maps has descriptor %d and items %v", w.FD, w.Items)
	}
	return w
}

// A payload that a peer wrote becomes a block while its window stays open, and
// whatever is written there afterwards changes no block.
func TestAPayloadInASegmentIsPublishedByCopy(t *testing.T) {
	r := newRig(t)
	w := r.segment(t, Spec{Bytes: 64 << 10, TTL: Forever, Read: true, Write: true})
	body := bytes.Repeat([]byte{7}, 300)
	head, err := wire.Mint(wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	at := w.Addr + 1001
	if err := r.write(at, head.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := r.write(at+wire.HeaderLen, body); err != nil {
		t.Fatal(err)
	}
	c := blocks.Commit{Key: wire.Key{1}, NS: r.ns, Tier: head.Tier, Head: &head, Att: wire.AttestProducer}
	if err := r.Publish(r.o, at+wire.HeaderLen, &c); err != nil {
		t.Fatal(err)
	}
	if err := r.write(at+wire.HeaderLen, make([]byte, 300)); err != nil {
		t.Errorf("a write after Publish: %v", err)
	}
	if got, h, att, err := r.stored(t, wire.Key{1}); err != nil || !bytes.Equal(got, body) || h != head || att != wire.AttestProducer {
		t.Errorf("%d bytes, header %+v, attest %s, %v", len(got), h, att, err)
	}
	if st := r.Stats(); st.Windows != 1 || st.Blocks != 1 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestPublishRefusesWhatIsNoBlock(t *testing.T) {
	r := newRig(t)
	w := r.segment(t, Spec{Bytes: 4096, TTL: Forever, Write: true})
	other := r.store.NewOwner(0)
	defer r.store.Drop(other)
	head, err := wire.Mint(wire.ThinkActive, []byte("not there"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    blocks.Owner
		addr uint64
		c    blocks.Commit
		want wire.Code
	}{
		"a body that is not its header's": {r.o, w.Addr, blocks.Commit{NS: r.ns, Key: wire.Key{1}, Head: &head}, wire.CodeChecksum},
		"of another owner":                {other, w.Addr, blocks.Commit{NS: r.ns, Key: wire.Key{1}, Len: 8}, wire.CodeStale},
		"beyond the end":                  {r.o, w.Addr + 4090, blocks.Commit{NS: r.ns, Key: wire.Key{1}, Len: 8}, wire.CodeInvalid},
		"of no length":                    {r.o, w.Addr, blocks.Commit{NS: r.ns, Key: wire.Key{1}}, wire.CodeInvalid},
		"without a key":                   {r.o, w.Addr, blocks.Commit{NS: r.ns, Len: 8}, wire.CodeInvalid},
		"in a namespace that is not open": {r.o, w.Addr, blocks.Commit{NS: wire.Namespace{9}, Key: wire.Key{1}, Len: 8}, wire.CodeNSUnknown},
	} {
		if err := r.Publish(c.o, c.addr, &c.c); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if st := r.Stats(); st.Blocks != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
	if _, _, _, err := r.stored(t, wire.Key{1}); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("visible: %v", err)
	}
}

func TestATableWithoutAStorePublishesNothing(t *testing.T) {
	table := New(nil, func() time.Duration { return 1 }, 0, nil)
	w, err := table.Open(1, Spec{Lens: []uint32{8}, TTL: time.Second, Write: true})
	if err != nil {
		t.Fatal(err)
	}
	c := []blocks.Commit{{Key: wire.Key{1}}}
	if err := table.Commit(1, w.Addr, c); err != nil || !errors.Is(c[0].Err, wire.CodeUnsupported) {
		t.Errorf("%v, %v", err, c[0].Err)
	}
}

// The owner hears of a write when its bytes are in place, and before the window can
// end under it.
func TestTheOwnerHearsOfEachWrite(t *testing.T) {
	r := newRig(t)
	var told []wire.Span
	var seen []string
	w := r.segment(t, Spec{Bytes: 100, TTL: Forever, Read: true, Write: true, Wrote: func(s wire.Span) {
		told = append(told, s)
		if st := r.Stats(); st.InFlight != 1 { // a look is allowed: Stats takes the mutex for itself
			seen = append(seen, fmt.Sprint(st))
		}
	}})
	if err := r.write(w.Addr+3, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	_, leave, err := r.Enter("them", w.Addr+50, 20, true)
	if err != nil {
		t.Fatal(err)
	}
	leave(0) // the peer was lost before a byte came
	if _, leave, err = r.Enter("them", w.Addr+50, 20, true); err != nil {
		t.Fatal(err)
	}
	leave(7) // and here in the middle
	leave(20)
	if _, leave, err = r.Enter("them", w.Addr, 20, false); err != nil {
		t.Fatal(err)
	}
	leave(20) // a read writes nothing
	if want := []wire.Span{{Off: 3, Len: 5}, {Off: 50, Len: 7}}; !slices.Equal(told, want) || seen != nil {
		t.Errorf("told %v, want %v; %v", told, want, seen)
	}
	b, done, err := r.Own(r.o, w.Addr+3, 5)
	if err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	done()
	done()
}

func TestDisjointWritesOfAWindowAreBounded(t *testing.T) {
	r := newRig(t)
	w := r.open(t, 4*MaxRuns)
	for i := range uint64(MaxRuns) {
		if err := r.write(w.Addr+2*i, []byte{1}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := r.write(w.Addr+2*MaxRuns, []byte{1}); !errors.Is(err, wire.CodeTooMany) {
		t.Errorf("one run more: %v", err)
	}
	if got := r.Touched(r.o, w.Addr); len(got) != MaxRuns {
		t.Errorf("%d runs", len(got))
	}
	if got := r.Touched(r.o+1, w.Addr); got != nil {
		t.Errorf("another owner is told %d runs", len(got))
	}
}

func TestAHoldersWindowsCountForItsShare(t *testing.T) {
	r := newRig(t)
	var book quota.Book
	r.Table = New(r.hook, r.Table.clock, 4<<20, &book)
	who := quota.Holder{Kind: quota.Engine, Name: "7"}
	book.SetLimit(quota.WindowBytes, quota.Engine, 8192)
	s := Spec{Bytes: 5000, TTL: time.Second, Write: true, For: []quota.Holder{who}}
	w := r.segment(t, s)
	if used := book.Used(quota.WindowBytes, who); used != 8192 {
		t.Errorf("%d bytes count, want whole pages", used)
	}
	var refused *quota.Error
	if _, err := r.Open(r.o, s); !errors.As(err, &refused) || !errors.Is(err, wire.CodeFull) || !strings.Contains(err.Error(), "of windows") {
		t.Errorf("a second: %v", err)
	}
	s.For = nil
	r.segment(t, s)
	r.Close(r.o, w.Addr)
	if used := book.Used(quota.WindowBytes, who); used != 0 {
		t.Errorf("%d bytes count after the end", used)
	}
}
