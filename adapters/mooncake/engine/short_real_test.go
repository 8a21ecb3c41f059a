package engine_test

import (
	"os"
	"runtime"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/internal/testbed"
)

// 5,000 transfers of a few bytes with a real engine, each of which needs a connection:
// it to us, and we to it.
func TestFiveThousandShortTransfersWithARealEngineLeaveNothingBehind(t *testing.T) {
	const all, batch, size = 5000, 250, 8
	o := serve(t, batch*size)
	e := wheel.Start(t, batch*size, "MC_TCP_ENABLE_CONNECTION_POOL=0")
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: asVersion{&handshake.Client{}, 1}}) // without lanes
	defer in.Close()
	seg, err := in.Open(t.Context(), e.Name)
	if err != nil {
		t.Fatal(err)
	}
	at, sizes := make([]int, batch), make([]int, batch)
	ops := make([]engine.Op, batch)
	for i := range batch {
		at[i], sizes[i] = i*size, size
		ops[i] = engine.Op{Addr: e.Addr + uint64(i*size), B: o.mem[i*size:][:size]}
	}
	there := plus(base, at)
	both := func(write bool) {
		t.Helper()
		if !e.Move(wheel.Move{Peer: o.name, Write: write, Here: at, There: there, Sizes: sizes}) {
			t.Fatal("the engine's batch failed")
		}
		if write {
			seg.Write(t.Context(), ops)
		} else {
			seg.Read(t.Context(), ops)
		}
		for i := range ops {
			if ops[i].Err != nil {
				t.Fatal(ops[i].Err)
			}
		}
	}
	both(false)
	quiet := func() bool { return o.target.Conns() == 0 && seg.Lanes() == 0 }
	testbed.Until(t, "the first batch has ended", quiet)
	files, running := openFiles(t), runtime.NumGoroutine()
	for done := 0; done < all; done += batch {
		both(done%(2*batch) == 0)
	}
	testbed.Until(t, "nothing is left", func() bool { return quiet() && openFiles(t) <= files && runtime.NumGoroutine() <= running })
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
