package core

import (
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// FuzzLane lets the input drive a session: valid frames in any order, changed
// ones, raw bytes, ticks, cancels, lost lanes. Whatever happens, nothing panics,
// memory is freed once, nothing unverified is published, and all counts are zero
// at the end.
func FuzzLane(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte{0x60, 0x60, 0x91, 0xa1, 0x61, 0x21, 0x30, 0x31, 0x90, 0xa0, 0x10, 0x11})
	f.Add([]byte{0x50, 0x51, 0x0f, 0x2f, 0x3f, 0x50, 0xf0, 0xf1, 0xe0, 0xd0, 0xc0})
	f.Add([]byte{0, 0, 0xd0, 0x02, 0x50, 0xff, 0x70, 0xff, 0xd0, 0x0c, 0x50, 0xff, 0xd0, 0xfc, 0xd0, 0x06, 0xf0, 0})
	f.Fuzz(drive)
}

func drive(t *testing.T, in []byte) {
	if len(in) > 400 {
		in = in[:400]
	}
	r := newHomeRig(t, 2, proto.Limits{}, 4)
	r.quiet = true
	num := r.open(0)
	back := r.open(1)
	small := r.small(0)
	r.put(1, 3000, "x", "y")
	r.put(0, 3000, "x", "y")
	r.held = len(in) > 0 && in[0]&1 == 1
	table := samples(num, r.key("p"))
	var calls, grows []*Call
	var mine []int
	for i := 0; i+1 < len(in); i += 2 {
		op, arg := in[i]>>4, in[i+1]
		idx := in[i] & 3 % 3
		switch op {
		case 0, 1:
			mine = append(mine, 0)
			calls = append(calls, r.pull(0, proto.Class(arg&3), num, int(arg)*20, "x", "y", "nowhere"))
		case 2:
			mine = append(mine, 1)
			calls = append(calls, r.pull(1, proto.Class(arg&3), back, 3000, "x"))
		case 3:
			mine = append(mine, 0)
			if arg&1 == 0 {
				calls = append(calls, r.push(0, proto.Class(arg&3), num, int(arg)*9, string(rune('a'+arg%26))))
			} else {
				calls = append(calls, r.push(0, proto.Class(arg>>1&3), small, int(arg)*16, string(rune('a'+arg%26)), string(rune('A'+arg%26))))
			}
		case 4:
			if len(calls) > 0 {
				k := int(arg) % len(calls)
				r.end[mine[k]].Cancel(r.now, calls[k], wire.CodeCancelled)
			}
		case 5, 6:
			r.move(0, idx, 1+int(arg)*37)
		case 7, 8:
			r.move(1, idx, 1+int(arg)*37)
		case 9:
			r.feed(idx, table[proto.Type(arg%22)])
		case 10:
			frame := append([]byte(nil), table[proto.TypePush]...)
			frame[int(arg)%len(frame)] ^= 1 << (arg & 7)
			r.feed(idx, frame)
		case 11:
			r.feed(idx, in[i:])
		case 12:
			r.now += time.Duration(arg) * 100 * time.Millisecond
			r.end[0].Tick(r.now)
			r.end[1].Tick(r.now)
			r.reap()
		case 13:
			r.drive13(num, arg, &grows)
		case 14:
			r.lose(idx)
			r.addLaneIfGone(idx)
		case 15:
			if arg == 255 {
				r.end[1].GoAway(r.now, 1000, wire.CodeDraining, "")
			}
			r.run()
		}
	}
	for idx := range uint8(3) {
		r.lose(idx)
	}
	r.work(0)
	r.work(1)
	for i := range r.end {
		r.end[i].Drop(r.now, wire.CodeLaneLost)
	}
	for _, c := range append(calls, grows...) {
		if !c.over {
			t.Fatal("a call never ended")
		}
	}
	r.settled()
	for i := range r.end {
		if !r.store[i].dropped {
			t.Fatal("the store was not given back")
		}
	}
}

// drive13 does jobs, or what a push whose body comes meanwhile can do.
func (r *rig) drive13(num uint16, arg byte, grows *[]*Call) {
	var c *Call
	if n := len(*grows); n > 0 {
		c = (*grows)[int(arg>>3)%n]
	}
	switch arg >> 1 & 3 {
	case 1:
		*grows = append(*grows, r.stream(0, num, int(arg)*3000, string(rune('a'+arg%26))))
	case 2:
		if c != nil {
			r.end[0].Grow(r.now, c, c.ready+int(arg)*500)
		}
	case 3:
		if c != nil {
			r.end[0].Agree(r.now, c, wire.Hash(c.Items[0].Room))
		}
	default:
		r.work(int(arg & 1))
	}
}

func (r *rig) addLaneIfGone(idx uint8) {
	for i := range r.end {
		if _, dead := r.end[i].Dead(); dead {
			return
		}
	}
	r.addLane(idx)
}
