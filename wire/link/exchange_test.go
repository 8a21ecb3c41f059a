package link

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"meridian/wire"
)

// exchange is what one side sends on an open lane and what it gets. The README
// beside the vectors is its manual.
type exchange struct {
	Name    string   `json:"name"`
	Lane    uint8    `json:"lane"`
	Send    []string `json:"send"`
	Answers []answer `json:"answers"`
	Ends    bool     `json:"ends"`
}

type answer struct {
	Type   string      `json:"type"`
	Req    uint64      `json:"req,omitempty"`
	Code   *wire.Code  `json:"code,omitempty"`
	Status []wire.Code `json:"status,omitempty"`
}

// exchanges collects the cases of a file. No two use one request id.
type exchanges struct {
	list []exchange
	req  uint64
}

func (x *exchanges) next() uint64 { x.req += 2; return x.req }

func (x *exchanges) add(name string, lane uint8, answers []answer, frames ...[]byte) {
	e := exchange{Name: name, Lane: lane, Answers: answers, Send: []string{}}
	for _, f := range frames {
		e.Send = append(e.Send, hex.EncodeToString(f))
	}
	if n := len(answers); n > 0 && answers[n-1].Type == TypeError.String() {
		e.Ends = true
	}
	if answers == nil {
		e.Answers = []answer{}
	}
	x.list = append(x.list, e)
}

// refused adds frames after which the lane ends with code.
func (x *exchanges) refused(name string, lane uint8, code wire.Code, frames ...[]byte) {
	x.add(name, lane, []answer{{Type: TypeError.String(), Code: &code}}, frames...)
}

func ended(req uint64, code wire.Code) answer {
	return answer{Type: TypeEnd.String(), Req: req, Code: &code}
}

func listed(t Type, req uint64, status ...wire.Code) answer {
	return answer{Type: t.String(), Req: req, Status: status}
}

func plain(t Type, req uint64, m Message) []byte {
	return AppendMessage(nil, Frame{Type: t, Req: req}, m)
}

func critical(t Type, req uint64, m Message) []byte {
	return AppendMessage(nil, Frame{Type: t, Flags: FlagCritical, Req: req}, m)
}

func dataFrame(req uint64) []byte {
	return append(AppendData(nil, Frame{Type: TypeData, Req: req}, 0, 3), "abc"...)
}

// sampleOf is a valid message of a type.
func sampleOf(t Type) Message { return kindOf(t).samples[0].m }

var someWant = []Want{{NS: 1000, Key: wire.Key{1}, Max: 100}}

// firsts are what may not come as the first bytes of a lane.
func firsts() []exchange {
	x := &exchanges{}
	good := critical(TypeHello, 0, sampleOf(TypeHello))
	ping := plain(TypePing, 1, Empty{})
	x.refused("another protocol", 0, wire.CodeLinkMagic, []byte("GET / HTTP/1.1\r\nHost: meridian\r\n\r\n"))
	x.refused("PING", 0, wire.CodeLinkMagic, ping)
	x.refused("DATA", 0, wire.CodeLinkMagic, dataFrame(1))
	x.refused("an unknown type", 0, wire.CodeLinkMagic, plain(200, 1, Empty{}))
	x.refused("crc32c of the header wrong", 0, wire.CodeLinkMagic, with(good, 20, good[20]^1))
	x.refused("an undefined flag", 0, wire.CodeLinkMagic, append(seal(with(good, 5, 3)[:FrameLen:FrameLen]), good[FrameLen:]...))
	x.refused("class 4", 0, wire.CodeLinkMagic, append(seal(with(good, 6, 4)[:FrameLen:FrameLen]), good[FrameLen:]...))
	x.refused("HELLO longer than any", 0, wire.CodeLinkMagic, append(Frame{Type: TypeHello, Len: MaxControl}.Append(nil), 0, 0, 0, 0))
	x.refused("trailer wrong", 0, wire.CodeCRC, with(good, len(good)-1, good[len(good)-1]^1))
	x.refused("HELLO with another magic", 0, wire.CodeLinkMagic, critical(TypeHello, 0, raw(with(helloKind.payload(0), 0, 'X'))))
	x.refused("HELLO with lane 17", 0, wire.CodeInvalid, critical(TypeHello, 0, raw(with(helloKind.payload(0), 48, 17))))
	x.refused("HELLO with a reserved byte set", 0, wire.CodeInvalid, critical(TypeHello, 0, raw(with(helloKind.payload(0), 50, 1))))
	x.refused("HELLO with a byte after its last element", 0, wire.CodeLength, critical(TypeHello, 0, raw(append(helloKind.payload(0), 0))))
	return x.list
}

// sessions are exchanges on a lane between agents, where nothing runs and no
// namespace is open.
func sessions() []exchange {
	x := &exchanges{req: 99}
	for t := TypeHello; t <= TypeError; t++ {
		switch t {
		case TypeData:
			x.refused("DATA that nobody asked for", 0, wire.CodeFlowViolation, dataFrame(x.next()))
			x.refused("DATA that nobody asked for", 1, wire.CodeFlowViolation, dataFrame(x.next()))
		case TypeOpen, TypeHas, TypeStat, TypeRenew, TypeRelease:
			x.refused(t.String()+" on a data lane", 1, wire.CodeState, plain(t, x.next(), sampleOf(t)))
		case TypeGoAway:
			x.refused("GOAWAY on a data lane", 1, wire.CodeState, plain(t, 0, sampleOf(t)))
		case TypePull, TypePush:
			x.refused(t.String()+" on lane 0", 0, wire.CodeState, plain(t, x.next(), sampleOf(t)))
		case TypeHello:
			x.refused("a HELLO more", 0, wire.CodeState, critical(t, 0, sampleOf(t)))
			x.refused("a HELLO more", 1, wire.CodeState, critical(t, 0, sampleOf(t)))
		case TypeOpened, TypeTable, TypeGrant, TypeEnd:
			x.refused(t.String()+" that was not asked for", 0, wire.CodeState, plain(t, x.next()+1, sampleOf(t)))
			x.refused(t.String()+" that was not asked for", 1, wire.CodeState, plain(t, x.next()+1, sampleOf(t)))
		case TypeCommit:
			x.refused("COMMIT without PUSH", 0, wire.CodeState, plain(t, x.next(), Empty{}))
			x.refused("COMMIT without PUSH", 1, wire.CodeState, plain(t, x.next(), Empty{}))
		}
	}
	for t := TypeMap; t <= TypeWindowed; t++ {
		x.refused(t.String()+" between agents", 0, wire.CodeState, plain(t, x.next(), sampleOf(t)))
	}
	for lane := range uint8(2) {
		x.refused("a request without an id", lane, wire.CodeState, plain(TypePing, 0, Empty{}))
		x.refused("a request with an id of the other side", lane, wire.CodeState, plain(TypePing, x.next()+1, Empty{}))
		x.refused("an unknown type that is critical", lane, wire.CodeUnsupported, critical(77, x.next(), Empty{}))
		q := x.next()
		x.add("an unknown type", lane, []answer{ended(q, wire.CodeUnsupported)}, plain(77, q, raw("whatever it says")))
		x.add("an unknown type without an id", lane, nil, plain(77, 0, Empty{}))
		x.add("an unknown type with an id of the other side", lane, nil, plain(77, x.next()+1, Empty{}))
		b := plain(77, x.next(), raw("whatever"))
		x.refused("an unknown type with a wrong trailer", lane, wire.CodeCRC, with(b, len(b)-1, b[len(b)-1]^1))
		q = x.next()
		x.add("CANCEL of nothing", lane, []answer{ended(q, wire.CodeCancelled)}, plain(TypeCancel, q, Empty{}))
		q = x.next()
		x.add("ABORT of nothing", lane, []answer{ended(q, wire.CodeCancelled)}, plain(TypeAbort, q, Empty{}))
		q = x.next()
		f := Frame{Type: TypePing, Flags: FlagCritical, Class: 3, Req: q, Arg: 7}
		x.add("PING with what is not looked at", lane, []answer{ended(q, 0)}, AppendMessage(nil, f, Empty{}))
	}
	x.sessionRequests()
	x.notAgreed()
	x.withoutGroup(2)
	return x.list
}

// withoutGroup are messages of GROUP that the sender's HELLO did not have: to the
// reader their types are unknown.
func (x *exchanges) withoutGroup(lanes uint8) {
	for lane := range lanes {
		for t := TypeLoad; t <= TypeProcess; t++ {
			q := x.next()
			x.add(t.String()+" without the feature", lane, []answer{ended(q, wire.CodeUnsupported)}, plain(t, q, sampleOf(t)))
			x.refused(t.String()+" without the feature, with CRITICAL", lane, wire.CodeUnsupported, critical(t, x.next(), sampleOf(t)))
		}
		x.add("PHASEAT without the feature and without an id", lane, nil, plain(TypePhaseAt, 0, sampleOf(TypePhaseAt)))
	}
}

// sessionRequests are requests that are well-formed and due.
func (x *exchanges) sessionRequests() {
	q := x.next()
	x.add("HAS of a number that was not given out", 0, []answer{listed(TypeTable, q, wire.CodeNSUnknown), ended(q, 0)},
		plain(TypeHas, q, Has{DeadlineMS: 1000, Items: someWant}))
	q = x.next()
	x.add("STAT of nothing", 0, []answer{listed(TypeTable, q), ended(q, 0)}, plain(TypeStat, q, Has{DeadlineMS: 1000}))
	q = x.next()
	x.add("HAS whose time has run out", 0, []answer{ended(q, wire.CodeDeadline)}, plain(TypeHas, q, Has{Items: someWant}))
	q = x.next()
	x.add("PULL of a number that was not given out", 1, []answer{listed(TypeTable, q, wire.CodeNSUnknown), ended(q, 0)},
		plain(TypePull, q, Pull{DeadlineMS: 1000, Items: someWant}))
	q = x.next()
	x.add("PULL of nothing", 1, []answer{listed(TypeTable, q), ended(q, 0)}, plain(TypePull, q, Pull{DeadlineMS: 1000}))
	q = x.next()
	x.add("PUSH of nothing", 1, []answer{listed(TypeGrant, q)}, plain(TypePush, q, Push{DeadlineMS: 5000}))
	q = x.next()
	item := PushItem{NS: 1000, Key: wire.Key{1}, Have: Have{Len: 3}}
	wire.Header{BodyLen: 3, Sum: wire.SumOf([]byte("abc"))}.Put(item.Have.Head[:])
	x.add("PUSH to a number that was not given out", 1, []answer{listed(TypeGrant, q, wire.CodeNSUnknown)},
		plain(TypePush, q, Push{DeadlineMS: 5000, Items: []PushItem{item}}))
	q = x.next()
	x.add("RENEW of a lease that is none", 0, []answer{ended(q, wire.CodeLeaseLost)}, plain(TypeRenew, q, Renew{Lease: [16]byte{7}, MS: 1000}))
	q = x.next()
	x.add("RENEW for 0 ms of a lease that is none", 0, []answer{ended(q, wire.CodeLeaseLost)}, plain(TypeRenew, q, Renew{Lease: [16]byte{7}}))
	q = x.next()
	x.add("RELEASE of a lease that is none", 0, []answer{ended(q, 0)}, plain(TypeRelease, q, Release{Leases: [][16]byte{{7}, {}}}))
	q = x.next()
	bad := wire.CodeManifest
	x.add("OPEN of a manifest that is not canonical", 0, []answer{{Type: TypeOpened.String(), Req: q, Code: &bad}},
		plain(TypeOpen, q, Open{Manifest: []byte("tenant=t\n")}))
	q = x.next()
	stranger := wire.CodeNSUnknown
	m := wire.Manifest{Tenant: "a tenant of nobody here", Model: "m", Role: "r", BlockBytes: 1, BlockTokens: 1}
	x.add("OPEN of a tenant that was not proven", 0, []answer{{Type: TypeOpened.String(), Req: q, Code: &stranger}},
		plain(TypeOpen, q, Open{Manifest: m.Append(nil)}))
	x.add("GOAWAY with an id", 0, nil, plain(TypeGoAway, x.next(), GoAway{MS: 60000, Code: wire.CodeDraining}))
	p := pullKind.payload(0)
	x.refused("PULL with a byte after the last item", 1, wire.CodeLength, plain(TypePull, x.next(), raw(append(bytes.Clone(p), 0))))
	x.refused("TABLE with tier 3 that was not asked for", 1, wire.CodeState, plain(TypeTable, x.next()+1, raw(with(tableKind.payload(0), 22, 3))))
	long := Frame{Type: TypeOpen, Req: x.next(), Len: openFixed + MaxManifest + TrailerLen + 1}.Append(nil)
	x.refused("OPEN above its longest", 0, wire.CodeLength, append(long, 0, 0, 0, 0))
	short := Frame{Type: TypePing, Req: x.next(), Len: 3}.Append(nil)
	x.refused("a frame shorter than 28 bytes", 0, wire.CodeLength, append(short, 0, 0, 0, 0))
}

// notAgreed are messages of a feature that the sender's HELLO did not have: to the
// reader their types are unknown.
func (x *exchanges) notAgreed() {
	for lane := range uint8(2) {
		x.add("STANDING without the feature", lane, nil, plain(TypeStanding, 0, sampleOf(TypeStanding)))
		q := x.next()
		x.add("DELIVER without the feature", lane, []answer{ended(q, wire.CodeUnsupported)}, plain(TypeDeliver, q, sampleOf(TypeDeliver)))
		x.refused("DELIVER without the feature, with CRITICAL", lane, wire.CodeUnsupported, critical(TypeDeliver, x.next(), sampleOf(TypeDeliver)))
	}
}

// locals are exchanges on the engine's socket, where nothing runs and no
// namespace is open.
func locals() []exchange {
	x := &exchanges{req: 99}
	for _, t := range []Type{TypePull, TypePush, TypeStat, TypeAbort, TypeWindow, TypeWindowEnd} {
		q := x.next()
		x.add(t.String(), 0, []answer{ended(q, wire.CodeUnsupported)}, plain(t, q, sampleOf(t)))
		x.refused(t.String()+" with CRITICAL", 0, wire.CodeUnsupported, critical(t, x.next(), sampleOf(t)))
	}
	for _, t := range []Type{TypeOpened, TypeTable, TypeGrant, TypeCommit, TypeEnd, TypeAcquired, TypePhase, TypeWindowed, TypeMap} {
		x.refused(t.String(), 0, wire.CodeState, plain(t, x.next(), sampleOf(t)))
	}
	x.refused("GOAWAY", 0, wire.CodeState, plain(TypeGoAway, 0, GoAway{MS: 1000}))
	x.refused("a HELLO more", 0, wire.CodeState, critical(TypeHello, 0, helloKind.samples[3].m))
	x.refused("DATA", 0, wire.CodeFlowViolation, dataFrame(x.next()))
	x.refused("a request without an id", 0, wire.CodeState, plain(TypePing, 0, Empty{}))
	x.refused("a request with an even id", 0, wire.CodeState, plain(TypeHas, x.next()+1, Has{DeadlineMS: 1000}))
	x.refused("an unknown type that is critical", 0, wire.CodeUnsupported, critical(77, x.next(), Empty{}))
	q := x.next()
	x.add("an unknown type", 0, []answer{ended(q, wire.CodeUnsupported)}, plain(77, q, raw("whatever it says")))
	x.add("an unknown type without an id", 0, nil, plain(77, 0, Empty{}))
	x.add("an unknown type with an even id", 0, nil, plain(77, x.next()+1, Empty{}))
	x.add("CANCEL of nothing", 0, nil, plain(TypeCancel, x.next(), Empty{}))
	x.add("CANCEL of nothing with an even id", 0, nil, plain(TypeCancel, x.next()+1, Empty{}))
	x.add("TOKENS of nobody, with an id", 0, nil, plain(TypeTokens, x.next()+1, Tokens{Req: []uint32{9}, N: []uint8{1}, Tok: []int32{5}}))
	x.refused("TOKENS whose columns disagree", 0, wire.CodeInvalid, plain(TypeTokens, 0, Tokens{Req: []uint32{1}, N: []uint8{2}, Tok: []int32{5}}))
	for _, c := range []struct {
		name string
		t    Type
		m    Message
		code wire.Code
	}{
		{"PING", TypePing, Empty{}, 0},
		{"MAP asked for where no namespace is open", TypeMap, Map{}, 0},
		{"FINISH of nobody", TypeFinish, Finish{Req: 9}, 0},
		{"FINISH of number 0", TypeFinish, Finish{}, 0},
		{"BEGIN of number 0", TypeBegin, Begin{Model: "m"}, wire.CodeInvalid},
		{"PUT whose time has run out", TypePut, Put{Items: []PutItem{{Len: 1, Key: wire.Key{1}}}}, wire.CodeDeadline},
		{"ACQUIRE whose time has run out", TypeAcquire, Acquire{Items: someWant}, wire.CodeDeadline},
		{"RENEW of a lease that is none", TypeRenew, Renew{Lease: [16]byte{7}, MS: 1000}, wire.CodeLeaseLost},
		{"RELEASE of a lease that is none", TypeRelease, Release{Leases: [][16]byte{{7}}}, 0},
	} {
		q := x.next()
		x.add(c.name, 0, []answer{ended(q, c.code)}, plain(c.t, q, c.m))
	}
	q = x.next()
	x.add("HAS of a number that was not given out", 0, []answer{listed(TypeTable, q, wire.CodeNSUnknown), ended(q, 0)},
		plain(TypeHas, q, Has{DeadlineMS: 1000, Items: someWant}))
	q = x.next()
	x.add("ACQUIRE of a number that was not given out", 0, []answer{listed(TypeAcquired, q, wire.CodeNSUnknown), ended(q, 0)},
		plain(TypeAcquire, q, Acquire{DeadlineMS: 1000, Items: someWant}))
	q = x.next()
	put := ended(q, 0)
	put.Status = []wire.Code{wire.CodeNSUnknown}
	x.add("PUT to a number that was not given out", 0, []answer{put}, plain(TypePut, q, Put{DeadlineMS: 1000, Items: []PutItem{{NS: 1000, Len: 1, Key: wire.Key{1}}}}))
	q = x.next()
	bad := wire.CodeManifest
	x.add("OPEN of a manifest that is not canonical", 0, []answer{{Type: TypeOpened.String(), Req: q, Code: &bad}, ended(q, bad)},
		plain(TypeOpen, q, Open{Manifest: []byte("tenant=t\n")}))
	x.add("STANDING", 0, nil, plain(TypeStanding, 0, sampleOf(TypeStanding)))
	q = x.next()
	x.add("DELIVER", 0, []answer{ended(q, wire.CodeUnsupported)}, plain(TypeDeliver, q, sampleOf(TypeDeliver)))
	x.refused("MAP that asks for a staging ring, without RING in HELLO", 0, wire.CodeState,
		plain(TypeMap, x.next(), Map{Segs: []Seg{{Size: 4096, Kind: SegStaging}}}))
	x.withoutGroup(1)
	return x.list
}

// grouped are exchanges on the engine's socket with GROUP, where nothing runs and no
// namespace is open.
func grouped() []exchange {
	x := &exchanges{req: 99}
	for _, t := range []Type{TypeLoaded, TypeReserved, TypePhaseAt, TypeEvicted} {
		x.refused(t.String(), 0, wire.CodeState, plain(t, x.next(), sampleOf(t)))
	}
	for t := TypeLoad; t <= TypeProcess; t++ {
		x.refused(t.String()+" without an id", 0, wire.CodeState, plain(t, 0, sampleOf(t)))
	}
	key := wire.Key{1}
	store := []StoreItem{{NS: 1000, Len: 1, Key: key}}
	x.refused("PUTAT with tier 3", 0, wire.CodeInvalid, plain(TypePutAt, x.next(), raw(with(putAtKind.payload(0), 10, 3))))
	x.refused("RESERVE with an offset in the ring", 0, wire.CodeInvalid, plain(TypeReserve, x.next(), raw(with(reserveKind.payload(0), 20, 1))))
	for _, c := range []struct {
		name string
		t    Type
		m    Message
		code wire.Code
	}{
		{"PUTAT whose time has run out", TypePutAt, PutAt{Items: store}, wire.CodeDeadline},
		{"RESERVE whose time has run out", TypeReserve, Reserve{Items: store}, wire.CodeDeadline},
		{"FILL of nothing, which gives the rest of no reservation back", TypeFill, Fill{Rsv: 9, Last: true}, 0},
		{"RESUME of number 0", TypeResume, Resume{Model: "m"}, wire.CodeInvalid},
		{"HANDOFF of nobody", TypeHandoff, Handoff{Req: 9, KeepMS: 1000}, 0},
		{"HANDOFF for no time", TypeHandoff, Handoff{Req: 9}, wire.CodeInvalid},
		{"PROCESS without a descriptor", TypeProcess, Empty{}, wire.CodeInvalid},
	} {
		q := x.next()
		x.add(c.name, 0, []answer{ended(q, c.code)}, plain(c.t, q, c.m))
	}
	q := x.next()
	x.add("RESERVE in a number that was not given out", 0, []answer{listed(TypeReserved, q, wire.CodeNSUnknown), ended(q, 0)},
		plain(TypeReserve, q, Reserve{DeadlineMS: 1000, Items: store}))
	q = x.next()
	put := ended(q, 0)
	put.Status = []wire.Code{wire.CodeNSUnknown}
	x.add("PUTAT to a number that was not given out", 0, []answer{put}, plain(TypePutAt, q, PutAt{DeadlineMS: 1000, Items: store}))
	q = x.next()
	fill := ended(q, 0)
	fill.Status = []wire.Code{wire.CodeLeaseLost, wire.CodeLeaseLost}
	x.add("FILL of no reservation", 0, []answer{fill}, plain(TypeFill, q, Fill{Rsv: 9, Items: []FillItem{{Len: 1}, {Item: 1, Len: 1}}}))
	return x.list
}

// loads are exchanges about LOAD, as those of grouped.
func loads() []exchange {
	x := &exchanges{req: 999}
	key := wire.Key{1}
	x.refused("LOAD with holder 3 of 2", 0, wire.CodeInvalid, plain(TypeLoad, x.next(), raw(with(loadKind.payload(0), 68, 3))))
	x.refused("LOAD with a holder whose agent is zero", 0, wire.CodeInvalid, plain(TypeLoad, x.next(), Load{DeadlineMS: 1, Holders: []Holder{{Inc: 1}}}))
	q := x.next()
	x.add("LOAD whose time has run out", 0, []answer{ended(q, wire.CodeDeadline)}, plain(TypeLoad, q, Load{Items: []LoadItem{{NS: 1000, Key: key}}}))
	q = x.next()
	x.add("LOAD of nothing", 0, []answer{ended(q, 0)}, plain(TypeLoad, q, Load{DeadlineMS: 1000}))
	for _, flags := range []uint16{0, WantFetch, WantWait, WantFetch | WantWait} {
		q := x.next()
		x.add(fmt.Sprintf("LOAD of a number that was not given out, with flags %d", flags), 0, []answer{listed(TypeLoaded, q, wire.CodeNSUnknown), ended(q, 0)},
			plain(TypeLoad, q, Load{DeadlineMS: 1000, Items: []LoadItem{{NS: 1000, Flags: flags, Key: key}}}))
	}
	return x.list
}

func TestExchangesAreWrittenByThisVersion(t *testing.T) {
	for name, list := range map[string][]exchange{"first": firsts(), "session": sessions(), "local": locals(), "group": grouped(), "load": loads()} {
		file := "exchanges/" + name + ".json"
		if *update {
			writeJSON(t, file, list)
		}
		var have []exchange
		readJSON(t, file, &have)
		if got, want := asJSON(t, list), asJSON(t, have); got != want {
			t.Errorf("%s: this version has\n%s\nthe vectors are\n%s", name, got, want)
		}
	}
}
