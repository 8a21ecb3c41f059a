package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"meridian/adapters/link"
	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/wire"
)

// The ends of the link in this process, by name: far is the sink where edge is the source.
const (
	edge = "edge"
	far  = "far"
)

// linkEnd is an agent of the link in this process, with a store.
type linkEnd struct {
	set   *set
	node  *link.Node
	store *arrivals
}

// arrivals is a store that tells when expected blocks are published.
type arrivals struct {
	*blocks.Store

	mu   sync.Mutex
	want map[wire.Key]struct{}
	all  chan struct{} // closed when none is missing
}

// Commit implements link.Store.
func (a *arrivals) Commit(o blocks.Owner, c []blocks.Commit) {
	a.Store.Commit(o, c)
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.want)
	for i := range c {
		if c[i].Err == nil {
			delete(a.want, c[i].Key)
		}
	}
	if before > 0 && len(a.want) == 0 {
		close(a.all)
	}
}

func (r *run) newLinkEnd(name string, s *set, peers ...link.PeerConfig) (_ *linkEnd, err error) {
	var agent [16]byte
	copy(agent[:], name)
	e := &linkEnd{set: s, store: &arrivals{}}
	if e.store.Store, err = blocks.Open(blocks.Config{Capacity: (&tables{}).capacity(s), Agent: agent, Incarnation: 1}); err != nil {
		return nil, err
	}
	reg := spaces.New(e.store.AddNamespace)
	if _, err = reg.Add(manifest(s.size)); err == nil {
		e.node, err = link.New(link.Config{
			Agent: agent, Incarnation: 1, Name: name, Store: e.store, Namespaces: reg, Peers: peers, PSK: []byte(r.psk),
			Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		})
	}
	if err != nil {
		return nil, errors.Join(err, e.store.Close())
	}
	return e, nil
}

func (e *linkEnd) close() error { return errors.Join(e.node.Close(), e.store.Close()) }

// linkSource brings blocks by pushes.
type linkSource struct{ *linkEnd }

func (l *linkSource) prepare(ctx context.Context, d *daemon, _ []wire.Key) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	return l.node.Peer(d.name).Ready(ctx)
}

// bring pushes batches, as many side by side as there are lanes.
func (l *linkSource) bring(ctx context.Context, d *daemon, keys []wire.Key) error {
	ctx = fabric.WithClass(ctx, fabric.ClassNormal)
	peer, batch := l.node.Peer(d.name), l.set.batch()
	var mu sync.Mutex
	var errs []error
	next := 0
	take := func() (from, to int) {
		mu.Lock()
		defer mu.Unlock()
		from = next
		next = min(len(keys), next+batch)
		return from, next
	}
	var wg sync.WaitGroup
	for range min(4, runtime.NumCPU()) {
		wg.Go(func() {
			for {
				from, to := take()
				if from == to {
					return
				}
				items := make([]fabric.Item, to-from)
				for j := range items {
					items[j] = fabric.Item{NS: l.set.ns, Key: keys[from+j], Tier: tier, Att: wire.AttestProducer, M: fabric.Mem{B: l.set.payload(from + j)}}
				}
				peer.Push(ctx, items)
				for j := range items {
					if err := items[j].Err; err != nil {
						mu.Lock()
						errs = append(errs, fmt.Errorf("push of block %d: %w", from+j, err))
						mu.Unlock()
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// linkSink takes blocks that a daemon pushes.
type linkSink struct {
	*linkEnd
	keys []wire.Key
}

// expect frees the slots of the blocks before: what a daemon off-loads has a lower tier
// than what the gateway sends on, and would be evicted first.
func (l *linkSink) expect(_ context.Context, keys []wire.Key) error {
	l.store.Discard(l.set.ns, l.keys)
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.keys, l.store.want, l.store.all = keys, make(map[wire.Key]struct{}, len(keys)), make(chan struct{})
	for _, k := range keys {
		l.store.want[k] = struct{}{}
	}
	return nil
}

// sinkWait bounds the wait for all blocks.
const sinkWait = 2 * time.Minute

func (l *linkSink) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sinkWait)
	defer cancel()
	select {
	case <-l.store.all:
		return nil
	case <-ctx.Done():
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		return fmt.Errorf("%d of %d blocks are missing: %w", len(l.store.want), len(l.keys), ctx.Err())
	}
}

// touch has all memory of the store made, so that no measurement pays for that.
func (l *linkSink) touch() error {
	owner := l.store.NewOwner(0)
	defer l.store.Drop(owner) // with what it has reserved
	sizes := make([]uint32, l.set.batch())
	for i := range sizes {
		sizes[i] = l.set.size
	}
	for {
		switch v, err := l.store.ReserveTier(owner, l.set.ns, tier, sizes, time.Minute); {
		case err == nil:
			for i := range v {
				clear(l.store.Room(v[i]))
			}
		case errors.Is(err, wire.CodeFull):
			return nil
		default:
			return err
		}
	}
}

// check compares headers and bodies with what was sent.
func (l *linkSink) check(context.Context) (int, error) {
	owner := l.store.NewOwner(0)
	defer l.store.Drop(owner)
	for i, key := range l.keys {
		v := []blocks.View{{NS: l.set.ns, Key: key}}
		if _, err := l.store.Acquire(owner, v, time.Minute, false); err != nil || v[0].Err != nil {
			return 0, fmt.Errorf("block %d is not at the sink: %w", i, errors.Join(err, v[0].Err))
		}
		got, want := l.store.Payload(v[0]), l.set.payload(i)
		switch {
		case len(got) != len(want):
			return 0, fmt.Errorf("%d bytes of block %d, want %d", len(got), i, len(want))
		case !bytes.Equal(got[:wire.HeaderLen], want[:wire.HeaderLen]):
			return 0, fmt.Errorf("block %d has another header: %x, want %x", i, got[:wire.HeaderLen], want[:wire.HeaderLen])
		case !bytes.Equal(got, want):
			return 0, fmt.Errorf("block %d has another body", i)
		}
	}
	return len(l.keys), nil
}
