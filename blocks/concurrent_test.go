package blocks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// Many sessions use one store at once: writers by both ways in, readers under
// leases, a reader that maps the memory and ignores leases, and housekeeping.
// No reader ever sees a body that is not its key's, and nothing is left over.
func TestConcurrentSessions(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Capacity, c.ExtentBytes = 2<<20, 256<<10 })
	const keys, rounds = 400, 400
	for i := range uint64(100) {
		v, err := r.Reserve(r.o, r.ns, []uint32{5000}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		k := Commit{Slot: v[0].Ref.Slot, Key: benchKey(i)}
		if err := r.Ingest(r.o, bodyOf(k.Key, 5000), &k); err != nil {
			t.Fatal(err)
		}
	}
	var work sync.WaitGroup
	for id := range uint64(3) {
		work.Go(func() { writer(t, r, id, keys, rounds) })
		work.Go(func() { reader(t, r, id, keys, rounds) })
	}
	work.Go(func() { lateReader(t, r, keys, rounds*2) })
	stop := make(chan struct{})
	var house sync.WaitGroup
	house.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.clock.add(time.Millisecond)
				r.Step(Input{})
				r.Stats()
				r.List(func(v View) bool { return v.Err == nil })
			}
		}
	})
	work.Wait()
	close(stop)
	house.Wait()
	r.check()
	r.Drop(r.o)
	st := r.Stats()
	if st.Leases != 0 || st.Reserved != 0 || st.Quarantined != 0 || st.Leaked != 0 || st.ChecksumFailures != 0 || st.Owners != 1 {
		t.Fatalf("something is left: %+v", st)
	}
	if st.Commits == 0 || st.Hits == 0 || st.Evictions == [3]uint64{} {
		t.Fatalf("nothing happened: %+v", st)
	}
}

func raceKey(r *rand.Rand, n int) wire.Key { return benchKey(r.Uint64N(uint64(n))) }

func writer(t *testing.T, r *rig, id uint64, keys, rounds int) {
	rnd := rand.New(rand.NewPCG(id, 1))
	o := r.NewOwner(0)
	for i := range rounds {
		sizes := []uint32{uint32(rnd.IntN(40 << 10)), 512}
		v, err := r.ReserveTier(o, r.ns, wire.Tier(rnd.IntN(3)), sizes, time.Second)
		if errors.Is(err, wire.CodeFull) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		k := raceKey(rnd, keys)
		in := Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, Key: k, Tier: wire.Tier(rnd.IntN(3)), Live: rnd.IntN(2) == 0}
		if err := r.Ingest(o, bodyOf(k, int(sizes[0])), &in); err != nil && !isAny(err, wire.CodeExists, wire.CodeDeadline, wire.CodeStale) {
			t.Error(err)
		}
		k = raceKey(rnd, keys)
		if room := r.Room(v[1]); room != nil {
			copy(room[wire.HeaderLen:], bodyOf(k, 512))
		}
		out := []Commit{{Slot: v[1].Ref.Slot, Gen: v[1].Ref.Gen, Key: k, Len: 512, Transient: rnd.IntN(4) == 0}}
		if rnd.IntN(4) == 0 {
			r.Abort(o, []uint32{v[1].Ref.Slot})
		} else if r.Commit(o, out); out[0].Err != nil && !isAny(out[0].Err, wire.CodeExists, wire.CodeDeadline, wire.CodeStale) {
			t.Error(out[0].Err)
		}
		if i%50 == 49 {
			r.Drop(o)
			o = r.NewOwner(0)
		}
	}
	r.Drop(o)
}

func isAny(err error, codes ...wire.Code) bool {
	for _, c := range codes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

func reader(t *testing.T, r *rig, id uint64, keys, rounds int) {
	rnd := rand.New(rand.NewPCG(id, 2))
	o := r.NewOwner(0)
	for range rounds {
		v := make([]View, 1+rnd.IntN(8))
		for i := range v {
			v[i] = View{NS: r.ns, Key: raceKey(rnd, keys)}
		}
		l, err := r.Acquire(o, v, time.Hour, rnd.IntN(4) == 0)
		if err != nil {
			if !errors.Is(err, wire.CodeBusy) {
				t.Error(err)
			}
			continue
		}
		for i := range v {
			if v[i].Err != nil {
				continue
			}
			h, body, err := wire.Decode(r.Payload(v[i]), wire.Strict, wire.MaxBody)
			if err != nil || h != v[i].Head || !bytes.Equal(body, bodyOf(v[i].Key, len(body))) {
				t.Errorf("a leased body is wrong: %v", err)
			}
		}
		switch rnd.IntN(8) {
		case 0:
			if err := r.Verify(v[0]); err != nil && !isAny(err, wire.CodeAbsent, wire.CodeStale) {
				t.Error(err)
			}
		case 1:
			r.Retier(r.ns, []wire.Key{v[0].Key}, wire.Tier(rnd.IntN(3)))
		case 2:
			r.Discard(r.ns, []wire.Key{v[0].Key})
		}
		if rnd.IntN(8) > 0 {
			r.Release(o, l)
		}
	}
	r.Drop(o)
}

// lateReader copies from its own map without any lease, as an engine whose
// lease lapsed would. The two checks of the generation word must catch every
// copy that was overwritten.
func lateReader(t *testing.T, r *rig, keys, rounds int) {
	rnd := rand.New(rand.NewPCG(9, 3))
	maps := map[[2]uint32][]byte{}
	get := func(seg uint32, gen bool) []byte {
		at := [2]uint32{seg, 0}
		if gen {
			at[1] = 1
		}
		if maps[at] == nil {
			fd, size, err := r.FD(seg, gen)
			if err != nil {
				return nil
			}
			defer unix.Close(fd)
			b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				t.Error(err)
				return nil
			}
			maps[at] = b
		}
		return maps[at]
	}
	for range rounds {
		var v [1]View
		if r.Lookup(r.ns, []wire.Key{raceKey(rnd, keys)}, v[:]) == 0 {
			continue
		}
		data, gens := get(v[0].Seg, false), get(v[0].Seg, true)
		if data == nil || gens == nil {
			continue
		}
		if word(gens, v[0].GenOff) != uint64(v[0].Ref.Gen) {
			continue
		}
		p := append([]byte(nil), data[v[0].Off-wire.HeaderLen:v[0].Off+uint64(v[0].Head.BodyLen)]...)
		if word(gens, v[0].GenOff) != uint64(v[0].Ref.Gen) {
			continue // reused meanwhile: a miss
		}
		if n := binary.LittleEndian.Uint32(p[8:]); n != v[0].Head.BodyLen || !bytes.Equal(p[wire.HeaderLen:], bodyOf(v[0].Key, int(n))) {
			t.Error("a copy that passed both checks is wrong")
		}
	}
	for _, b := range maps {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}
}
