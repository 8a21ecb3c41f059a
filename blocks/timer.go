package blocks

import "time"

// timers is a binary heap of deadlines: of leases and of reservations. Each
// entry knows its lease or group, which knows the entry's place, so renewal and
// removal cost O(log n) and the order of arrival has no say in what expires.
type timers struct{ h []timer }

type timer struct {
	at  time.Duration
	ref uint32 // index, with groupBit for a reservation and pinBit for a pin
}

const groupBit = 1 << 31

// placer is the Core: place stores where in the heap ref lies now, -1 for nowhere.
type placer interface{ place(ref uint32, at int32) }

func (t *timers) less(i, j int) bool { return t.h[i].at < t.h[j].at }

func (t *timers) push(p placer, e timer) {
	t.h = append(t.h, e)
	p.place(e.ref, int32(len(t.h)-1))
	t.up(p, len(t.h)-1)
}

func (t *timers) remove(p placer, i int) {
	last := len(t.h) - 1
	p.place(t.h[i].ref, -1)
	if i != last {
		t.h[i] = t.h[last]
		p.place(t.h[i].ref, int32(i))
	}
	t.h = t.h[:last]
	if i != last {
		t.fix(p, i)
	}
}

func (t *timers) fix(p placer, i int) {
	if !t.down(p, i) {
		t.up(p, i)
	}
}

func (t *timers) up(p placer, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.less(i, parent) {
			return
		}
		t.swap(p, i, parent)
		i = parent
	}
}

func (t *timers) down(p placer, i int) (moved bool) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(t.h); c++ {
			if t.less(c, least) {
				least = c
			}
		}
		if least == i {
			return moved
		}
		t.swap(p, i, least)
		i, moved = least, true
	}
}

func (t *timers) swap(p placer, i, j int) {
	t.h[i], t.h[j] = t.h[j], t.h[i]
	p.place(t.h[i].ref, int32(i))
	p.place(t.h[j].ref, int32(j))
}
