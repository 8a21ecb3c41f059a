package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// frameOf makes a control frame of side a.
func frameOf(t proto.Type, req uint64, m proto.Message) []byte {
	return proto.AppendMessage(nil, proto.Frame{Type: t, Req: req}, m)
}

// feed gives bytes to lane idx of side b, as if a had sent them.
func (r *rig) feed(idx uint8, b []byte) {
	l := r.end[1].Lane(idx)
	for len(b) > 0 && l != nil && !l.Dead() {
		took := 0
		for _, p := range l.RxWant(nil) {
			took += copy(p, b[took:])
		}
		l.RxGot(r.now, took)
		r.gather(1, l)
		b = b[took:]
	}
}

// said is what side b sends on lane idx from here on: the code of its ERROR, and
// how many END there were.
func (r *rig) said(idx uint8) (code wire.Code, errors, ends int) {
	l := r.end[1].Lane(idx)
	var sp proto.Splitter
	sp.Begun = true
	for l != nil && l.TxPending() {
		var run []byte
		for _, p := range l.TxWant(nil) {
			run = append(run, p...)
		}
		l.TxDid(r.now, len(run))
		if len(run) == 0 {
			break
		}
		for len(run) > 0 {
			n, ev, err := sp.Next(run)
			if err != nil {
				r.tb.Fatalf("side b sent a broken frame: %v", err)
			}
			run = run[n:]
			if ev.Kind != proto.EventMessage {
				continue
			}
			switch ev.Frame.Type {
			case proto.TypeError:
				m, _ := proto.Parse[proto.Error](ev.Payload)
				code = m.Code
				errors++
			case proto.TypeEnd:
				ends++
			}
		}
	}
	return code, errors, ends
}

// samples is one valid frame of every message of an agent, and the lane that it
// may come on.
func samples(num uint16, key wire.Key) map[proto.Type][]byte {
	head := wire.Header{BodyLen: 3, Sum: wire.SumOf([]byte("abc"))}
	have := proto.Have{Len: 3, Head: [32]byte(head.Append(nil))}
	want := proto.Want{NS: num, Key: key, Max: 100}
	return map[proto.Type][]byte{
		proto.TypeHello:    frameOf(proto.TypeHello, 0, proto.Hello{Min: 1, Max: 1}),
		proto.TypeOpen:     frameOf(proto.TypeOpen, 101, proto.Open{Manifest: manifest("t").Append(nil)}),
		proto.TypeOpened:   frameOf(proto.TypeOpened, 102, proto.Opened{NS: 1}),
		proto.TypeHas:      frameOf(proto.TypeHas, 103, proto.Has{DeadlineMS: 50, Items: []proto.Want{want}}),
		proto.TypeTable:    frameOf(proto.TypeTable, 104, proto.Table{Items: []proto.Have{have}}),
		proto.TypePull:     frameOf(proto.TypePull, 105, proto.Pull{DeadlineMS: 50, Items: []proto.Want{want}}),
		proto.TypePush:     frameOf(proto.TypePush, 107, proto.Push{DeadlineMS: 50, Items: []proto.PushItem{{NS: num, Key: key, Have: have}}}),
		proto.TypeGrant:    frameOf(proto.TypeGrant, 104, proto.Grant{Status: []wire.Code{0}}),
		proto.TypeCommit:   frameOf(proto.TypeCommit, 109, proto.Empty{}),
		proto.TypeEnd:      frameOf(proto.TypeEnd, 104, proto.End{}),
		proto.TypeRenew:    frameOf(proto.TypeRenew, 111, proto.Renew{MS: 5}),
		proto.TypeRelease:  frameOf(proto.TypeRelease, 113, proto.Release{Leases: [][16]byte{{0: 9, 15: 1}}}),
		proto.TypeStat:     frameOf(proto.TypeStat, 115, proto.Has{DeadlineMS: 50, Items: []proto.Want{want}}),
		proto.TypePing:     frameOf(proto.TypePing, 117, proto.Empty{}),
		proto.TypeCancel:   frameOf(proto.TypeCancel, 119, proto.Empty{}),
		proto.TypeAbort:    frameOf(proto.TypeAbort, 121, proto.Empty{}),
		proto.TypeStanding: frameOf(proto.TypeStanding, 0, proto.Standing{NS: 1, N: 3, Len: 4096}),
		proto.TypeDeliver:  frameOf(proto.TypeDeliver, 125, proto.Push{DeadlineMS: 50, Items: []proto.PushItem{{NS: num, Key: key, Have: have}}}),
		proto.TypeData:     append(proto.AppendData(nil, proto.Frame{Req: 123}, 0, 3), "abc"...),
	}
}

// quietRig is a rig with a namespace open, block x at b, and requests running on
// lanes 1 and 2, so that a closed lane has something to end.
func quietRig(tb testing.TB) (*rig, uint16) {
	r := newRig(tb, 2, proto.Limits{})
	r.quiet = true
	return r, r.open(0)
}

// checkOneClosed fails the test unless exactly one ERROR with the code went out
// on the lane, the lane is closed, the others work, and nothing is held.
func checkOneClosed(t *testing.T, r *rig, num uint16, idx uint8, want wire.Code) {
	t.Helper()
	code, errors, _ := r.said(idx)
	if errors != 1 || code != want {
		t.Errorf("%d ERROR, code %v, want one %v", errors, code, want)
	}
	if l := r.end[1].Lane(idx); l != nil && !l.TxFlushed() {
		t.Error("the lane is not being closed")
	}
	r.lose(idx)
	if idx != 0 {
		r.put(1, 10, "after")
		c := r.pull(0, proto.ClassUrgent, num, 10, "after")
		r.run()
		if c.Code != wire.CodeOK || c.Items[0].Code != wire.CodeOK {
			t.Errorf("a pull by the other lane: %v %v", c.Code, codesOf(c))
		}
	}
	r.settled()
}

func TestEveryMessageOnTheWrongLaneOrWithoutARequestIsState(t *testing.T) {
	wants := map[proto.Type][2]wire.Code{ // on lane 0, on lane 1
		proto.TypeHello:   {wire.CodeState, wire.CodeState},
		proto.TypeOpen:    {wire.CodeOK, wire.CodeState},
		proto.TypeOpened:  {wire.CodeState, wire.CodeState},
		proto.TypeHas:     {wire.CodeOK, wire.CodeState},
		proto.TypeTable:   {wire.CodeState, wire.CodeState},
		proto.TypePull:    {wire.CodeState, wire.CodeOK},
		proto.TypePush:    {wire.CodeState, wire.CodeOK},
		proto.TypeGrant:   {wire.CodeState, wire.CodeState},
		proto.TypeCommit:  {wire.CodeState, wire.CodeState},
		proto.TypeEnd:     {wire.CodeState, wire.CodeState},
		proto.TypeRenew:   {wire.CodeOK, wire.CodeState},
		proto.TypeRelease: {wire.CodeOK, wire.CodeState},
		proto.TypeStat:    {wire.CodeOK, wire.CodeState},
		proto.TypePing:    {wire.CodeOK, wire.CodeOK},
		proto.TypeCancel:  {wire.CodeOK, wire.CodeOK},
		proto.TypeAbort:   {wire.CodeOK, wire.CodeOK},
		proto.TypeData:    {wire.CodeFlowViolation, wire.CodeFlowViolation},
	}
	for typ, byLane := range wants {
		for idx, want := range byLane {
			t.Run(fmt.Sprintf("%v on lane %d", typ, idx), func(t *testing.T) {
				r, num := quietRig(t)
				r.feed(uint8(idx), samples(num, r.key("x"))[typ])
				if want != wire.CodeOK {
					checkOneClosed(t, r, num, uint8(idx), want)
					return
				}
				if code, errors, _ := r.said(uint8(idx)); errors != 0 {
					t.Errorf("ERROR %v", code)
				}
				r.lose(uint8(idx))
				r.settled()
			})
		}
	}
}

// Every message, with each of its bytes changed: one ERROR with a code of the
// codec or of the state, or a message that was valid all the same.
func TestEveryChangedByteClosesItsLaneOnlyWithOneCode(t *testing.T) {
	may := map[wire.Code]bool{
		wire.CodeCRC: true, wire.CodeLength: true, wire.CodeInvalid: true, wire.CodeState: true, wire.CodeFlowViolation: true, wire.CodeUnsupported: true,
	}
	probe, n := quietRig(t)
	for typ, frame := range samples(n, probe.key("x")) {
		for at := range frame {
			if typ == proto.TypeData && at >= proto.FrameLen {
				continue // not covered by a crc32c
			}
			r, _ := quietRig(t)
			bad := append([]byte(nil), frame...)
			bad[at] ^= 0x41
			r.feed(1, bad)
			l := r.end[1].Lane(1)
			if l == nil || !l.Failed() {
				t.Fatalf("%v, byte %d: the lane was not refused", typ, at)
			}
			code, errors, _ := r.said(1)
			if errors != 1 || !may[code] {
				t.Fatalf("%v, byte %d: %d ERROR, code %v", typ, at, errors, code)
			}
			if at < proto.FrameLen && code != wire.CodeCRC {
				t.Fatalf("%v, header byte %d: %v, want CRC", typ, at, code)
			}
			if r.end[1].Lane(2).Failed() || r.end[1].Lane(0).Failed() {
				t.Fatalf("%v, byte %d: another lane was closed", typ, at)
			}
			r.lose(1)
			r.settled()
		}
	}
}

// Every message cut at each byte, with the connection's end behind it: nothing is
// held afterwards, and nobody is answered.
func TestEveryCutMessageLeavesNothing(t *testing.T) {
	probe, n := quietRig(t)
	for typ, frame := range samples(n, probe.key("x")) {
		for cut := range frame {
			r, _ := quietRig(t)
			idx := uint8(1)
			if laneRules[typ]&onData == 0 {
				idx = 0
			}
			r.feed(idx, frame[:cut])
			if _, errors, ends := r.said(idx); typ != proto.TypeData && (errors != 0 || ends != 0) {
				t.Fatalf("%v cut at %d was answered: %d ERROR, %d END", typ, cut, errors, ends)
			}
			r.lose(idx)
			r.settled()
		}
	}
}

func TestOversizeFramesAreLength(t *testing.T) {
	for typ := proto.TypeHello; typ <= proto.TypeDeliver; typ++ {
		r, num := quietRig(t)
		r.feed(1, proto.Frame{Type: typ, Req: 101, Len: proto.MaxControl + 1}.Append(nil))
		checkOneClosed(t, r, num, 1, wire.CodeLength)
	}
}

func TestDataThatNobodyGranted(t *testing.T) {
	for _, c := range []struct {
		name string
		data func(req uint64) []byte
		want wire.Code
	}{
		{"too much", func(q uint64) []byte {
			return append(proto.AppendData(nil, proto.Frame{Req: q}, 0, 201), make([]byte, 201)...)
		}, wire.CodeFlowViolation},
		{"wrong offset", func(q uint64) []byte {
			return append(proto.AppendData(nil, proto.Frame{Req: q}, 1, 9), make([]byte, 9)...)
		}, wire.CodeState},
		{"wrong item", func(q uint64) []byte {
			return append(proto.AppendData(nil, proto.Frame{Req: q, Arg: 1}, 0, 9), make([]byte, 9)...)
		}, wire.CodeState},
		{"commit too early", func(q uint64) []byte { return frameOf(proto.TypeCommit, q, proto.Empty{}) }, wire.CodeState},
		{"a second push of that id", func(q uint64) []byte {
			return frameOf(proto.TypePush, q, proto.Push{DeadlineMS: 50})
		}, wire.CodeState},
		{"a pull of that id", func(q uint64) []byte {
			return frameOf(proto.TypePull, q, proto.Pull{DeadlineMS: 50})
		}, wire.CodeState},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, num := quietRig(t)
			head := wire.Header{BodyLen: 100, Sum: wire.SumOf(make([]byte, 100))}
			item := proto.PushItem{NS: num, Key: r.key("p"), Have: proto.Have{Len: 100, Head: [32]byte(head.Append(nil))}}
			other := item
			other.Key = r.key("q")
			r.feed(1, frameOf(proto.TypePush, 201, proto.Push{DeadlineMS: 5000, Items: []proto.PushItem{item, other}}))
			r.feed(1, c.data(201))
			checkOneClosed(t, r, num, 1, c.want)
			if len(r.store[1].blocks) > 1 {
				t.Error("something was published")
			}
		})
	}
}

func TestIdsOfTheWrongSideAreState(t *testing.T) {
	for _, req := range []uint64{0, 2, 200} {
		r, num := quietRig(t)
		r.feed(1, frameOf(proto.TypePing, req, proto.Empty{}))
		checkOneClosed(t, r, num, 1, wire.CodeState)
	}
}

func TestUnknownMessageIsAnsweredAndTheLaneStays(t *testing.T) {
	r, num := quietRig(t)
	r.feed(1, proto.AppendMessage(nil, proto.Frame{Type: 77, Req: 301}, proto.Open{Manifest: []byte("whatever")}))
	if _, errors, ends := r.said(1); errors != 0 || ends != 1 {
		t.Errorf("%d ERROR, %d END, want END UNSUPPORTED", errors, ends)
	}
	r.feed(1, proto.AppendMessage(nil, proto.Frame{Type: 77, Flags: proto.FlagCritical, Req: 301}, proto.Empty{}))
	checkOneClosed(t, r, num, 1, wire.CodeUnsupported)
}

func TestErrorIsTheLastFrameAndComesBehindTheFrameUnderWay(t *testing.T) {
	r, num := quietRig(t)
	r.put(1, 300_000, "x")
	r.quiet = false
	c := r.pull(0, proto.ClassUrgent, num, 300_000, "x")
	r.move(0, 1, 1<<20)
	r.move(1, 1, 1000) // TABLE, and the beginning of DATA
	r.feed(1, frameOf(proto.TypeCommit, 999, proto.Empty{}))
	r.log.Reset()
	for range 40 {
		r.move(1, 1, 50_000)
	}
	got := r.log.String()
	data, error := strings.Index(got, "b 1 DATA"), strings.Index(got, "b 1 ERROR req=0 STATE")
	if data < 0 || error < data || strings.Contains(got, "broken") || strings.Contains(got[error:], "b 1 DATA") {
		t.Errorf("b sent:\n%s", got)
	}
	wantCodes(t, c, wire.CodeLaneLost)
	r.settled()
}

func TestBusyAboveTheAgreedCountsAndFlowViolationAboveTwice(t *testing.T) {
	small := DefaultLimits
	small.Reqs, small.Items, small.BytesInFlight = 2, 4, 1000
	pull := func(r *rig, num uint16, req uint64, items int, size uint32) []byte {
		w := make([]proto.Want, items)
		for i := range w {
			w[i] = proto.Want{NS: num, Key: r.key("x"), Max: size}
		}
		return frameOf(proto.TypePull, req, proto.Pull{DeadlineMS: 5000, Items: w})
	}
	for _, c := range []struct {
		name  string
		reqs  int
		items int
		size  uint32
		ends  int // BUSY
		want  wire.Code
	}{
		{"as agreed", 2, 1, 100, 0, wire.CodeOK},
		{"requests", 3, 1, 100, 1, wire.CodeOK},
		{"twice the requests", 5, 1, 100, -1, wire.CodeFlowViolation},
		{"items", 1, 5, 10, 1, wire.CodeOK},
		{"twice the items", 1, 9, 10, -1, wire.CodeFlowViolation},
		{"bytes", 1, 2, 600, 1, wire.CodeOK},
		{"twice the bytes", 1, 3, 700, -1, wire.CodeFlowViolation},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, small)
			r.quiet = true
			num := r.open(0)
			r.put(1, 10, "x")
			for i := range c.reqs {
				r.feed(1, pull(r, num, uint64(501+2*i), c.items, c.size))
			}
			busy := r.end[1].Stats().Totals.Busy
			if c.ends >= 0 && busy != uint64(c.ends) {
				t.Errorf("%d BUSY, want %d", busy, c.ends)
			}
			code, _, _ := r.said(1)
			if code != c.want {
				t.Errorf("ERROR %v, want %v", code, c.want)
			}
			r.lose(1)
			r.settled()
		})
	}
}

func TestACallerKeepsToThePeersLimits(t *testing.T) {
	small := DefaultLimits
	small.Reqs, small.BytesInFlight = 3, 5000
	r := newRig(t, 2, small)
	r.quiet = true
	num := r.open(0)
	r.put(1, 1000, "x")
	var calls []*Call
	for i := range 40 {
		calls = append(calls, r.pull(0, proto.Class(i%4), num, 2000, "x"))
	}
	if st := r.end[0].Stats(); st.Calls != 2 || st.Waiting != 38 {
		t.Errorf("%d run and %d wait, want 2 and 38", st.Calls, st.Waiting)
	}
	r.run()
	for i, c := range calls {
		if c.Code != wire.CodeOK || c.Items[0].Code != wire.CodeOK {
			t.Errorf("call %d: %v", i, c.Code)
		}
	}
	if busy := r.end[1].Stats().Totals.Busy; busy != 0 {
		t.Errorf("%d BUSY", busy)
	}
	big := r.pull(0, proto.ClassUrgent, num, 6000, "x")
	if big.Code != wire.CodeTooLarge {
		t.Errorf("a call above the limits by itself: %v", big.Code)
	}
	r.settled()
}

func TestAnotherTenantsNamespaceAnswersAsOneThatIsNot(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	var got []proto.Opened
	foreign := manifest("other")
	wrong := manifest("other")
	wrong.BlockTokens = 99
	for _, m := range []wire.Manifest{foreign, wrong, {Tenant: "nobody", Model: "x"}} {
		c := &Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: time.Second}
		r.end[0].Start(r.now, c)
		r.run()
		got = append(got, c.Opened)
	}
	for _, o := range got {
		if o != got[0] || o.Status != wire.CodeNSUnknown {
			t.Errorf("answers differ: %+v", got)
		}
	}
	mine := manifest("t")
	mine.Dtype = "fp8"
	c := &Call{Type: proto.TypeOpen, Manifest: mine.Append(nil), Timeout: time.Second}
	r.end[0].Start(r.now, c)
	r.run()
	if c.Code != wire.CodeGeometry || c.Opened.Field == "" || c.Opened.Theirs != "fp8" {
		t.Errorf("geometry: %v %+v", c.Code, c.Opened)
	}
	num := r.open(0)
	if again := r.open(0); again != num {
		t.Errorf("the same namespace got numbers %d and %d", num, again)
	}
	h := r.pull(0, proto.ClassUrgent, num+1, 10, "x")
	r.run()
	wantCodes(t, h, wire.CodeNSUnknown)
	r.settled()
}

// A peer that asks without reading what it is answered does not make this side
// keep the answers without bound.
func TestAFloodThatReadsNoAnswersIsEnded(t *testing.T) {
	table, n := quietRig(t)
	for _, typ := range []proto.Type{proto.TypePing, proto.TypeCancel, proto.TypeOpen, proto.TypeRenew, proto.TypeHas} {
		r, _ := quietRig(t)
		r.put(1, 10, "x")
		frame := samples(n, table.key("x"))[typ]
		l := r.end[1].Lane(0)
		for i := 0; i < 10*proto.MaxReqs && !l.Failed(); i++ {
			r.feed(0, frame)
		}
		if !l.Failed() || len(l.tx.ctl) > maxQueue {
			t.Errorf("%v: failed %v, %d bytes are queued", typ, l.Failed(), len(l.tx.ctl))
		}
		if code, _, _ := r.said(0); code != wire.CodeFlowViolation {
			t.Errorf("%v: %v, want FLOW_VIOLATION", typ, code)
		}
	}
}

// A call that the peer was too busy to begin with goes out once more as it was.
func TestACallThatEndedBusyCanBeStartedAgain(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	num := r.open(0)
	r.put(1, 300, "x")
	r.end[1].cfg.Mine.BytesInFlight = 100 // less than it said
	c := r.pull(0, proto.ClassUrgent, num, 150, "x")
	r.run()
	if c.Code != wire.CodeBusy || c.Items[0].Code != wire.CodeBusy || c.Retry != busyRetry {
		t.Fatalf("%v, %v, retry %v", c.Code, c.Items[0].Code, c.Retry)
	}
	if !c.Again() || c.Again() {
		t.Error("Again: want once")
	}
	r.end[1].cfg.Mine.BytesInFlight = 1000
	c.Items[0].Room = make([]byte, 300)
	r.end[0].Start(r.now, c)
	r.run()
	if c.Code != wire.CodeOK || string(c.Items[0].Room) != string(body("x", 300)) {
		t.Errorf("the second time: %v, %v", c.Code, c.Items[0].Code)
	}
	if c.Again() {
		t.Error("a call that was answered is started again")
	}
	r.settled()
}

// END may come twice for what was asked; for what was not asked yet it is refused.
func TestEndOfWhatWasNotAskedYetIsRefused(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.open(1)
	l, next := r.end[1].Lane(1), r.end[1].nextReq
	if r.feed(1, frameOf(proto.TypeEnd, next-2, proto.End{})); l.failed {
		t.Error("a second END ended the lane")
	}
	if r.feed(1, frameOf(proto.TypeEnd, next, proto.End{})); !l.failed {
		t.Error("END of what was not asked was taken")
	}
}
