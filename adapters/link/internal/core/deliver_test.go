package core

import (
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// homeRig is a rig with four homes at b for a's pushes in namespace num.
func homeRig(tb testing.TB) (r *rig, num uint16) {
	r = newHomeRig(tb, 2, proto.Limits{}, 4)
	r.quiet = true
	return r, r.small(0)
}

// wait moves time on by d, with a tick in every second.
func (r *rig) wait(d time.Duration) {
	for ; d > 0; d -= time.Second {
		r.now += min(d, time.Second)
		for _, s := range r.end {
			s.Tick(r.now)
		}
		r.run()
	}
}

// over drops both sessions; nothing may be left.
func (r *rig) over() {
	r.tb.Helper()
	r.work(0)
	r.work(1)
	for _, s := range r.end {
		s.Drop(r.now, wire.CodeLaneLost)
	}
	r.settled()
	for i := range r.end {
		if !r.store[i].dropped {
			r.tb.Errorf("%s: the store was not given back", sides[i])
		}
	}
}

// One write brings request, bodies and COMMIT, and one the answer: no side waits for
// the other in between.
func TestASmallPushGoesInOneFlight(t *testing.T) {
	r, num := homeRig(t)
	r.quiet = false
	r.log.Reset()
	c := r.push(0, proto.ClassUrgent, num, 3000, "x", "y")
	r.mustDeliver(c)
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1<<20)
	const want = "a 1 DELIVER req=5\na 1 DATA req=5 class=0 item=0 bytes=6000\na 1 COMMIT req=5\n" +
		"b 1 TABLE req=5 [OK OK]\nb 1 END req=5 OK [OK OK]\n"
	if got := r.log.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	wantCodes(t, c, wire.CodeOK, wire.CodeOK)
	for _, n := range []string{"x", "y"} {
		if b := r.store[1].blocks[r.key(n)]; b == nil || wire.SumOf(b.Body) != wire.SumOf(body(n, 3000)) || b.Tier != wire.OutputCritical {
			t.Errorf("%s: %+v", n, b)
		}
	}
	if c.Items[0].Slot != r.store[1].blocks[r.key("x")].Slot {
		t.Error("TABLE names another slot")
	}
	r.over()
}

// Homes follow: a run of small pushes needs no GRANT after the first.
func TestARunOfSmallPushesNeedsOneGrant(t *testing.T) {
	r, num := homeRig(t)
	for i := range 40 {
		c := r.push(0, proto.ClassUrgent, num, 3000, string(rune('A'+i)))
		r.mustDeliver(c)
		r.run()
		wantCodes(t, c, wire.CodeOK)
	}
	r.over()
}

// What does not fit the homes waits for GRANT as ever.
func TestAPushBeyondTheHomesWaitsForGrant(t *testing.T) {
	for name, push := range map[string]func(r *rig, num uint16) *Call{
		"five items":      func(r *rig, num uint16) *Call { return r.push(0, 0, num, 3000, "a", "b", "c", "d", "e") },
		"half of a home":  func(r *rig, num uint16) *Call { return r.push(0, 0, num, 2048, "a") },
		"above a home":    func(r *rig, num uint16) *Call { return r.push(0, 0, num, 4097, "a") },
		"another space":   func(r *rig, num uint16) *Call { return r.push(0, 0, r.open(0), 3000, "a") },
		"none any more":   func(r *rig, num uint16) *Call { r.wait(homeLife); return r.push(0, 0, num, 3000, "a") },
		"an empty body":   func(r *rig, num uint16) *Call { return r.push(0, 0, num, 0, "a") },
		"asked otherwise": func(r *rig, num uint16) *Call { return r.pushCall(num, true, "a") },
	} {
		r, num := homeRig(t)
		c := push(r, num)
		if c.Delivered {
			t.Errorf("%s: went in one flight", name)
		}
		r.run()
		if want := map[bool]wire.Code{true: wire.CodeTooLarge}[name == "above a home"]; c.Items[0].Code != want {
			t.Errorf("%s: %v, want %v", name, c.Items[0].Code, want)
		}
		r.over()
	}
}

// pushCall starts a push of a of one block.
func (r *rig) pushCall(num uint16, twoFlights bool, name string) *Call {
	return r.tierCall(num, &Call{TwoFlights: twoFlights}, wire.OutputCritical, name)
}

func (r *rig) tierCall(num uint16, c *Call, tier wire.Tier, name string) *Call {
	b := body(name, 3000)
	h := wire.Header{BodyLen: 3000, Tier: tier, Sum: wire.SumOf(b)}
	c.Type, c.Timeout = proto.TypePush, 30*time.Second
	c.Items = []Item{{NS: num, Key: r.key(name), Room: b, Tier: tier, Head: [32]byte(h.Append(nil))}}
	r.end[0].Start(r.now, c)
	return c
}

// Homes are of the tier of the push before them, and take nothing of a lower one: a
// peer does not get room by a high tier and fill it with a low one, nor may a cold
// block have a home that a warm one made way for.
func TestAHomeTakesNothingOfALowerTier(t *testing.T) {
	r, num := homeRig(t)
	for _, b := range r.store[1].reserved {
		if b.Tier != wire.OutputCritical {
			t.Errorf("a home of %v", b.Tier)
		}
	}
	r.end[0].allowed[num].tier = wire.ThinkComplete // as a liar would have it
	c := r.tierCall(num, &Call{}, wire.ThinkActive, "warm")
	r.mustDeliver(c)
	r.run()
	wantCodes(t, c, wire.CodeFull)
	for _, c := range []*Call{
		r.tierCall(num, &Call{}, wire.ThinkActive, "a"), // by GRANT; homes of its tier follow
		r.tierCall(num, &Call{}, wire.ThinkActive, "b"),
		r.tierCall(num, &Call{}, wire.OutputCritical, "c"),
	} {
		r.run()
		wantCodes(t, c, wire.CodeOK)
	}
	if st := &r.end[1].nsIn[num-1].stock; st.tier != wire.ThinkActive || len(st.homes) == 0 {
		t.Errorf("%d homes of %v", len(st.homes), st.tier)
	}
	r.mustDeliver(r.tierCall(num, &Call{}, wire.OutputCritical, "d"))
	r.run()
	if c := r.tierCall(num, &Call{Class: proto.ClassBulk}, wire.OutputCritical, "e"); c.Delivered {
		t.Error("a bulk push took a home of a higher tier")
	}
	r.run()
	r.over()
}

// A peer that uses more than it was told of, or what was given back meanwhile: what
// finds no home is FULL, its body is dropped, the rest is stored, and the lane lives.
func TestWhatFindsNoHomeIsDroppedAndTheRestStored(t *testing.T) {
	r, num := homeRig(t)
	r.end[0].allowed[num].have = 6 // as a liar would count
	c := r.push(0, proto.ClassUrgent, num, 3000, "a", "b", "c", "d", "e", "f")
	r.mustDeliver(c)
	r.run()
	wantCodes(t, c, 0, 0, 0, 0, wire.CodeFull, wire.CodeFull)
	if len(r.store[1].blocks) != 5 || !r.end[0].Up(1) {
		t.Errorf("%d blocks, lane up %v", len(r.store[1].blocks), r.end[0].Up(1))
	}
	again, at := c.Homeless()
	if again == nil || len(at) != 2 || at[0] != 4 {
		t.Fatalf("homeless: %v", at)
	}
	again.Timeout = time.Second
	r.end[0].Start(r.now, again)
	if again.Delivered {
		t.Error("what found no home is delivered once more")
	}
	r.run()
	c.Merge(again, at)
	wantCodes(t, c, 0, 0, 0, 0, 0, 0)
	r.over()
}

// What a holder says of homes is believed until it is shown to be false: a peer that
// tells of some and has none costs a body on the way, once for each STANDING.
func TestAPeerThatLiesAboutHomesIsAskedForGrant(t *testing.T) {
	r, num := homeRig(t)
	r.end[1].giveAllHomes()
	c := r.push(0, proto.ClassUrgent, num, 3000, "a", "b")
	r.mustDeliver(c)
	r.run()
	wantCodes(t, c, wire.CodeFull, wire.CodeFull)
	r.end[1].nsIn[num-1].stock.rest = r.now + time.Hour
	if c := r.push(0, proto.ClassUrgent, num, 3000, "c"); c.Delivered {
		t.Error("delivered once more")
	}
	r.run()
	r.over()
}

// Homes that nobody uses go back to the store, and the peer is told; so are those of
// a peer that uses some and leaves the others.
func TestHomesThatNobodyUsesAreGivenBack(t *testing.T) {
	r, num := homeRig(t)
	r.wait(homeLife / 2)
	c := r.push(0, proto.ClassUrgent, num, 3000, "a")
	r.mustDeliver(c)
	r.run()
	r.wait(homeLife / 2)
	if n := len(r.store[1].reserved); n != 0 {
		t.Errorf("%d homes are left", n)
	}
	if have := r.end[0].allowed[num].have; have != 0 {
		t.Errorf("the peer counts on %d", have)
	}
	r.over()
}

// A push that is begun and does not go on keeps its homes for 5 s, not longer.
func TestADeliverWithoutBodiesIsNoProgress(t *testing.T) {
	for _, frames := range []int{deliverFrame, deliverFrame + proto.HeadLen + 1000, deliverFrame + dataFrame} {
		r, num := homeRig(t)
		c := r.push(0, proto.ClassUrgent, num, sceneBody, "a")
		r.move(0, 1, frames)
		free := len(r.end[1].nsIn[num-1].stock.homes)
		r.now += proto.NoProgress
		r.end[1].Tick(r.now)
		if n := len(r.store[1].reserved); n != free || free != 3 {
			t.Errorf("%d bytes came: %d reservations, %d homes", frames, n, free)
		}
		r.run()
		if c.Code != wire.CodeNoProgress || r.store[1].blocks[r.key("a")] != nil {
			t.Errorf("%d bytes came: %v", frames, c.Code)
		}
		r.over()
	}
}

// COMMIT for what never came, or twice, or without DELIVER closes the lane, and
// nothing is published.
func TestACommitOfADeliverThatDidNotComeIsState(t *testing.T) {
	for name, moved := range map[string]int{"nothing came": deliverFrame, "some came": deliverFrame + proto.HeadLen + 1000} {
		r, num := homeRig(t)
		c := r.push(0, proto.ClassUrgent, num, sceneBody, "a")
		id := c.r.id
		r.move(0, 1, moved)
		l := r.end[1].Lane(1)
		if err := l.message(r.now, proto.Frame{Type: proto.TypeCommit, Req: id}, nil); wire.CodeOf(asRefusal(err)) != wire.CodeState {
			t.Errorf("%s: %v", name, err)
		}
		r.lose(1)
		if len(r.store[1].blocks) != 1 {
			t.Errorf("%s: %d blocks", name, len(r.store[1].blocks))
		}
		r.over()
	}
}

func asRefusal(err error) error {
	if re, ok := err.(*refusal); ok {
		return re.code
	}
	return err
}

// A body that is not the one of its head is CHECKSUM; a key that is here is EXISTS,
// with its place; neither is stored, and both homes are free again.
func TestADeliveredBodyIsABlockOnlyByItsHash(t *testing.T) {
	r, num := homeRig(t)
	c := r.push(0, proto.ClassUrgent, num, 3000, "bad", "first of a", "good", "good")
	c.Items[0].Room[7] ^= 1
	r.mustDeliver(c)
	r.run()
	wantCodes(t, c, wire.CodeChecksum, wire.CodeExists, wire.CodeOK, wire.CodeExists)
	if c.Items[1].Slot != r.store[1].blocks[r.key("first of a")].Slot || r.store[1].blocks[r.key("bad")] != nil {
		t.Errorf("%+v", c.Items[1])
	}
	r.over()
}

// A DELIVER that crosses GOAWAY is answered DRAINING; its bodies are dropped until
// COMMIT, no home is left, and the lane lives.
func TestADeliverThatCrossesGoAwayIsDropped(t *testing.T) {
	for _, moved := range []int{0, deliverFrame, deliverFrame + proto.HeadLen + 1000, 1 << 20} {
		r, num := homeRig(t)
		r.end[1].GoAway(r.now, 10_000, wire.CodeDraining, "")
		c := r.push(0, proto.ClassUrgent, num, sceneBody, "a")
		r.mustDeliver(c)
		if moved > 0 {
			r.move(0, 1, moved)
		}
		r.run()
		if c.Code != wire.CodeDraining || !r.end[1].Idle() || !r.end[0].Up(1) || len(r.store[1].reserved) != 0 || len(r.store[1].blocks) != 1 {
			t.Errorf("%d bytes moved: %v, idle %v", moved, c.Code, r.end[1].Idle())
		}
		r.over()
	}
}

// DELIVERs that are turned away count until their COMMIT or ABORT: a peer cannot
// begin any number of them.
func TestTurnedAwayDeliversCount(t *testing.T) {
	l := DefaultLimits
	l.Reqs = 2
	r := newHomeRig(t, 1, l, 4)
	r.quiet = true
	num := r.small(0)
	item := proto.PushItem{NS: num, Key: r.key("x"), Have: proto.Have{Len: 3000, Tier: wire.ThinkActive, Head: [32]byte(bodyHead(3000).Append(nil))}}
	deliver := func(id uint64) {
		r.feed(1, frameOf(proto.TypeDeliver, id, proto.Push{DeadlineMS: 5000, Items: []proto.PushItem{item}}))
	}
	for id := range uint64(4) {
		deliver(201 + 2*id)
	}
	if st := r.end[1].Stats(); st.Served != 4 || st.Totals.Busy != 2 {
		t.Fatalf("%+v", st)
	}
	code, errors, ends := r.said(1)
	if errors != 0 || ends != 2 {
		t.Errorf("%v: %d ERROR, %d END", code, errors, ends)
	}
	deliver(209)
	if code, errors, _ := r.said(1); errors != 1 || code != wire.CodeFlowViolation {
		t.Errorf("the fifth: %d ERROR, %v", errors, code)
	}
	r.over()
}

// A lane that is lost takes the homes that its pushes had with it, and no others.
func TestALostLaneFreesTheHomesOfItsPushes(t *testing.T) {
	for _, moved := range []int{deliverFrame, deliverFrame + proto.HeadLen + 1000} {
		r, num := homeRig(t)
		c := r.push(0, proto.ClassUrgent, num, sceneBody, "a")
		r.move(0, 1, moved)
		r.lose(1)
		if c.Code != wire.CodeLaneLost || len(r.store[1].reserved) != 3 {
			t.Errorf("%d bytes moved: %v, %d reservations", moved, c.Code, len(r.store[1].reserved))
		}
		r.addLane(1)
		next := r.push(0, proto.ClassUrgent, num, sceneBody, "a")
		r.mustDeliver(next)
		r.run()
		wantCodes(t, next, wire.CodeOK)
		r.over()
	}
}

// Homes that are being made when the session ends, or when this side leaves, go
// back to the store, which is given back after them.
func TestHomesThatComeTooLateAreGivenBack(t *testing.T) {
	for name, end := range map[string]func(s *Session){
		"dropped": func(s *Session) { s.Drop(0, wire.CodeIncarnation) },
		"leaving": func(s *Session) { s.GoAway(0, 60_000, wire.CodeDraining, "") },
	} {
		r, num := homeRig(t)
		r.stockHeld = true
		r.push(0, proto.ClassUrgent, num, sceneBody, "a", "b")
		r.run()
		if len(r.stocks[1]) != 1 {
			t.Fatalf("%s: %d jobs make homes", name, len(r.stocks[1]))
		}
		end(r.end[1])
		if r.store[1].dropped {
			t.Errorf("%s: the store was given back while homes were made", name)
		}
		r.stockHeld, r.jobs[1] = false, r.stocks[1]
		r.work(1)
		if n := len(r.store[1].reserved); n != 0 {
			t.Errorf("%s: %d homes are left", name, n)
		}
		r.over()
	}
}

// A store without room is left alone for a while: pushes go on by GRANT.
func TestAStoreWithoutHomesIsLeftAlone(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 4)
	r.quiet = true
	num := r.small(0)
	r.store[1].full = true
	c := r.push(0, proto.ClassUrgent, num, 3000, "a", "b", "c")
	r.run()
	wantCodes(t, c, 0, 0, 0)
	if st := &r.end[1].nsIn[num-1].stock; st.rest != r.now+stockRest || st.making != 0 || len(st.homes) != 1 {
		t.Errorf("%+v", st)
	}
	r.store[1].full = false
	d := r.push(0, proto.ClassUrgent, num, 3000, "d")
	r.run()
	wantCodes(t, d, wire.CodeOK)
	if n := len(r.end[1].nsIn[num-1].stock.homes); n != 0 {
		t.Errorf("%d homes: they were asked for at once", n)
	}
	r.over()
}

// Homes are bounded over all namespaces of a session, by number and by bytes.
func TestHomesAreBoundedASession(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 4)
	r.quiet = true
	s := r.end[1]
	s.cfg.HomeBytes = 3 * 4096
	for i := range 5 {
		m := manifest("t")
		m.Role, m.BlockBytes = string(rune('a'+i)), 4096
		c := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
		r.end[0].Start(r.now, c)
		r.run()
		r.push(0, proto.ClassUrgent, c.Opened.NS, 3000, m.Role)
		r.run()
		if s.homes != 3 || s.homeBytes != 3*4096 || len(r.store[1].reserved) != 3 {
			t.Errorf("%d namespaces: %d homes of %d bytes", i+1, s.homes, s.homeBytes)
		}
	}
	r.over()
}

// A side whose peer did not say the feature neither sends STANDING nor takes DELIVER:
// both types are unknown to it.
func TestWithoutTheFeatureNothingIsNew(t *testing.T) {
	r := newHomeRig(t, 1, proto.Limits{}, 4)
	r.quiet = true
	for _, s := range r.end {
		s.cfg.OneFlight = false
	}
	num := r.open(0)
	for range 3 {
		c := r.push(0, proto.ClassUrgent, num, 600_000, "a")
		r.run()
		if c.Delivered || len(r.store[1].reserved) != 0 {
			t.Errorf("delivered %v, %d homes", c.Delivered, len(r.store[1].reserved))
		}
	}
	all := samples(num, r.key("x"))
	r.feed(1, all[proto.TypeStanding])
	if _, errors, ends := r.said(1); errors != 0 || ends != 0 {
		t.Errorf("STANDING: %d ERROR, %d END", errors, ends)
	}
	r.feed(1, all[proto.TypeDeliver])
	if _, errors, ends := r.said(1); errors != 0 || ends != 1 {
		t.Errorf("DELIVER: %d ERROR, %d END", errors, ends)
	}
	r.feed(1, proto.AppendMessage(nil, proto.Frame{Type: proto.TypeDeliver, Flags: proto.FlagCritical, Req: 301}, proto.Push{}))
	if code, errors, _ := r.said(1); errors != 1 || code != wire.CodeUnsupported {
		t.Errorf("critical DELIVER: %d ERROR, %v", errors, code)
	}
	r.lose(1)
	r.over()
}

// A body that is dropped comes in any pieces, with what follows it behind: what follows is
// stored as it was sent.
func TestADroppedBodyInPiecesLeavesTheNextAlone(t *testing.T) {
	limits := DefaultLimits
	limits.Frame = proto.MinFrame + 100 // so that bodies go in several frames
	for _, piece := range []int{100, 700, 2000, 1 << 20} {
		r := newHomeRig(t, 1, limits, 64)
		r.quiet, r.piece = true, piece
		num := r.small(0)
		r.put(1, 3000, "known")
		r.store[1].blocks[r.key("known")].NS = r.end[1].nsIn[num-1].ns
		c := r.push(0, proto.ClassUrgent, num, 3000, "x", "known", "y", "z")
		r.mustDeliver(c)
		r.run()
		for _, name := range []string{"x", "y", "z"} {
			if b := r.store[1].blocks[r.key(name)]; b == nil || wire.SumOf(b.Body) != wire.SumOf(body(name, 3000)) {
				t.Errorf("in pieces of %d: %s is not as it was sent", piece, name)
			}
		}
		wantCodes(t, c, wire.CodeOK, wire.CodeExists, wire.CodeOK, wire.CodeOK)
		r.over()
	}
}
