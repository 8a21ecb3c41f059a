package core

import (
	"bytes"
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// bodyHead is the header of a body of that many zero bytes.
func bodyHead(n int) wire.Header {
	return wire.Header{BodyLen: uint32(n), Tier: wire.ThinkActive, Sum: wire.SumOf(make([]byte, n))}
}

// A holder whose TABLE has one entry that is no block of those asked for has the
// lane closed with the code of the page, and nothing of that TABLE counts: also
// the entries before it are not OK, whatever DATA and END follow.
func TestATableWithOneFalseEntryDeliversNothing(t *testing.T) {
	const size = 100
	good := func() proto.Have {
		return proto.Have{Len: size, Head: [32]byte(bodyHead(size).Append(nil)), Slot: 7, Gen: 4, Att: wire.AttestProducer}
	}
	for _, c := range []struct {
		name string
		bend func(h *proto.Have)
		has  bool // HAS refuses it as well
		want wire.Code
	}{
		{"magic", func(h *proto.Have) { h.Head[0] ^= 1 }, true, wire.CodeInvalid},
		{"version", func(h *proto.Have) { h.Head[4] = 2 }, true, wire.CodeInvalid},
		{"tier 3", func(h *proto.Have) { h.Head[12] = 3 }, true, wire.CodeInvalid},
		{"padding", func(h *proto.Have) { h.Head[13] = 1 }, true, wire.CodeInvalid},
		{"len above body_len", func(h *proto.Have) { h.Len++ }, true, wire.CodeInvalid},
		{"len below body_len", func(h *proto.Have) { h.Len-- }, true, wire.CodeInvalid},
		{"len 0", func(h *proto.Have) { h.Len = 0 }, true, wire.CodeInvalid},
		{"no header", func(h *proto.Have) { h.Head = [32]byte{} }, true, wire.CodeInvalid},
		{"another slot than the reference", func(h *proto.Have) { h.Slot++ }, true, wire.CodeInvalid},
		{"another generation than the reference", func(h *proto.Have) { h.Gen++ }, true, wire.CodeInvalid},
		{"a body that there is no room for", func(h *proto.Have) {
			h.Len, h.Head = size+1, [32]byte(bodyHead(size+1).Append(nil))
		}, false, wire.CodeFlowViolation},
	} {
		for _, typ := range []proto.Type{proto.TypePull, proto.TypeHas, proto.TypeStat} {
			if typ != proto.TypePull && !c.has {
				continue
			}
			for at := range 3 { // which of the entries is false
				t.Run(c.name+" in "+typ.String(), func(t *testing.T) {
					r := newRig(t, 1, proto.Limits{})
					r.quiet = true
					num := r.open(1)
					call := &Call{Type: typ, Timeout: 30 * time.Second}
					for _, n := range []string{"x", "y", "z"} {
						it := Item{NS: num, Key: r.key(n), Slot: 7, Gen: 4}
						if typ == proto.TypePull {
							it.Room = make([]byte, size)
						}
						call.Items = append(call.Items, it)
					}
					r.end[1].Start(r.now, call)
					id := r.end[1].nextReq - 2
					table := proto.Table{Items: []proto.Have{good(), good(), good()}}
					c.bend(&table.Items[at])
					run := frameOf(proto.TypeTable, id, table)
					if typ == proto.TypePull {
						for i := range uint32(3) {
							run = append(proto.AppendData(run, proto.Frame{Req: id, Arg: i}, 0, size), make([]byte, size)...)
						}
					}
					run = append(run, frameOf(proto.TypeEnd, id, proto.End{})...)
					lane := uint8(0)
					if typ == proto.TypePull {
						lane = 1
					}
					r.feed(lane, run)
					for i := range call.Items {
						if it := &call.Items[i]; it.Code == wire.CodeOK {
							t.Errorf("item %d is OK: %d bytes, attest %v", i, it.Len, it.Att)
						}
					}
					code, errors, _ := r.said(lane)
					if errors != 1 || code != c.want {
						t.Errorf("%d ERROR, code %v, want one %v", errors, code, c.want)
					}
					r.settled()
				})
			}
		}
	}
}

// The TABLE after COMMIT tells of the blocks that were pushed and of no others.
func TestATableAfterCommitThatTellsOfOtherBlocksIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		grant []wire.Code
		bend  func(h []proto.Have)
	}{
		{"another header", []wire.Code{0, 0}, func(h []proto.Have) { h[1].Head = [32]byte(bodyHead(1000).Append(nil)) }},
		{"no header", []wire.Code{0, 0}, func(h []proto.Have) { h[0].Head[0] = 0 }},
		{"one that was not granted", []wire.Code{0, wire.CodeFull}, func([]proto.Have) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, proto.Limits{})
			r.quiet = true
			num := r.open(1)
			p := r.push(1, proto.ClassUrgent, num, 1000, "p", "q")
			id := r.end[1].nextReq - 2
			r.feed(1, frameOf(proto.TypeGrant, id, proto.Grant{Status: c.grant}))
			if code, errors, _ := r.said(1); errors != 0 { // the bodies and COMMIT go out
				t.Fatalf("GRANT: ERROR %v", code)
			}
			table := proto.Table{Items: make([]proto.Have, 2)}
			for i := range table.Items {
				it := &p.Items[i]
				table.Items[i] = proto.Have{Len: 1000, Head: it.Head, Tier: it.Tier, Slot: 3, Gen: 2}
			}
			c.bend(table.Items)
			r.feed(1, append(frameOf(proto.TypeTable, id, table), frameOf(proto.TypeEnd, id, proto.End{})...))
			if code, errors, _ := r.said(1); errors != 1 || code != wire.CodeInvalid {
				t.Errorf("%d ERROR, code %v, want one INVALID", errors, code)
			}
			if p.Items[0].Code == wire.CodeOK || p.Items[1].Code == wire.CodeOK {
				t.Errorf("items: %v", codesOf(p))
			}
			r.settled()
		})
	}
}

// A resumed pull goes on with the same block: another header under the old
// generation is a lie, which is found before a byte of it comes.
func TestAResumedPullIsOfTheSameBlock(t *testing.T) {
	r := newRig(t, 1, proto.Limits{})
	r.quiet = true
	num := r.open(1)
	room := make([]byte, 100)
	c := &Call{Type: proto.TypePull, Timeout: 30 * time.Second, Items: []Item{{
		NS: num, Key: r.key("x"), Slot: 7, Gen: 4, Off: 60, Room: room, Head: [32]byte(bodyHead(100).Append(nil)),
	}}}
	r.end[1].Start(r.now, c)
	other := wire.Header{BodyLen: 100, Sum: wire.SumOf(bytes.Repeat([]byte{1}, 100))}
	r.feed(1, frameOf(proto.TypeTable, r.end[1].nextReq-2, proto.Table{Items: []proto.Have{{Len: 100, Head: [32]byte(other.Append(nil)), Slot: 7, Gen: 4}}}))
	if code, errors, _ := r.said(1); errors != 1 || code != wire.CodeInvalid {
		t.Errorf("%d ERROR, code %v, want one INVALID", errors, code)
	}
	wantCodes(t, c, wire.CodeLaneLost)
	r.settled()
}

// END OK stands for what came before it.
func TestEndOKBeforeTheRestIsState(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(r *rig, num uint16) *Call
		feed func(id uint64) []byte // before END
		lane uint8
	}{
		{"OPEN", func(r *rig, _ uint16) *Call {
			c := &Call{Type: proto.TypeOpen, Manifest: manifest("t").Append(nil), Timeout: time.Second}
			r.end[1].Start(r.now, c)
			return c
		}, nil, 0},
		{"HAS", func(r *rig, num uint16) *Call {
			c := &Call{Type: proto.TypeHas, Timeout: time.Second, Items: []Item{{NS: num, Key: r.key("x")}}}
			r.end[1].Start(r.now, c)
			return c
		}, nil, 0},
		{"PULL", func(r *rig, num uint16) *Call { return r.pull(1, 0, num, 100, "x") }, nil, 1},
		{"PUSH", func(r *rig, num uint16) *Call { return r.push(1, 0, num, 100, "x") }, nil, 1},
		{"PUSH without its TABLE", func(r *rig, num uint16) *Call { return r.push(1, 0, num, 100, "x") }, func(id uint64) []byte {
			return frameOf(proto.TypeGrant, id, proto.Grant{Status: []wire.Code{0}})
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, proto.Limits{})
			r.quiet = true
			call := c.call(r, r.open(1))
			id := r.end[1].nextReq - 2
			if c.feed != nil {
				r.feed(c.lane, c.feed(id))
				r.said(c.lane)
			}
			r.feed(c.lane, frameOf(proto.TypeEnd, id, proto.End{}))
			if code, errors, _ := r.said(c.lane); errors != 1 || code != wire.CodeState {
				t.Errorf("%d ERROR, code %v, want one STATE", errors, code)
			}
			if call.Code == wire.CodeOK {
				t.Error("the call is OK")
			}
			r.settled()
		})
	}
}
