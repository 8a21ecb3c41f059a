package link

import (
	"errors"
	"net"
	"testing"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// A push whose memory is not as long as its header says is refused with both lengths.
func TestAPushOfAnotherLengthThanItsHeadersSaysBoth(t *testing.T) {
	a, _, p := pair(t, "tcp://127.0.0.1:0")
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	good := payload(t, wire.OutputCritical, randomBody(100)).B
	it := []fabric.Item{
		{NS: ns, Key: key(ns, 0), M: fabric.Mem{B: good[:len(good)-1]}},
		{NS: ns, Key: key(ns, 1), M: fabric.Mem{B: append(good, 1, 2, 3)}},
		{NS: ns, Key: key(ns, 2), M: fabric.Mem{B: good}},
	}
	p.Push(testContext(t), it)
	var short *wire.TruncatedError
	if !errors.As(it[0].Err, &short) || short.Have != uint64(len(good)-1) || short.Need != uint64(len(good)) {
		t.Errorf("a byte too few: %v", it[0].Err)
	}
	var long *wire.TrailingError
	if !errors.As(it[1].Err, &long) || long.N != 3 {
		t.Errorf("three bytes too many: %v", it[1].Err)
	}
	if it[2].Err != nil {
		t.Errorf("the right length: %v", it[2].Err)
	}
}

// What is above the peer's limit says the limit and what was asked for.
func TestAPullAboveThePeersLimitSaysBoth(t *testing.T) {
	const most, size = 5999, 6000
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Limits = proto.Limits{BytesInFlight: most} })
	a := start(t, 1, 10, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "b", Addr: b.addr}} })
	p := a.Peer("b")
	ready(t, p)
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(ns, key0(ns), wire.OutputCritical, randomBody(size))
	it := pullItems(ns, size)
	p.Pull(testContext(t), it)
	var large *fabric.Error
	if !errors.As(it[0].Err, &large) || large.Code != wire.CodeTooLarge || large.Have != most || large.Need != size {
		t.Errorf("%+v, want TOO_LARGE, have %d, need %d", it[0].Err, most, size)
	}
	s, err := p.session()
	if err != nil {
		t.Fatal(err)
	}
	if err := (&batch{p: p, s: s}).tooLarge(most, "above something else"); !errors.Is(err, wire.CodeTooLarge) || errors.As(err, &large) && large.Text != "above something else" {
		t.Errorf("at the limit: %v", err)
	}
}

// What a session's end left of a load goes on over another one: from where it stopped
// where the peer is the same incarnation and its limits leave room for it, else from the
// beginning; a reference of another incarnation is good for nothing.
func TestWhatIsLeftOfALoadGoesOnOverAnotherSession(t *testing.T) {
	n := start(t, 1, 10, "", nil)
	ns, err := n.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	const size, slot, num = 1000, 7, 3
	for name, c := range map[string]struct {
		off   uint32
		most  uint32 // that the peer grants now
		inc   uint64 // of the peer now; it was 90
		ref   bool   // it was asked for by reference
		opens wire.Code
		moves bool
		want  uint32 // where it goes on
	}{
		"in the middle":              {off: 600, most: size, inc: 90, moves: true, want: 600},
		"at its end":                 {off: size, most: size, inc: 90, moves: true, want: size},
		"beyond what is granted now": {off: 600, most: 599, inc: 90, moves: true},
		"of another incarnation":     {off: 600, most: size, inc: 91, moves: true},
		"by its reference":           {off: 600, most: size, inc: 90, ref: true, moves: true, want: 600},
		"by a reference of before":   {off: 600, most: size, inc: 91, ref: true},
		"not opened":                 {off: 600, most: size, inc: 90, opens: wire.CodeNSUnknown},
	} {
		old, limits := bare(n, true), core.DefaultLimits
		old.drop(wire.CodeLaneLost)
		limits.BytesInFlight = c.most
		next := limited(n, true, limits)
		next.peer.inc = c.inc
		for i := range uint8(2) {
			here, there := net.Pipe()
			t.Cleanup(func() { _, _ = here.Close(), there.Close() })
			bareLane(t, next, i, here, (*lane).writer)
		}
		e := answered(c.opens, 0)
		if e.opened.NS = num; c.opens == wire.CodeOK {
			e.err = nil
		}
		next.set(ns, e)
		p := newPeer(n.Node, PeerConfig{Name: "peer"})
		p.addSession(next)
		b := &batch{p: p, s: old, it: pullItems(ns, size), num: []uint16{1}, ref: []bool{c.ref}}
		items := []core.Item{{NS: 1, Off: c.off, Slot: slot, Gen: 2, Head: [wire.HeaderLen]byte{1}}}
		to := b.move(t.Context(), []int{0}, items)
		switch it := &items[0]; {
		case !c.moves:
			if to != nil {
				t.Errorf("%s: it goes on", name)
			}
		case to == nil || to.s != next || to.num[0] != num || it.NS != num || len(it.Room) != int(min(size, c.most)):
			t.Errorf("%s: it goes on %v, with %+v", name, to != nil, it)
		case it.Off != c.want || (it.Slot == slot) != (c.want > 0) || (it.Head[0] == 1) != (c.want > 0):
			t.Errorf("%s: from %d of slot %d, want %d", name, it.Off, it.Slot, c.want)
		}
		if c.moves {
			again := to.move(t.Context(), []int{0}, items)
			if again != to {
				t.Errorf("%s: it left a session that takes calls", name)
			}
		}
		next.drop(wire.CodeLaneLost)
	}
}
