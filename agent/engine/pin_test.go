package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// pinBody is a size of which 4 fit an extent of pinExtent, and pinRoom the whole arena.
const (
	pinBody   = 4096
	pinExtent = 16384
	pinRoom   = 340
)

// clock is one that tests move.
type clock struct{ now atomic.Int64 }

func (c *clock) read() time.Duration  { return time.Duration(c.now.Load()) }
func (c *clock) move(d time.Duration) { c.now.Add(int64(d)) }

// pinNode is a daemon with an arena of pinRoom blocks.
func pinNode(t *testing.T, change func(*blocks.Config, *engine.Config)) (*node, *clock) {
	t.Helper()
	c := new(clock)
	return startNode(t, func(b *blocks.Config, e *engine.Config) {
		b.Capacity, b.ExtentBytes, b.Clock = pinRoom/4*pinExtent, pinExtent, c.read
		if change != nil {
			change(b, e)
		}
	}), c
}

// inGroup dials a session of a group, and opens acme's namespace.
func (n *node) inGroup(t testing.TB, inc uint64, o client.Options) (*client.Engine, client.NS) {
	t.Helper()
	o.Group = &client.Group{Agent: [16]byte{9}, Inc: inc}
	e := n.dial(t, o)
	ns, err := e.Open(ctx, manifest("acme"))
	if err != nil {
		t.Fatal(err)
	}
	return e, ns
}

// pinBlocks are n blocks of a request; their names count from at on.
func pinBlocks(ns client.NS, req uint32, pin time.Duration, at, n int) []client.Block {
	out := make([]client.Block, n)
	for i := range out {
		out[i] = client.Block{NS: ns, Key: keyOf(fmt.Sprint("p", at+i)), Tier: wire.OutputCritical, Body: body(byte(at+i), pinBody), Req: req, Pin: pin}
	}
	return out
}

func begin(t testing.TB, e *client.Engine) uint32 {
	t.Helper()
	req, err := e.Begin(ctx, client.Begin{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// counts is how many errors have which code.
func counts(errs []error) map[wire.Code]int {
	m := map[wire.Code]int{}
	for _, err := range errs {
		m[wire.CodeOf(err)]++
	}
	return m
}

// lostBlocks gathers what OnEvicted says.
type lostBlocks struct {
	mu   sync.Mutex
	list []client.Evicted
}

func (l *lostBlocks) add(list []client.Evicted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, list...)
}

func (l *lostBlocks) all() []client.Evicted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *lostBlocks) keys() []wire.Key {
	var keys []wire.Key
	for _, x := range l.all() {
		keys = append(keys, x.Key)
	}
	return keys
}

// 480 blocks of a running request do not fit where 340 do. With PIN the rest is refused,
// with the values; without it all are stored, and every session of the engine is told
// which were evicted for that.
func TestBlocksOfARunningRequestDoNotGoSilently(t *testing.T) {
	const asked = 480
	n, _ := pinNode(t, nil)
	var lost, too lostBlocks
	e, ns := n.inGroup(t, 1, client.Options{OnEvicted: lost.add})
	n.inGroup(t, 1, client.Options{OnEvicted: too.add})
	old, oldNS := n.open(t) // an engine without a group is told nothing, and works on

	req := begin(t, e)
	errs := e.Put(ctx, pinBlocks(ns, req, time.Minute, 0, asked))
	if got := counts(errs); got[wire.CodeOK] != pinRoom || got[wire.CodeFull] != asked-pinRoom {
		t.Fatalf("with PIN: %v, want %d OK and %d FULL", got, pinRoom, asked-pinRoom)
	}
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if err := errs[i].Error(); !strings.Contains(err, "arena full: need") {
		t.Errorf("the first that is FULL says %q", err)
	}
	if st := n.store.Stats(); st.Pins != pinRoom || st.Evictions != [3]uint64{} {
		t.Errorf("%d pins, evictions %v", st.Pins, st.Evictions)
	}
	if err := e.Finish(ctx, req, false); err != nil {
		t.Fatal(err)
	}
	if st := n.store.Stats(); st.Pins != 0 || st.PinBytes != 0 || st.PinsEnded[blocks.PinUnpinned] != pinRoom {
		t.Errorf("after FINISH: %d pins with %d bytes, ended %v", st.Pins, st.PinBytes, st.PinsEnded)
	}

	req = begin(t, e)
	if got := counts(e.Put(ctx, pinBlocks(ns, req, 0, 1000, asked))); got[wire.CodeOK] != asked {
		t.Fatalf("without PIN: %v, want %d OK", got, asked)
	}
	var want []wire.Key // those that are not here
	for i := range asked {
		if _, err := n.store.Stat(keyOf(fmt.Sprint("p", 1000+i))); err != nil {
			want = append(want, keyOf(fmt.Sprint("p", 1000+i)))
		}
	}
	for name, l := range map[string]*lostBlocks{"the session that put": &lost, "the other session": &too} {
		eventually(t, name+" is told of all", func() bool { return len(l.keys()) >= len(want) })
		if !sameKeys(l.keys(), want) || len(want) != asked-pinRoom {
			t.Errorf("%s was told of %d blocks; %d are gone", name, len(l.keys()), len(want))
		}
		for _, x := range l.all() {
			if x.Req != req || x.NS != ns {
				t.Fatalf("it was told %+v, want request %d in namespace %d", x, req, ns)
			}
		}
	}
	if st := n.srv.Stats(); st.Evicted != asked-pinRoom {
		t.Errorf("counted %d", st.Evicted)
	}
	put(t, old, client.Block{NS: oldNS, Key: keyOf("old"), Tier: wire.OutputCritical, Body: body(1, pinBody)})
	if err := e.Finish(ctx, req, false); err != nil {
		t.Fatal(err)
	}
	told := len(lost.keys())
	if got := counts(e.Put(ctx, pinBlocks(ns, 0, 0, 2000, pinRoom))); got[wire.CodeOK] != pinRoom {
		t.Fatal(got)
	}
	if err := e.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(lost.keys()); got > told+1 { // that one had to go for "old"
		t.Errorf("%d blocks of a finished request were told", got-told)
	}
}

func sameKeys(a, b []wire.Key) bool {
	cmp := func(x, y wire.Key) int { return bytes.Compare(x[:], y[:]) }
	slices.SortFunc(a, cmp)
	slices.SortFunc(b, cmp)
	return slices.Equal(a, b)
}

// pinned is how many blocks of names are pinned.
func (n *node) pinned(t testing.TB, names ...string) (pins int) {
	t.Helper()
	for _, name := range names {
		if v, err := n.store.Stat(keyOf(name)); err == nil && v.Pins > 0 {
			pins++
		}
	}
	return pins
}

// pull is what a fabric says when a peer has read blocks.
func (n *node) pull(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		v, err := n.store.Stat(keyOf(name))
		if err != nil {
			t.Fatal(err)
		}
		n.store.Pulled([]wire.Ref{v.Ref})
	}
}

// A pin ends when a peer has pulled the block, when its time is over, with its request,
// or with the last session, and no time is above the daemon's.
func TestPinsEnd(t *testing.T) {
	n, c := pinNode(t, func(_ *blocks.Config, e *engine.Config) { e.Limits.MaxPin = time.Minute })
	e, ns := n.inGroup(t, 1, client.Options{})
	other, otherNS := n.inGroup(t, 1, client.Options{})
	names := []string{"p0", "p1", "p2", "p3"}
	store := func(e *client.Engine, ns client.NS, req uint32, pin time.Duration, at, k int, want wire.Code) {
		t.Helper()
		for _, err := range e.Put(ctx, pinBlocks(ns, req, pin, at, k)) {
			if wire.CodeOf(err) != want {
				t.Fatalf("PUT: %v, want %s", err, want)
			}
		}
	}
	req := begin(t, e)
	store(e, ns, req, time.Hour, 0, 4, wire.CodeOK)
	n.pull(t, "p0", "p0")
	if got := n.pinned(t, names...); got != 3 {
		t.Errorf("%d of 4 are pinned after a pull of one", got)
	}
	store(other, otherNS, req, 10*time.Second, 1, 1, wire.CodeExists) // another session sets the time of p1
	c.move(11 * time.Second)
	n.store.Step(blocks.Input{})
	if got := n.pinned(t, names...); got != 2 {
		t.Errorf("%d of 4 are pinned when the time of one is over", got)
	}
	c.move(50 * time.Second)
	n.store.Step(blocks.Input{})
	if got := n.pinned(t, names...); got != 0 {
		t.Errorf("%d of 4 are pinned after the most that a pin may last", got)
	}
	// Two requests have a block: each has its pin, and a pull is one peer's.
	again, err := other.Begin(ctx, client.Begin{Req: 77, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	store(e, ns, req, time.Minute, 0, 1, wire.CodeExists)
	store(other, otherNS, again, time.Minute, 0, 1, wire.CodeExists)
	n.pull(t, "p0")
	if got := n.pinned(t, "p0"); got != 1 {
		t.Error("a pull ended the pins of two requests")
	}
	if err := other.Finish(ctx, again, true); err != nil {
		t.Fatal(err)
	}
	if got := n.pinned(t, "p0"); got != 0 {
		t.Error("the block is pinned after its request was aborted")
	}
	// A block of no request, one of a request that is not known, and a late one of a
	// request that has ended.
	if err := e.Finish(ctx, req, false); err != nil {
		t.Fatal(err)
	}
	store(e, ns, 0, time.Minute, 10, 1, wire.CodeOK)
	store(e, ns, 999, time.Minute, 11, 1, wire.CodeOK)
	store(e, ns, req, time.Minute, 12, 1, wire.CodeOK)
	if got := n.pinned(t, "p10", "p11", "p12"); got != 3 {
		t.Errorf("%d of 3 blocks of no request are pinned", got)
	}
	e.Close()
	n.wait(1)
	if got := n.pinned(t, "p10", "p11", "p12"); got != 3 {
		t.Errorf("%d of 3 are pinned when one of two sessions is gone", got)
	}
	other.Close()
	n.wait(1)
	if st := n.store.Stats(); st.Pins != 0 || st.PinBytes != 0 || st.PinsEnded[blocks.PinDropped] != 3 {
		t.Errorf("after the last session: %d pins, ended %v", st.Pins, st.PinsEnded)
	}
}

// A hand-off pins what the request has, but for what a peer has pulled while the request
// ran. It is idempotent, and its number is free.
func TestHandoffKeepsWhatWaitsForAPeer(t *testing.T) {
	n, c := pinNode(t, nil)
	var lost lostBlocks
	e, ns := n.inGroup(t, 1, client.Options{OnEvicted: lost.add})
	req := begin(t, e)
	put := func(at, k int, pin time.Duration, tier wire.Tier) {
		t.Helper()
		b := pinBlocks(ns, req, pin, at, k)
		for i := range b {
			b[i].Tier = tier
		}
		for _, err := range e.Put(ctx, b) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 2, time.Minute, wire.OutputCritical)
	put(2, 2, 0, wire.OutputCritical)
	put(4, 1, 0, wire.ThinkActive)
	n.pull(t, "p0", "p4")
	text, err := e.Handoff(ctx, req, 20*time.Second)
	if err != nil || text != "3 blocks are kept for 20s, 1 were pulled already" {
		t.Fatalf("HANDOFF: %q, %v", text, err)
	}
	if got := n.pinned(t, "p1", "p2", "p3"); got != 3 {
		t.Errorf("%d of 3 are pinned", got)
	}
	if v, _ := n.store.Stat(keyOf("p1")); v.Tier != wire.ThinkComplete {
		t.Errorf("the request is done, and its block is %s", v.Tier)
	}
	for range 2 {
		if text, err = e.Handoff(ctx, req, time.Second); err != nil || !strings.Contains(text, "does not run") {
			t.Errorf("HANDOFF again: %q, %v", text, err)
		}
	}
	// The number may be another request's, whose end ends none of the pins.
	if _, err := e.Begin(ctx, client.Begin{Req: req, Model: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Finish(ctx, req, false); err != nil {
		t.Fatal(err)
	}
	// An arena of other blocks does not take them.
	if got := counts(e.Put(ctx, pinBlocks(ns, 0, 0, 1000, pinRoom+50))); got[wire.CodeOK] != pinRoom+50 {
		t.Fatal(got)
	}
	if got := n.pinned(t, "p1", "p2", "p3"); got != 3 {
		t.Errorf("%d of 3 survived", got)
	}
	n.pull(t, "p1")
	c.move(21 * time.Second)
	n.store.Step(blocks.Input{})
	if st := n.store.Stats(); st.Pins != 0 || st.PinsEnded[blocks.PinPulled] != 2 || st.PinsEnded[blocks.PinLapsed] != 2 {
		t.Errorf("%d pins, ended %v", st.Pins, st.PinsEnded)
	}
	if _, err := e.Handoff(ctx, req, 0); wire.CodeOf(err) != wire.CodeInvalid {
		t.Errorf("HANDOFF for no time: %v", err)
	}
	if len(lost.keys()) != 0 {
		t.Errorf("%d blocks of no request were told", len(lost.keys()))
	}
}

// What an engine pins counts for its share, however it asks; of what it may not pin the
// values are said, and the others have their part.
func TestPinsAreOfTheEnginesShare(t *testing.T) {
	n, _ := pinNode(t, func(b *blocks.Config, _ *engine.Config) { b.Shares.Engine = 0.5 })
	e, ns := n.inGroup(t, 1, client.Options{})
	other, otherNS := n.inGroup(t, 2, client.Options{})
	const share = pinRoom / 2
	req := begin(t, e)
	if got := counts(e.Put(ctx, pinBlocks(ns, req, 0, 0, 200))); got[wire.CodeOK] != 200 {
		t.Fatal(got)
	}
	// Known keys are pinned one by one, until the share is used up.
	errs := e.Put(ctx, pinBlocks(ns, req, time.Minute, 0, 200))
	fit := counts(errs)[wire.CodeExists]
	if want := fit + counts(errs)[wire.CodeFull]; want != 200 || fit < share-4 || fit > share {
		t.Fatalf("pins of known keys: %v, want about %d of 200", counts(errs), share)
	}
	i := slices.IndexFunc(errs, func(err error) bool { return wire.CodeOf(err) == wire.CodeFull })
	if err := errs[i].Error(); !strings.Contains(err, "quota.engine_arena_share") {
		t.Errorf("the first that is FULL says %q", err)
	}
	// So are leases and reservations refused.
	if got := counts(e.Put(ctx, pinBlocks(ns, 0, 0, 300, 1))); got[wire.CodeFull] != 1 {
		t.Errorf("one more block of an engine whose share is pinned: %v", got)
	}
	for range 3 { // the same again is no more
		for i, err := range errs {
			if again := counts(e.Put(ctx, pinBlocks(ns, req, time.Minute, i, 1))); wire.CodeOf(err) == wire.CodeExists && again[wire.CodeExists] != 1 {
				t.Fatal(again)
			}
		}
	}
	if st := n.store.Stats(); st.Pins != fit {
		t.Errorf("%d pins, want %d", st.Pins, fit)
	}
	text, err := e.Handoff(ctx, req, time.Minute)
	if want := fmt.Sprintf("%d blocks are kept for 1m0s, %d are not kept: ", fit, 200-fit); err != nil || !strings.HasPrefix(text, want) {
		t.Errorf("HANDOFF: %q, %v", text, err)
	}
	if got := counts(other.Put(ctx, pinBlocks(otherNS, 0, time.Minute, 500, share-4))); got[wire.CodeOK] != share-4 {
		t.Errorf("the other engine: %v", got)
	}
}

// An engine that handed a request off to a peer that will not come ends that early, by
// an abort: nothing is pinned any more. Of a number that is in use again, or was finished
// as done, the abort ends nothing of the earlier request.
func TestAHandoffEndsEarlyByAnAbort(t *testing.T) {
	n, _ := pinNode(t, nil)
	e, ns := n.inGroup(t, 1, client.Options{})
	other, _ := n.inGroup(t, 1, client.Options{})
	handOff := func(at int) uint32 {
		t.Helper()
		req := begin(t, e)
		if got := counts(e.Put(ctx, pinBlocks(ns, req, 0, at, 3))); got[wire.CodeOK] != 3 {
			t.Fatal(got)
		}
		if text, err := e.Handoff(ctx, req, time.Minute); err != nil || !strings.HasPrefix(text, "3 blocks are kept") {
			t.Fatalf("%q, %v", text, err)
		}
		return req
	}
	first, second := handOff(0), handOff(10)
	abort := func(e *client.Engine, req uint32, abort bool, want int) {
		t.Helper()
		if err := e.Finish(ctx, req, abort); err != nil {
			t.Fatal(err)
		}
		if st := n.store.Stats(); st.Pins != want {
			t.Errorf("%d blocks are pinned, want %d", st.Pins, want)
		}
	}
	abort(e, first, false, 6)
	abort(e, first+1000, true, 6)
	abort(other, first, true, 3) // any session of the group
	abort(e, first, true, 3)
	r, _ := n.join(t, member{agent: 9, inc: 1})
	if _, end := r.ask(1, message(link.TypeBegin, 1, link.Begin{Req: second, Model: "m"})); end.Code != wire.CodeOK {
		t.Fatalf("BEGIN with the number again: %s", end.Code)
	}
	abort(e, second, true, 3)
	abort(e, second, true, 3)
}

// What a group remembers of hand-offs is bounded, and the oldest go first.
func TestHandoffsThatCanEndEarlyAreBounded(t *testing.T) {
	const most = 4096
	n, _ := pinNode(t, nil)
	e, ns := n.inGroup(t, 1, client.Options{})
	var reqs []uint32
	for i := range most + 2 {
		req := begin(t, e)
		if i == 0 || i > most {
			if got := counts(e.Put(ctx, pinBlocks(ns, req, 0, i, 1))); got[wire.CodeOK] != 1 {
				t.Fatal(got)
			}
		} else if got := counts(e.Put(ctx, pinBlocks(ns, req, 0, 1, 1))); len(got) != 1 { // all of them one block
			t.Fatal(got)
		}
		if _, err := e.Handoff(ctx, req, time.Minute); err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, req)
	}
	before := n.store.Stats().Pins
	_ = e.Finish(ctx, reqs[0], true)
	if got := n.store.Stats().Pins; got != before {
		t.Errorf("the oldest: %d pins, there were %d", got, before)
	}
	_ = e.Finish(ctx, reqs[most+1], true)
	if got := n.store.Stats().Pins; got != before-1 {
		t.Errorf("the latest: %d pins, there were %d", got, before)
	}
}
