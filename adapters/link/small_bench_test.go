package link

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/wire"
)

// BenchmarkSmall is one stream of small pulls and pushes, with a block store at the
// other side, in a process of its own. Beside the time it reports what load on the
// machine changes little: processor time and sleeps of both processes for each
// request. For profiles see BenchmarkPuller.
func BenchmarkSmall(b *testing.B) {
	for _, c := range []struct{ size, batch int }{{4 << 10, 1}, {16 << 10, 16}, {64 << 10, 16}} {
		for _, op := range []string{"pull", "push"} {
			b.Run(fmt.Sprintf("%s/%dKiB×%d", op, c.size>>10, c.batch), func(b *testing.B) { small(b, op, c.size, c.batch) })
		}
	}
}

func small(b *testing.B, op string, size, batch int) {
	p, ns, pid := benchPeer(b, size)
	ctx := fabric.WithClass(b.Context(), fabric.ClassUrgent)
	it := make([]fabric.Item, batch)
	room := make([]byte, batch*(wire.HeaderLen+size))
	for i := range it {
		it[i].M.B = room[i*(wire.HeaderLen+size):][:wire.HeaderLen+size]
		if op == "push" {
			copy(it[i].M.B, payload(b, wire.OutputCritical, randomBody(size)).B)
		}
	}
	n := 0
	one := func() {
		for i := range it {
			k := wire.Key{1}
			binary.LittleEndian.PutUint64(k[1:], uint64(n))
			if op == "pull" {
				k = key(ns, n%benchBlocks(size))
			}
			it[i] = fabric.Item{NS: ns, Key: k, M: it[i].M, Tier: wire.OutputCritical}
			n++
		}
		if op == "pull" {
			p.Pull(ctx, it)
		} else {
			p.Push(ctx, it)
		}
		for i := range it {
			if it[i].Err != nil {
				b.Fatal(it[i].Err)
			}
		}
	}
	for range 50 {
		one()
	}
	b.SetBytes(int64(size * batch))
	b.ReportAllocs()
	here, there := used(b, os.Getpid()), used(b, pid)
	for b.Loop() {
		one()
	}
	for _, side := range []struct {
		name        string
		before, now use
	}{{"here", here, used(b, os.Getpid())}, {"there", there, used(b, pid)}} {
		b.ReportMetric(float64((side.now.cpu-side.before.cpu).Nanoseconds())/1e3/float64(b.N), "µs-cpu-"+side.name+"/op")
		b.ReportMetric(float64(side.now.sleeps-side.before.sleeps)/float64(b.N), "sleeps-"+side.name+"/op")
	}
}

// use is what the threads of a process have used.
type use struct {
	cpu    time.Duration
	sleeps int
}

// used sums up the threads of a process, from /proc.
func used(b *testing.B, pid int) (u use) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	list, err := os.ReadDir(tasks)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range list {
		sched, err := os.ReadFile(tasks + "/" + e.Name() + "/schedstat")
		status, err2 := os.ReadFile(tasks + "/" + e.Name() + "/status")
		if err != nil || err2 != nil {
			continue // it ended
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(sched))[0], 10, 64)
		u.cpu += time.Duration(ns)
		for line := range strings.Lines(string(status)) {
			if v, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				k, _ := strconv.Atoi(strings.TrimSpace(v))
				u.sleeps += k
			}
		}
	}
	return u
}

// smallStore is a store with benchBlocks blocks of a size.
func smallStore(size int) (*blocks.Store, *spaces.Registry, error) {
	st, err := blocks.Open(blocks.Config{Capacity: 256 << 20, Agent: agentID(2), Incarnation: 20})
	if err != nil {
		return nil, nil, err
	}
	reg := emptyRegistry(st)
	ns, err := reg.Add(benchManifest(size))
	if err != nil {
		return nil, nil, err
	}
	o := st.NewOwner(0)
	for i := range benchBlocks(size) {
		v, err := st.Reserve(o, ns, []uint32{uint32(size)}, time.Minute)
		if err != nil {
			return nil, nil, err
		}
		copy(st.Room(v[0])[wire.HeaderLen:], randomBody(size))
		c := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key(ns, i), Len: uint32(size), Tier: wire.OutputCritical}}
		if st.Commit(o, c); c[0].Err != nil {
			return nil, nil, c[0].Err
		}
	}
	return st, reg, nil
}

func benchManifest(size int) wire.Manifest {
	m := testManifest("t")
	m.BlockBytes = uint32(size)
	return m
}
