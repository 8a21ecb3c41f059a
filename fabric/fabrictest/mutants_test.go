package fabrictest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// broken is a good fabric with one bug. Each field that is set replaces or wraps
// a method.
type broken struct {
	*synthetic.Fabric
	push, pull, find, drop func(ctx context.Context, it []fabric.Item)
	list                   func(ctx context.Context, f func(fabric.Item) bool) error
	probe                  func(ctx context.Context, peer string) (string, float64, error)
	quiesce                func(ctx context.Context) error
	close                  func() error
	caps                   func() fabric.Caps
	label                  func() string
	read, write            func(ctx context.Context, x []fabric.Xfer)
	windows                *window.Table
	enter                  enterFunc // of what it serves
	place                  func(ctx context.Context, it []fabric.Item) ([]fabric.Range, error)
	seal                   func(ctx context.Context, it []fabric.Item, ok []bool) error
}

func (b *broken) Push(ctx context.Context, it []fabric.Item) { b.push(ctx, it) }
func (b *broken) Pull(ctx context.Context, it []fabric.Item) { b.pull(ctx, it) }
func (b *broken) Find(ctx context.Context, it []fabric.Item) { b.find(ctx, it) }
func (b *broken) Drop(ctx context.Context, it []fabric.Item) { b.drop(ctx, it) }
func (b *broken) Quiesce(ctx context.Context) error          { return b.quiesce(ctx) }
func (b *broken) Close() error                               { return b.close() }
func (b *broken) Caps() fabric.Caps                          { return b.caps() }
func (b *broken) Label() string                              { return b.label() }
func (b *broken) Read(ctx context.Context, x []fabric.Xfer)  { b.read(ctx, x) }
func (b *broken) Write(ctx context.Context, x []fabric.Xfer) { b.write(ctx, x) }
func (b *broken) List(ctx context.Context, f func(fabric.Item) bool) error {
	return b.list(ctx, f)
}
func (b *broken) Probe(ctx context.Context, peer string) (string, float64, error) {
	return b.probe(ctx, peer)
}
func (b *broken) Place(ctx context.Context, it []fabric.Item) ([]fabric.Range, error) {
	return b.place(ctx, it)
}
func (b *broken) Seal(ctx context.Context, it []fabric.Item, ok []bool) error {
	return b.seal(ctx, it, ok)
}

type enterFunc func(peer string, addr, n uint64, write bool) ([]byte, func(uint64), error)

// target is a fabric.Target with one bug.
type target struct{ b *broken }

func (t target) Enter(peer string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
	return t.b.enter(peer, addr, n, write)
}

// sound has no bug yet.
func sound() *broken {
	table := window.New(nil, func() time.Duration { return 0 }, 0, nil)
	f := synthetic.New(synthetic.Options{Seed: 1, MaxItem: 2 << 20, MaxBatch: 600})
	b := &broken{
		Fabric: f, windows: table, enter: table.Enter, push: f.Push, pull: f.Pull, find: f.Find, drop: f.Drop, list: f.List, probe: f.Probe,
		quiesce: f.Quiesce, close: f.Close, caps: f.Caps, label: f.Label, read: f.Read, write: f.Write,
		place: f.Place, seal: f.Seal,
	}
	f.Serve(target{b})
	return b
}

// mutant is a bug, and the checks that have to notice it; others may too.
type mutant struct {
	name  string
	apply func(b *broken)
	check []string
}

// after runs spoil on every item when the sound method is done.
func after(good func(context.Context, []fabric.Item), spoil func(it *fabric.Item)) func(context.Context, []fabric.Item) {
	return func(ctx context.Context, it []fabric.Item) {
		good(ctx, it)
		for i := range it {
			spoil(&it[i])
		}
	}
}

var blockMutants = []mutant{
	{"header takes the tier that the block is held in", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if it.Err == nil {
				it.M.B[12] = byte(it.Tier)
			}
		})
	}, []string{"header keeps its tier"}},
	{"every checksum is the producer's", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) { it.Att = wire.AttestProducer })
	}, []string{"attestation is never raised"}},
	{"the proof is of other memory", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) { it.Proof = wire.Hash(bytes.Clone(it.M.B)) })
	}, []string{"pull gives proof of the bytes where they lie"}},
	{"Head is not filled", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) { it.Head = wire.Header{} })
	}, []string{"pull gives header and bytes as pushed"}},
	{"body without its header", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if it.Err == nil {
				copy(it.M.B, it.M.B[wire.HeaderLen:])
			}
		})
	}, []string{"pull gives header and bytes as pushed"}},
	{"last byte is lost", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if n := int(it.Head.BodyLen); it.Err == nil && n > 0 {
				it.M.B[wire.HeaderLen+n-1] = 0x5A
			}
		})
	}, []string{"pull gives header and bytes as pushed", "concurrent calls"}},
	{"empty body is refused", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) {
			if it.Err == nil && it.Head.BodyLen == 0 {
				it.Err = wire.CodeInvalid
			}
		})
	}, []string{"pull gives header and bytes as pushed"}},
	{"transport really used is not reported", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) { it.Via = "" })
	}, []string{"pull gives header and bytes as pushed"}},
	{"Err of an earlier use stays", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			old := make([]error, len(it))
			for i := range it {
				old[i] = it[i].Err
			}
			good(ctx, it)
			for i := range it {
				if it[i].Err == nil {
					it[i].Err = old[i]
				}
			}
		}
	}, []string{"pull gives header and bytes as pushed"}},
	{"Err of an earlier use is taken for the outcome", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			old := slices.Clone(it)
			good(ctx, it)
			for i := range it {
				if it[i].Err != nil {
					it[i].Err = old[i].Err
				}
			}
		}
	}, []string{"unknown handle", "one status an item"}},
	{"taken item is loose", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) { it.Loose = true })
	}, []string{"pull gives header and bytes as pushed"}},
	{"push changes the pusher's memory", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) {
			if len(it.M.B) > 0 {
				it.M.B[len(it.M.B)-1]++
			}
		})
	}, []string{"pull gives header and bytes as pushed"}},
	{"push changes the caller's tier", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) { it.Tier = it.Head.Tier + 1 })
	}, []string{"pull gives header and bytes as pushed"}},
	{"push gives the zero handle", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) { it.H = fabric.Handle{} })
	}, []string{"pull gives header and bytes as pushed"}},
	{"all blocks of a batch get one handle", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				it[i].H = it[0].H
			}
		}
	}, []string{"handles differ"}},
	{"pull is read-once", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if it[i].Err == nil {
					b.Fabric.Drop(ctx, slices.Clone(it[i:i+1]))
				}
			}
		}
	}, []string{"pull is idempotent"}},
	{"pull by key is not there", func(b *broken) {
		b.pull = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				if it[i].H == (fabric.Handle{}) {
					it[i].Key = wire.Key{}
				}
			}
			b.Fabric.Pull(ctx, it)
		}
	}, []string{"pull by key"}},
	{"empty batch panics", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) { _ = it[0]; good(ctx, it) }
	}, []string{"empty batch"}},
	{"quiesce with nothing under way fails", func(b *broken) {
		b.quiesce = func(context.Context) error { return wire.CodeState }
	}, []string{"empty batch"}},
	{"long batch loses its end", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it[:min(len(it), 256)])
			for i := 256; i < len(it); i++ {
				it[i].Err, it[i].Loose, it[i].Via = nil, false, "mem"
				it[i].H = fabric.Handle{0: byte(i), 5: 1}
				it[i].Head, _, _ = wire.Decode(it[i].M.B, wire.Strict, 1<<20)
			}
		}
	}, []string{"large batch", "batch above MaxBatch"}},
	{"push keeps the pusher's memory", func(b *broken) {
		var mu sync.Mutex
		kept := make(map[wire.Key][]byte)
		b.push = after(b.push, func(it *fabric.Item) {
			mu.Lock()
			defer mu.Unlock()
			if it.Err == nil {
				kept[it.Key] = it.M.B
			}
		})
		b.pull = after(b.pull, func(it *fabric.Item) {
			mu.Lock()
			defer mu.Unlock()
			if it.Err == nil {
				copy(it.M.B, kept[it.Key])
			}
		})
	}, []string{"payload does not alias the pusher's memory"}},
	{"second push replaces the block", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				one := it[i : i+1]
				good(ctx, one)
				if errors.Is(one[0].Err, wire.CodeExists) {
					b.Fabric.Drop(ctx, slices.Clone(one))
					good(ctx, one)
				}
			}
		}
	}, []string{"same key pushed again"}},
	{"second push is an internal error", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeExists) {
				it.Err = wire.CodeInternal
			}
		})
	}, []string{"same key pushed again", "one block twice in a batch"}},
}

var refusalMutants = []mutant{
	{"batch fails as a whole for one item", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			if i := slices.IndexFunc(it, func(it fabric.Item) bool { return it.Err != nil }); i >= 0 {
				for j := range it {
					it[j].Err = it[i].Err
				}
			}
		}
	}, []string{"one status an item", "too little room"}},
	{"batch stops at the first failure", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := 1; i < len(it); i++ {
				if it[i-1].Err != nil {
					it[i].Err = wire.CodeCancelled
				}
			}
		}
	}, []string{"one status an item"}},
	{"push batch fails as a whole", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			if i := slices.IndexFunc(it, func(it fabric.Item) bool { return it.Err != nil }); i >= 0 {
				for j := range it {
					it[j].Err = it[i].Err
				}
			}
		}
	}, []string{"payload that contradicts itself"}},
	{"statuses are shifted by one", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := len(it) - 1; i > 0; i-- {
				it[i].Err, it[i-1].Err = it[i-1].Err, it[i].Err
			}
		}
	}, []string{"one status an item"}},
	{"unknown handle gives some block", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				if it[i].H != (fabric.Handle{}) {
					n := binary.LittleEndian.Uint64(it[i].H[:])
					it[i].H = fabric.Handle{0: byte(n&0x7f) | 1}
				}
			}
			good(ctx, it)
		}
	}, []string{"unknown handle"}},
	{"only the first bytes of a handle count", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				clear(it[i].H[8:])
			}
			good(ctx, it)
		}
	}, []string{"unknown handle"}},
	{"handle zero is accepted", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				if it[i].H == (fabric.Handle{}) && it[i].Key == (wire.Key{}) {
					it[i].H[0] = 1
				}
			}
			good(ctx, it)
		}
	}, []string{"zero handle"}},
	{"absent key is an internal error", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeAbsent) {
				it.Err = errors.New("lookup failed")
			}
		})
	}, []string{"unknown key", "unknown handle"}},
	{"namespace is not part of the name", func(b *broken) {
		good, find := b.pull, b.find
		b.pull = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				it[i].NS = namespace
			}
			good(ctx, it)
		}
		b.find = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				it[i].NS = namespace
			}
			find(ctx, it)
		}
	}, []string{"key of another namespace"}},
	{"find tells another namespace that a key exists", func(b *broken) {
		find := b.find
		b.find = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				it[i].NS = namespace
			}
			find(ctx, it)
		}
	}, []string{"key of another namespace"}},
	{"push does not check", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if errors.Is(it[i].Err, wire.CodeChecksum) {
					it[i].Err = nil
				}
			}
		}
	}, []string{"payload that contradicts itself"}},
	{"push mends a wrong checksum", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if errors.Is(it[i].Err, wire.CodeChecksum) {
					p := bytes.Clone(it[i].M.B)
					sum := wire.SumOf(p[wire.HeaderLen:])
					copy(p[16:], sum[:])
					one := []fabric.Item{it[i]}
					one[0].M.B = p
					good(ctx, one) // visible, while the pusher is told that it failed
				}
			}
		}
	}, []string{"payload that contradicts itself"}},
	{"push is lenient", func(b *broken) {
		good := b.push
		b.push = func(ctx context.Context, it []fabric.Item) {
			for i := range it {
				if h, body, err := wire.Decode(it[i].M.B, wire.Lenient, 1<<24); err == nil {
					it[i].M.B = append(h.Append(nil), body...)
				}
			}
			good(ctx, it)
		}
	}, []string{"payload that contradicts itself"}},
	{"too little room: what fits is delivered", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if errors.Is(it[i].Err, wire.CodeTooLarge) {
					it[i].Err = nil
				}
			}
		}
	}, []string{"too little room", "one status an item"}},
	{"too little room: memory beyond is written", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if errors.Is(it[i].Err, wire.CodeTooLarge) {
					m := it[i].M.B[:cap(it[i].M.B)]
					clear(m[len(it[i].M.B):])
				}
			}
		}
	}, []string{"too little room"}},
	{"MaxItem is not kept", func(b *broken) {
		caps := b.caps()
		caps.MaxItem = 1 << 20
		b.caps = func() fabric.Caps { return caps }
	}, []string{"payload above MaxItem"}},
	{"surplus of a batch is acknowledged and lost", func(b *broken) {
		b.push = after(b.push, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeTooMany) {
				it.Err = nil
			}
		})
	}, []string{"batch above MaxBatch"}},
	{"damaged block is OK", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeChecksum) {
				it.Err = nil
			}
		})
	}, []string{"damaged block is never OK"}},
	{"damaged block is OK in the batch path only", func(b *broken) {
		good := b.pull
		b.pull = func(ctx context.Context, it []fabric.Item) {
			good(ctx, it)
			for i := range it {
				if len(it) > 1 && errors.Is(it[i].Err, wire.CodeChecksum) {
					it[i].Err, it[i].Head = nil, wire.Header{BodyLen: 2048}
				}
			}
		}
	}, []string{"damaged block is never OK"}},
	{"damaged block is taken for absent", func(b *broken) {
		b.pull = after(b.pull, func(it *fabric.Item) {
			if errors.Is(it.Err, wire.CodeChecksum) {
				it.Err = wire.CodeAbsent
			}
		})
	}, []string{"damaged block is never OK"}},
}
