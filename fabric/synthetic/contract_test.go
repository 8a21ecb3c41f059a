package synthetic_test

import (
	"fmt"
	"testing"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/fabrictest"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// serve gives an endpoint windows.
func serve(f *synthetic.Fabric) *window.Table {
	start := time.Now()
	table := window.New(nil, func() time.Duration { return time.Since(start) }, 0, nil)
	f.Serve(table)
	return table
}

func harness(f *synthetic.Fabric) fabrictest.Harness {
	return fabrictest.Harness{
		Fabric: f,
		NS:     wire.Namespace{1, 2, 3},
		Damage: func(it fabric.Item) error {
			if !f.Flip(it.H, 0) {
				return fmt.Errorf("no block %x", it.H)
			}
			return nil
		},
		Leaks: func() error {
			if s := f.Stats(); s.Blocks+s.Bytes+s.Placed+s.Windows+s.Loose != 0 {
				return fmt.Errorf("left over: %+v", s)
			}
			return nil
		},
		Peer:    f.Name(),
		Windows: serve(f), At: f.Name(),
	}
}

func TestContract(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		return harness(synthetic.New(synthetic.Options{Seed: 1, MaxItem: 4 << 20, MaxBatch: 600}))
	})
}

// Two endpoints of one world: pushed at one, pulled at the other.
func TestContractBetweenTwoEndpoints(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		near := synthetic.New(synthetic.Options{Seed: 2})
		far, err := near.Join("far", 3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = far.Close() })
		h := harness(near)
		h.Far, h.Windows, h.At, h.Peer = far, serve(far), far.Name(), far.Name()
		return h
	})
}

// Messages that overtake, repeat and tarry change nothing that a caller sees.
func TestContractHoldsUnderHarmlessFaults(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Harness {
		return harness(synthetic.New(synthetic.Options{Seed: 4, Faults: []synthetic.Fault{
			{Kind: synthetic.Reorder, Chance: 0.5},
			{Kind: synthetic.Duplicate, Op: synthetic.OpPush | synthetic.OpPull | synthetic.OpRead, Chance: 0.3},
			{Kind: synthetic.Delay, Chance: 0.1, For: 1000},
		}}))
	})
}
