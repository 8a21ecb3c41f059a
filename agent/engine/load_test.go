package engine_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// loader is a raw engine with one namespace, that loads.
type loader struct {
	*raw
	ns uint16
}

var loaderAgents byte = 100

// loader is the only session of its group.
func (n *node) loader(t testing.TB) *loader {
	t.Helper()
	loaderAgents++
	r, _ := n.join(t, member{agent: loaderAgents, inc: 1})
	return &loader{r, r.open(1, "acme")}
}

// item names a block; flags are WAIT, FETCH, ...
func (r *loader) item(name string, flags uint16) link.LoadItem {
	return link.LoadItem{NS: r.ns, Flags: flags, Key: keyOf(name)}
}

// items are blocks of one letter each.
func (r *loader) items(names string, flags uint16) (items []link.LoadItem) {
	for _, c := range names {
		items = append(items, r.item(string(c), flags))
	}
	return items
}

// load sends LOAD with a deadline of a minute.
func (r *loader) load(req uint64, items ...link.LoadItem) {
	r.t.Helper()
	r.write(message(link.TypeLoad, req, link.Load{DeadlineMS: 60_000, LeaseMS: 30_000, Items: items}))
}

// answer is the next LOADED or END of any request, as text: the status of each item.
func (r *loader) answer() (string, link.Loaded) {
	r.t.Helper()
	for {
		f := r.next()
		switch f.f.Type {
		case link.TypeLoaded:
			x, err := link.Parse[link.Loaded](f.p)
			if err != nil {
				r.t.Fatal(err)
			}
			s := fmt.Sprintf("%d: %d", f.f.Req, x.First)
			granted := false
			for i := range x.Items {
				s += " " + x.Items[i].Status.String()
				granted = granted || x.Items[i].Status == wire.CodeOK
			}
			if granted != (x.Lease != [16]byte{}) {
				r.t.Errorf("%s with lease %x", s, x.Lease)
			}
			return s, x
		case link.TypeEnd:
			e := r.end(f, f.f.Req)
			return strings.TrimSpace(fmt.Sprintf("%d: END %s %s", f.f.Req, e.Code, e.Text)), link.Loaded{}
		}
	}
}

// wants expects answers in that order, and gives the leases back.
func (r *loader) wants(answers ...string) {
	r.t.Helper()
	var leases [][16]byte
	for _, want := range answers {
		got, x := r.answer()
		if got != want {
			r.t.Fatalf("%q, want %q", got, want)
		}
		leases = append(leases, x.Lease)
	}
	r.release(1<<40|1, leases...)
}

// allOf expects n items in any number of parts, in order and all OK, and END OK. It
// returns how many parts came.
func (r *loader) allOf(req uint64, n int) (parts int) {
	r.t.Helper()
	codes, parts, leases := r.parts(req, n)
	if strings.Count(codes, " OK") != n {
		r.t.Errorf("%d items are%s", n, codes)
	}
	if got, _ := r.answer(); got != fmt.Sprintf("%d: END OK", req) {
		r.t.Errorf("%q after %d items", got, n)
	}
	r.release(1<<40|1, leases...)
	return parts
}

// parts reads parts until n items were in them, and returns their statuses and leases.
func (r *loader) parts(req uint64, n int) (codes string, parts int, leases [][16]byte) {
	r.t.Helper()
	for next := 0; next < n; parts++ {
		s, x := r.answer()
		if x.Items == nil || int(x.First) != next {
			r.t.Fatalf("%q, want a part from item %d on", s, next)
		}
		next += len(x.Items)
		codes += strings.TrimPrefix(s, fmt.Sprintf("%d: %d", req, x.First))
		leases = append(leases, x.Lease)
	}
	return codes, parts, leases
}

// ping waits until everything that was sent before has been dealt with by the reader.
func (r *loader) ping() {
	r.t.Helper()
	if _, e := r.ask(1<<41|1, message(link.TypePing, 1<<41|1, link.Empty{})); e.Code != wire.CodeOK {
		r.t.Fatalf("PING: %s", e.Code)
	}
}

// until returns when ok says so.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	for !ok() {
		time.Sleep(100 * time.Microsecond)
	}
}

// nothingWaits asserts that no item and no LOAD is left anywhere.
func (n *node) nothingWaits(t testing.TB) {
	t.Helper()
	if st := n.srv.Stats(); st.ParkedLoads != 0 || st.ParkedItems != 0 || st.Waiting != 0 || st.Asking != 0 {
		t.Errorf("%d LOADs of %d items are parked, %d items wait, %d are asked for", st.ParkedLoads, st.ParkedItems, st.Waiting, st.Asking)
	}
}

func TestALoadOfWhatIsHereIsOnePart(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 500)})
	r := n.loader(t)
	stale, foreign := r.item("a", link.WantWait), r.item("a", link.WantWait)
	stale.Slot, stale.Gen, foreign.NS = 0, 77, 9
	r.load(3, r.item("a", 0), r.item("no", 0), stale, foreign, r.item("b", link.WantWait))
	got, x := r.answer()
	if got != "3: 0 OK ABSENT STALE NS_UNKNOWN OK" {
		t.Errorf("%q", got)
	}
	if x.Items[0].Len != 1000 || x.Items[4].Len != 500 || x.Items[0].Seg == 0 {
		t.Errorf("%+v", x.Items)
	}
	r.wants("3: END OK")
	if st := n.store.Stats(); st.Leases != 1 {
		t.Errorf("%d leases, want that of the part", st.Leases)
	}
	r.release(5, x.Lease)
	r.load(7)
	r.wants("7: END OK")
	n.nothingWaits(t)
}

// What leads leaves at once, and what is here behind a block that is not waits for that
// one; each part has a lease of its own.
func TestPartsComeInTheOrderAsked(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	for _, k := range "acf" {
		put(t, e, client.Block{NS: ns, Key: keyOf(string(k)), Body: body(byte(k), 100)})
	}
	r := n.loader(t)
	r.load(3, r.items("abcdef", link.WantWait)...)
	r.wants("3: 0 OK")
	put(t, e, client.Block{NS: ns, Key: keyOf("d"), Body: body(4, 100)})
	r.ping() // nothing leaves before b
	put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 100)})
	got, bcd := r.answer()
	if got != "3: 1 OK OK OK" {
		t.Errorf("%q", got)
	}
	put(t, e, client.Block{NS: ns, Key: keyOf("e"), Body: body(5, 100)})
	r.wants("3: 4 OK OK", "3: END OK")
	if st := n.store.Stats(); st.Leases != 1 { // the pins have gone, the part's lease has not
		t.Errorf("%d leases, want 1", st.Leases)
	}
	r.release(5, bcd.Lease)
	n.nothingWaits(t)
}

// Whoever publishes a block wakes those that wait for it: a PUT, a commit of bytes that
// came from a peer, an ingest, and the fetch of another LOAD.
func TestEveryWayOfPublishingWakes(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	id := manifest("acme").Namespace()
	n.host.elsewhere("d", body(4, 100))
	o := n.store.NewOwner(0)
	defer n.store.Drop(o)
	reserved := func(name string) blocks.Commit {
		v, err := n.store.Reserve(o, id, []uint32{100}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		copy(n.store.Room(v[0])[wire.HeaderLen:], body(1, 100))
		return blocks.Commit{Slot: v[0].Ref.Slot, NS: id, Key: keyOf(name), Len: 100}
	}
	r, other := n.loader(t), n.loader(t)
	for _, c := range []struct {
		name    string
		publish func()
	}{
		{"a", func() { put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)}) }},
		{"b", func() { c := []blocks.Commit{reserved("b")}; n.store.Commit(o, c) }},
		{"c", func() { c := reserved("c"); _ = n.store.Ingest(o, body(1, 100), &c) }},
		{"d", func() { other.load(3, other.item("d", link.WantFetch)); other.wants("3: 0 OK", "3: END OK") }},
	} {
		r.load(3, r.item(c.name, link.WantWait), r.item(c.name, link.WantWait))
		r.ping()
		c.publish()
		r.allOf(3, 2)
		n.nothingWaits(t)
	}
}

func TestALoadIsOverAtItsDeadline(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(1, 100)})
	r := n.loader(t)
	r.write(message(link.TypeLoad, 3, link.Load{DeadlineMS: 20, Items: r.items("abc", link.WantWait)}))
	r.wants("3: 0 ABSENT OK ABSENT", "3: END OK")
	r.write(message(link.TypeLoad, 3, link.Load{Items: r.items("abc", link.WantWait)}))
	r.wants("3: END DEADLINE deadline_ms is 0")
	if st := n.srv.Stats(); st.WaitsExpired != 2 {
		t.Errorf("%d waits have expired, want 2", st.WaitsExpired)
	}
	n.nothingWaits(t)
}

// CANCEL, the session's end and the daemon's leaving take a LOAD out at once. Parts that
// came stay leased.
func TestALoadThatWaitsEndsAtOnce(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	r := n.loader(t)
	r.load(3, r.items("ab", link.WantWait)...)
	_, part := r.answer()
	r.write(message(link.TypeCancel, 3, link.Empty{}))
	r.wants("3: END CANCELLED")
	if r.renew(5, part.Lease) != wire.CodeOK {
		t.Error("the part's lease has gone")
	}
	n.nothingWaits(t)
	r.load(3, r.items("bb", link.WantWait)...) // the number is free again
	r.load(7, r.item("c", link.WantWait))
	r.ping()
	if st := n.srv.Stats(); st.ParkedLoads != 2 || st.ParkedItems != 3 || st.InFlight != 0 {
		t.Errorf("%d LOADs of %d items are parked, %d requests in flight", st.ParkedLoads, st.ParkedItems, st.InFlight)
	}
	gone := n.loader(t)
	gone.load(3, gone.items("bc", link.WantWait)...)
	gone.ping()
	gone.c.Close()
	n.wait(1)
	if err := n.srv.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	n.nothingWaits(t)
	ended := map[string]bool{}
	for len(ended) < 2 {
		got, _ := r.answer()
		ended[got] = true
	}
	for _, want := range []string{"3: END DRAINING this daemon is leaving", "7: END DRAINING this daemon is leaving"} {
		if !ended[want] {
			t.Errorf("no %q: %v", want, ended)
		}
	}
	r.load(9, r.item("c", link.WantWait))
	r.wants("9: END DRAINING this daemon is leaving")
}

// A second request with the number of a LOAD that waits is a fault.
func TestTheNumberOfALoadThatWaitsIsTaken(t *testing.T) {
	n := startNode(t, nil)
	r := n.loader(t)
	r.load(3, r.item("a", link.WantWait))
	r.load(3, r.item("b", link.WantWait))
	r.refusedWith(wire.CodeState)
	n.wait(1)
	n.nothingWaits(t)
}

// A block that is evicted between its publishing and its grant is waited for again.
func TestABlockThatGoesBeforeItsGrantIsWaitedForAgain(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	id := manifest("acme").Namespace()
	r := n.loader(t)
	for i := range 200 {
		req := uint64(2*i + 11)
		r.load(req, r.items("ab", link.WantWait)...)
		for range 3 { // each may be granted, or gone before it is
			put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 100)})
			n.store.Discard(id, []wire.Key{keyOf("b")})
		}
		put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
		put(t, e, client.Block{NS: ns, Key: keyOf("b"), Body: body(2, 100)})
		r.allOf(req, 2)
		n.store.Discard(id, []wire.Key{keyOf("a"), keyOf("b")})
	}
	n.nothingWaits(t)
}

// What a load does not wait for is remembered as long as the load too.
func TestWhatIsRememberedOfLoadsThatWaitIsBounded(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, ec *engine.Config) { ec.Limits.ParkedLoads, ec.Limits.ParkedItems = 100, 5 })
	n.open(t)
	r := n.loader(t)
	beside := func(absent int) []link.LoadItem {
		items := []link.LoadItem{r.item("a", link.WantWait)}
		for range absent {
			items = append(items, r.item("b", 0))
		}
		return items
	}
	const full = "END BUSY LOADs of this engine that wait would have 21 blocks in all, the limit is 20, 4 times engine.max_parked_blocks"
	r.load(3, beside(18)...)
	r.load(5, beside(1)...)
	r.wants("5: " + full)
	r.load(7, beside(0)...)
	r.write(message(link.TypeCancel, 3, link.Empty{}))
	r.wants("3: END CANCELLED") // and gives its share back
	r.load(9, beside(18)...)
	other := n.loader(t) // another group has its own share
	other.load(3, beside(1)...)
	other.ping()
	r.load(11, beside(0)...)
	r.wants("11: " + full)
}

func TestWhatAGroupWaitsForIsBounded(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, ec *engine.Config) { ec.Limits.ParkedLoads, ec.Limits.ParkedItems = 2, 5 })
	e, ns := n.open(t)
	r := n.loader(t)
	r.load(3, r.items("ab", link.WantWait)...)
	r.load(5, r.items("cdef", link.WantWait)...)
	r.wants("5: END BUSY LOADs of this engine would wait for 6 blocks, the limit engine.max_parked_blocks is 5")
	r.load(5, r.items("cde", link.WantWait)...)
	r.load(7, r.item("c", link.WantWait))
	r.wants("7: END BUSY 2 LOADs of this engine wait for blocks, the limit engine.max_parked_loads is 2")
	r.load(7, r.item("c", 0)) // this one does not wait
	r.wants("7: 0 ABSENT", "7: END OK")
	other := n.loader(t) // another group has its own share
	other.load(3, other.item("c", link.WantWait))
	other.ping()
	for _, k := range "ab" {
		put(t, e, client.Block{NS: ns, Key: keyOf(string(k)), Body: body(1, 100)})
	}
	r.allOf(3, 2)
	r.load(7, r.item("x", link.WantWait)) // there is room again
	r.ping()
	r.write(message(link.TypeCancel, 5, link.Empty{}))
	r.wants("5: END CANCELLED")
	r.write(message(link.TypeCancel, 7, link.Empty{}))
	r.wants("7: END CANCELLED")
}

// Ten thousand LOADs wait without a goroutine, and without holding up another engine;
// one PUT wakes those that wait for its block.
func TestTenThousandLoadsWait(t *testing.T) {
	const loads = 10_000
	n := startNode(t, nil)
	e, ns := n.open(t)
	r := n.loader(t)
	before := runtime.NumGoroutine()
	for i := range loads {
		r.write(message(link.TypeLoad, uint64(2*i+11), link.Load{DeadlineMS: 600_000, Items: []link.LoadItem{r.item(fmt.Sprint("own ", i), link.WantWait), r.item("shared", link.WantWait)}}))
	}
	r.ping()
	st := n.srv.Stats()
	if st.ParkedLoads != loads || st.Waiting != 2*loads || st.InFlight != 0 {
		t.Errorf("%d LOADs are parked, %d items wait, %d requests are in flight", st.ParkedLoads, st.Waiting, st.InFlight)
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d goroutines more than before", more)
	}
	r.load(5, r.item("one too many", link.WantWait))
	r.wants("5: END BUSY 10000 LOADs of this engine wait for blocks, the limit engine.max_parked_loads is 10000")
	for i := range 100 {
		name := fmt.Sprint("busy ", i)
		put(t, e, client.Block{NS: ns, Key: keyOf(name), Body: body(byte(i), 100)})
		acquire(t, e, ns, client.AcquireOptions{}, name).Release()
	}
	put(t, e, client.Block{NS: ns, Key: keyOf("own 7"), Body: body(7, 100)})
	r.wants("25: 0 OK")
	put(t, e, client.Block{NS: ns, Key: keyOf("shared"), Body: body(7, 100)})
	r.wants("25: 1 OK", "25: END OK")
	r.c.Close()
	n.wait(1)
	n.nothingWaits(t)
}

// Blocks that are published and evicted again while many sessions wait for them reach
// everybody who waits, and nothing is left.
func TestPublishingAndEvictionRaceWithWaiting(t *testing.T) {
	n := startNode(t, func(bc *blocks.Config, _ *engine.Config) { bc.Capacity = 4 << 20 })
	e, ns := n.open(t)
	id := manifest("acme").Namespace()
	names := make([]string, 32)
	for i := range names {
		names[i] = string(rune('A' + i))
	}
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	publishers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			k := names[i*7%len(names)]
			_ = e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(k), Body: body(byte(i%len(names)), 10_000)}})
			if i%3 == 0 {
				n.store.Discard(id, []wire.Key{keyOf(names[i*5%len(names)])})
			}
		}
	})
	var all sync.WaitGroup
	for range 4 {
		r := n.loader(t)
		all.Go(func() {
			for i := range 50 {
				req := uint64(2*i + 11)
				var items []link.LoadItem
				for k := range 8 {
					items = append(items, r.item(names[(i+k)%len(names)], link.WantWait))
				}
				r.load(req, items...)
				r.allOf(req, 8)
			}
		})
	}
	all.Wait()
	close(stop)
	publishers.Wait()
	n.nothingWaits(t)
}

// An engine that reads no parts is dropped like one that reads no other answers, its
// LOADs with it, and another engine's go on meanwhile.
func TestAnEngineThatReadsNoPartsIsDropped(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.SendTimeout = 50 * time.Millisecond })
	e, ns := n.open(t)
	silent, other := n.loader(t), n.loader(t)
	var items []link.LoadItem
	for range 1000 {
		items = append(items, silent.item("x", link.WantWait))
	}
	for i := range 200 { // 32 KB of answers each
		silent.load(uint64(2*i+11), items...)
	}
	other.load(3, other.items("xy", link.WantWait)...)
	until(t, func() bool { return n.srv.Stats().ParkedLoads == 201 })
	put(t, e, client.Block{NS: ns, Key: keyOf("x"), Body: body(1, 100)})
	other.wants("3: 0 OK")
	n.wait(1)
	put(t, e, client.Block{NS: ns, Key: keyOf("y"), Body: body(1, 100)})
	other.wants("3: 1 OK", "3: END OK")
	n.idle(t)
}
