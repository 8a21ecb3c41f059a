package blocks

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"meridian/blocks/quota"
)

var (
	modelSeed = flag.Uint64("model-seed", 0, "seed of TestModel; 0 takes the fixed ones")
	modelOps  = flag.Int("model-ops", 30_000, "operations a seed of TestModel")
)

func randomOps(seed uint64, n int) []op {
	r := rand.New(rand.NewPCG(seed, 42))
	ops := make([]op, n)
	for i := range ops {
		x := r.Uint32()
		ops[i] = op{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)}
	}
	return ops
}

// TestModel compares the core with the naive oracle over random operations, in
// both modes of the oracle. A failure prints its seed and a shortened stream.
func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	for _, exact := range []bool{true, false} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("exact=%v/seed=%d", exact, seed), func(t *testing.T) {
				ops := randomOps(seed, *modelOps)
				m := newModel(exact, 0)
				err := m.run(ops)
				for _, r := range quota.Rules() {
					ours := r.Resource == quota.ArenaBytes || r.Resource == quota.GuaranteedBytes && !(exact && r.Kind == quota.Tenant)
					if err == nil && len(ops) >= 30_000 && ours && m.c.shares.refused[r] == 0 {
						t.Errorf("the stream never met %s", r.Key())
					}
				}
				if err != nil {
					small, err := shrink(exact, 0, ops, err)
					t.Fatalf("seed %d: %v\nstream of %d ops: %v", seed, err, len(small), small)
				}
			})
		}
	}
}

// mDraws are how many configurations are drawn.
const mDraws = 40

// The limits and sizes are drawn too: at none, at their least and at all there is, a
// core does what the model does.
func TestModelWithLimitsThatAreDrawn(t *testing.T) {
	for draw := uint64(1); draw <= mDraws; draw++ {
		for _, exact := range []bool{true, false} {
			ops := randomOps(draw, *modelOps/10)
			if err := newModel(exact, draw).run(ops); err != nil {
				small, err := shrink(exact, draw, ops, err)
				t.Fatalf("draw %d, exact %v, %+v: %v\nstream of %d ops: %v", draw, exact, mConfig(exact, draw), err, len(small), small)
			}
		}
	}
}

// shrink removes runs of operations, long ones first, as long as what is left fails.
func shrink(exact bool, draw uint64, ops []op, err error) ([]op, error) {
	fails := func(s []op) (e error) {
		defer func() {
			if p := recover(); p != nil {
				e = fmt.Errorf("panic: %v", p)
			}
		}()
		return newModel(exact, draw).run(s)
	}
	for before := len(ops) + 1; len(ops) < before; {
		before = len(ops)
		for size := len(ops) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(ops); {
				rest := slices.Concat(ops[:at], ops[at+size:])
				if e := fails(rest); e != nil {
					ops, err = rest, e
					continue
				}
				at += size
			}
		}
	}
	return ops, err
}

// FuzzModel takes its operations from the fuzzer: four bytes each, the first
// byte of the input choosing the oracle's mode.
func FuzzModel(f *testing.F) {
	for seed := range uint64(4) {
		in := []byte{byte(seed)}
		for _, o := range randomOps(seed, 200) {
			in = append(in, o[:]...)
		}
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 1<<14 {
			return
		}
		var ops []op
		for rest := in[1:]; len(rest) >= 4; rest = rest[4:] {
			ops = append(ops, op(rest[:4]))
		}
		if err := newModel(in[0]%2 == 0, uint64(in[0]/2)).run(ops); err != nil {
			t.Fatal(err)
		}
	})
}
