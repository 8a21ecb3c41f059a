package fabrictest_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

// touchLater remembers the memory of items that the end of a context failed, and
// returns what writes to it.
func touchLater(b *broken) (touch func()) {
	var mu sync.Mutex
	var victims [][]byte
	good := b.pull
	b.pull = func(ctx context.Context, it []fabric.Item) {
		good(ctx, it)
		mu.Lock()
		defer mu.Unlock()
		for i := range it {
			if errors.Is(it[i].Err, wire.CodeCancelled) && len(it[i].M.B) > 0 {
				victims = append(victims, it[i].M.B)
			}
		}
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range victims {
			m[len(m)/2] = 0
		}
		victims = nil
	}
}

var endMutants = []mutant{
	{"memory is touched after Quiesce, by other traffic", func(b *broken) {
		touch := touchLater(b)
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) { touch(); good(ctx, it) }
	}, []string{"cancelled calls leave memory quiet"}},
	{"memory is touched after Quiesce, by Close", func(b *broken) {
		touch := touchLater(b)
		good := b.close
		b.close = func() error { touch(); return good() }
	}, []string{"cancelled calls leave memory quiet"}},
	{"memory that is not loose is touched before Quiesce returns", func(b *broken) {
		touch := touchLater(b)
		b.quiesce = func(ctx context.Context) error { touch(); return b.Fabric.Quiesce(ctx) }
	}, []string{"cancelled calls leave memory quiet"}},
	{"Quiesce ends while loose memory is still touched", func(b *broken) {
		touch := touchLater(b)
		pull, push := b.pull, b.push
		b.pull = func(ctx context.Context, it []fabric.Item) {
			pull(ctx, it)
			for i := range it {
				it[i].Loose = errors.Is(it[i].Err, wire.CodeCancelled)
			}
		}
		b.push = func(ctx context.Context, it []fabric.Item) { touch(); push(ctx, it) }
	}, []string{"cancelled calls leave memory quiet"}},
	{"interrupted pull reports OK without the bytes", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeCancelled) {
				it.Err = nil
			}
		})
	}, []string{"context that is over before the call", "cancelled calls leave memory quiet"}},
	{"end of the context is a bare error", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeCancelled) {
				it.Err = context.Canceled
			}
		})
	}, []string{"context that is over before the call", "cancelled calls leave memory quiet"}},
	{"context is ignored", func(b *broken) {
		b.push = func(_ context.Context, it []fabric.Item) { b.Fabric.Push(context.Background(), it) }
	}, []string{"context that is over before the call"}},
	{"overdue counts as cancelled", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeDeadline) {
				it.Err = wire.CodeCancelled
			}
		})
	}, []string{"context that is over before the call"}},
	{"interrupted push leaves half a body", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if n := len(it[i].M.B); errors.Is(it[i].Err, wire.CodeCancelled) && n > wire.HeaderLen {
					p := bytes.Clone(it[i].M.B)
					clear(p[n/2:])
					sum := wire.SumOf(p[wire.HeaderLen:])
					copy(p[16:], sum[:])
					torn := []fabric.Item{it[i]}
					torn[0].M.B = p
					good(context.Background(), torn)
				}
			}
		}
	}, []string{"cancelled push is whole or absent"}},
	{"interrupted push answers OK and stores nothing", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeCancelled) {
				it.Err = nil
			}
		})
	}, []string{"cancelled push is whole or absent", "context that is over before the call"}},
	{"works after Close", func(b *broken) {
		b.close = func() error { return nil }
	}, []string{"calls after Close"}},
	{"second Close fails", func(b *broken) {
		closed := false
		b.close = func() error {
			if closed {
				return wire.CodeState
			}
			closed = true
			return b.Fabric.Close()
		}
	}, []string{"calls after Close"}},
	{"label changes", func(b *broken) {
		n := 0
		b.label = func() string { n++; return string(rune('a' + n)) }
	}, []string{"label and capabilities"}},
	{"capabilities contradict themselves", func(b *broken) {
		b.caps = func() fabric.Caps { return fabric.Caps{MaxItem: 7} }
	}, []string{"label and capabilities"}},
}

var optionalMutants = []mutant{
	{"find gives the length of the payload, not of the body", func(b *broken) {
		b.find = after(b.find, func(it *fabric.Item) {
			if it.Err == nil {
				it.Head.BodyLen += wire.HeaderLen
			}
		})
	}, []string{"find"}},
	{"find of what is absent is OK", func(b *broken) {
		b.find = after(b.find, func(it *fabric.Item) { it.Err = nil })
	}, []string{"find"}},
	{"find gives no handle", func(b *broken) {
		b.find = after(b.find, func(it *fabric.Item) { it.H = fabric.Handle{} })
	}, []string{"find"}},
	{"drop forgets the name only", func(b *broken) {
		gone := make(map[wire.Key]bool)
		b.drop = func(ctx context.Context, it []fabric.Item) {
			b.find(ctx, it)
			for i := range it {
				if it[i].Err == nil {
					gone[it[i].Key] = true
				}
			}
		}
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if it[i].Err == nil && gone[it[i].Key] && it[i].H == (fabric.Handle{}) {
					it[i].Err = wire.CodeAbsent
				}
			}
		}
	}, []string{"drop"}},
	{"drop takes the neighbour too", func(b *broken) {
		good := b.drop
		b.drop = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				next := fabric.Item{H: it[i].H}
				next.H[0]++
				b.Fabric.Drop(ctx, []fabric.Item{next})
			}
			good(ctx, it)
		}
	}, []string{"drop"}},
	{"drop of what is gone is OK", func(b *broken) {
		b.drop = after(b.drop, func(it *fabric.Item) { it.Err = nil })
	}, []string{"drop"}},
	{"handles are used again", func(b *broken) {
		var free []fabric.Handle
		alias := make(map[fabric.Handle]fabric.Handle) // what is given out to what is really there
		b.drop = after(b.drop, func(it *fabric.Item) {
			if it.Err == nil {
				free = append(free, it.H)
			}
		})
		b.push = after(b.push, func(it *fabric.Item) {
			if it.Err == nil && len(free) > 0 {
				alias[free[0]] = it.H
				it.H, free = free[0], free[1:]
			}
		})
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			given := make([]fabric.Handle, len(it))
			for i := range it {
				given[i] = it[i].H
				if h, ok := alias[it[i].H]; ok {
					it[i].H = h
				}
			}
			good(ctx, it)
			for i := range it {
				if given[i] != (fabric.Handle{}) {
					it[i].H = given[i]
				}
			}
		}
	}, []string{"handle of a dropped block is never reused"}},
	{"list gives blocks twice", func(b *broken) {
		b.list = func(ctx context.Context, f func(fabric.Item) bool) error {
			return b.Fabric.List(ctx, func(it fabric.Item) bool {
				first := f(it)
				return first && f(it)
			})
		}
	}, []string{"list"}},
	{"list leaves the first out", func(b *broken) {
		b.list = func(ctx context.Context, f func(fabric.Item) bool) error {
			n := 0
			return b.Fabric.List(ctx, func(it fabric.Item) bool { n++; return n == 1 || f(it) })
		}
	}, []string{"list"}},
	{"list does not stop", func(b *broken) {
		b.list = func(ctx context.Context, f func(fabric.Item) bool) error {
			return b.Fabric.List(ctx, func(it fabric.Item) bool { f(it); return true })
		}
	}, []string{"list"}},
	{"list gives no handle", func(b *broken) {
		b.list = func(ctx context.Context, f func(fabric.Item) bool) error {
			return b.Fabric.List(ctx, func(it fabric.Item) bool { it.H = fabric.Handle{}; return f(it) })
		}
	}, []string{"list"}},
	{"probe names no transport", func(b *broken) {
		b.probe = func(ctx context.Context, peer string) (string, float64, error) {
			_, g, err := b.Fabric.Probe(ctx, peer)
			return "", g, err
		}
	}, []string{"probe"}},
	{"probe always succeeds", func(b *broken) {
		b.probe = func(context.Context, string) (string, float64, error) { return "mem", 1, nil }
	}, []string{"probe"}},
	{"failed push leaks a block", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			if slices.ContainsFunc(it, func(it fabric.Item) bool { return it.Err != nil }) {
				good(context.Background(), []fabric.Item{{M: fabric.Mem{B: wire.Header{Sum: wire.SumOf(nil)}.Append(nil)}}})
			}
		}
	}, []string{"counts return to zero"}},
}

const heard = "owner hears of a write between its bytes and the answer"

// left is a sound Enter whose accesses leave by way of f.
func left(b *broken, f func(leave func(uint64), wrote uint64)) enterFunc {
	return func(peer string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
		m, leave, err := b.windows.Enter(peer, addr, n, write)
		return m, func(wrote uint64) { f(leave, wrote) }, err
	}
}

var windowMutants = []mutant{
	{"window is one byte longer than it says", func(b *broken) {
		clip := func(good func(context.Context, []fabric.Xfer)) func(context.Context, []fabric.Xfer) {
			return func(ctx context.Context, x []fabric.Xfer) {
				good(ctx, x)
				for i := range x {
					if errors.Is(x[i].Err, wire.CodeInvalid) {
						y := []fabric.Xfer{x[i]}
						if y[0].R.Len == 0 || len(y[0].M.B) == 0 {
							continue
						}
						y[0].R.Len--
						y[0].M.B = y[0].M.B[:len(y[0].M.B)-1]
						good(ctx, y)
						x[i].Err = y[0].Err
					}
				}
			}
		}
		b.read, b.write = clip(b.read), clip(b.write)
	}, []string{"window bounds"}},
	{"access that is refused writes what fits", func(b *broken) {
		good := b.write
		b.write = func(ctx context.Context, x []fabric.Xfer) {
			good(ctx, x)
			for i := range x {
				if errors.Is(x[i].Err, wire.CodeInvalid) && len(x[i].M.B) > 5 {
					y := []fabric.Xfer{x[i]}
					y[0].R.Len, y[0].M.B = 5, y[0].M.B[:5]
					good(ctx, y)
				}
			}
		}
	}, []string{"window bounds"}},
	{"length and memory may differ", func(b *broken) {
		fit := func(good func(context.Context, []fabric.Xfer)) func(context.Context, []fabric.Xfer) {
			return func(ctx context.Context, x []fabric.Xfer) {
				for i := range x {
					n := min(uint64(len(x[i].M.B)), x[i].R.Len)
					x[i].R.Len, x[i].M.B = n, x[i].M.B[:n]
				}
				good(ctx, x)
			}
		}
		b.read, b.write = fit(b.read), fit(b.write)
	}, []string{"window bounds"}},
	{"read-only windows can be written", func(b *broken) {
		b.enter = func(peer string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
			return b.windows.Enter(peer, addr, n, false)
		}
	}, []string{"window permissions"}},
	{"every peer is called the same", func(b *broken) {
		b.enter = func(_ string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
			return b.windows.Enter("somebody else", addr, n, write)
		}
	}, []string{"window permissions"}},
	{"the owner never hears of a write", func(b *broken) {
		b.enter = left(b, func(leave func(uint64), _ uint64) { leave(0) })
	}, []string{heard}},
	{"the owner hears of fewer bytes", func(b *broken) {
		b.enter = left(b, func(leave func(uint64), wrote uint64) { leave(wrote / 2) })
	}, []string{heard}},
	{"a write leaves before its bytes are there", func(b *broken) {
		b.enter = func(peer string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
			m, leave, err := b.windows.Enter(peer, addr, n, write)
			if err == nil && write {
				leave(n)
			}
			return m, leave, err
		}
	}, []string{heard}},
	{"accesses never leave", func(b *broken) {
		b.enter = left(b, func(func(uint64), uint64) {})
	}, []string{heard}},
	{"a late access is sent where there is a window", func(b *broken) {
		var base, now uint64 // the address that was used first, and the newest window's
		b.enter = func(peer string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
			m, leave, err := b.windows.Enter(peer, addr, n, write)
			if errors.Is(err, wire.CodeStale) {
				w, openErr := b.windows.Open(1, window.Spec{Bytes: 8192, TTL: window.Forever, Read: true, Write: true})
				if base, now = addr, w.Addr; openErr == nil {
					return b.windows.Enter(peer, now+(addr-base), n, write)
				}
			}
			return m, leave, err
		}
	}, []string{"closed window is never touched again"}},
	{"mixed batch of accesses fails as a whole", func(b *broken) {
		good := b.write
		b.write = func(ctx context.Context, x []fabric.Xfer) {
			good(ctx, x)
			if i := slices.IndexFunc(x, func(x fabric.Xfer) bool { return x.Err != nil }); i >= 0 {
				for j := range x {
					x[j].Err = x[i].Err
				}
			}
		}
	}, []string{"one status an access"}},
	{"writes land one byte off", func(b *broken) {
		good := b.write
		b.write = func(ctx context.Context, x []fabric.Xfer) {
			for i := range x {
				if x[i].R.Len == 20 {
					x[i].R.Addr++
				}
			}
			good(ctx, x)
		}
	}, []string{"one-sided write and read"}},
}

var placeMutants = []mutant{
	{"placed block is visible before seal", func(b *broken) {
		good := b.place
		b.place = func(ctx context.Context, it []fabric.Item) ([]fabric.Range, error) {
			r, err := good(ctx, it)
			b.Fabric.Push(ctx, slices.Clone(it))
			return r, err
		}
	}, []string{"placed block is invisible until sealed"}},
	{"seal publishes what failed", func(b *broken) {
		b.seal = func(ctx context.Context, it []fabric.Item, ok []bool) error {
			yes := make([]bool, len(ok))
			for i := range yes {
				yes[i] = true
			}
			return b.Fabric.Seal(ctx, it, yes)
		}
	}, []string{"place, write, seal"}},
	{"seal accepts what it did not publish", func(b *broken) {
		b.seal = func(ctx context.Context, it []fabric.Item, ok []bool) error {
			err := b.Fabric.Seal(ctx, it, ok)
			for i := range it {
				it[i].Err = nil
			}
			return err
		}
	}, []string{"seal refuses what was not written well"}},
	{"seal leaves the status as it was", func(b *broken) {
		b.seal = func(ctx context.Context, it []fabric.Item, ok []bool) error {
			return b.Fabric.Seal(ctx, slices.Clone(it), ok)
		}
	}, []string{"place, write, seal"}},
	{"placed room is too small", func(b *broken) {
		good := b.place
		b.place = func(ctx context.Context, it []fabric.Item) ([]fabric.Range, error) {
			r, err := good(ctx, it)
			for i := range r {
				r[i].Len--
			}
			return r, err
		}
	}, []string{"place, write, seal"}},
}
