package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/bench/linkbench"
	"meridian/wire"
)

// engineTarget is a daemon's block socket without peers.
type engineTarget struct {
	far
	dir    string
	path   string
	server *engine.Server
	served chan error
}

func newEngineTarget(dir string) target { return &engineTarget{far: far{agent: [16]byte{1}}, dir: dir} }

func (t *engineTarget) prepare(c Cell) (any, error) {
	if t.fits(c) {
		return t.path, nil
	}
	if err := t.close(); err != nil {
		return nil, err
	}
	if err := t.open(c); err != nil {
		return nil, err
	}
	t.path = fmt.Sprintf("%s/engine-%d.sock", t.dir, t.inc)
	var err error
	t.server, err = engine.Listen(engine.Config{
		Path: t.path, Tenants: []string{tenant}, Agent: t.agent, Incarnation: t.inc, Store: t.store,
		Host:   linkbench.LocalHost{Registry: t.reg},
		Limits: engine.Limits{StagingBytes: staging(c)},
	})
	if err != nil {
		return nil, err
	}
	t.served = make(chan error, 1)
	go func() { t.served <- t.server.Serve() }()
	return t.path, nil
}

// staging is the size of a session's ring: the largest batch of a stream and the
// next one, or one block that is larger. Rings come on top of the store's capacity:
// at most as much again, or 256 MiB, of which a ring gets at most half of what is left.
func staging(c Cell) int {
	if c.Op == Read {
		return 1 << 20 // none is used
	}
	return int(max(2*maxBatchBytes, c.Size))
}

func (t *engineTarget) close() error {
	var err error
	if t.server != nil {
		err = t.server.Close()
		if e := <-t.served; !errors.Is(e, engine.ErrClosed) {
			err = errors.Join(err, e)
		}
		t.server = nil
	}
	return errors.Join(err, t.far.close())
}

// engineInitiator is an engine with a connection a stream. A read is the
// ACQUIRE of a batch, with the RELEASE of the one before.
type engineInitiator struct {
	touch   bool // read every byte in place, as a copy to a device would
	order   order
	path    string
	streams []engineStream
	put     putCounter
}

type engineStream struct {
	e     *client.Engine
	ns    client.NS
	id    wire.Namespace
	keys  []wire.Key
	lease client.Lease
	out   []client.Block
}

func (n *engineInitiator) prepare(ctx context.Context, c Cell, peer json.RawMessage) error {
	if err := n.close(); err != nil {
		return err
	}
	if err := json.Unmarshal(peer, &n.path); err != nil {
		return err
	}
	n.order = orderOf(c)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n.streams = make([]engineStream, c.Streams)
	for w := range n.streams {
		s := &n.streams[w]
		var err error
		if s.e, err = client.DialEngine(ctx, n.path, client.Options{}); err != nil {
			return err
		}
		if s.ns, err = s.e.Open(ctx, manifest(c.Size)); err != nil {
			return err
		}
		s.id, s.keys = manifest(c.Size).Namespace(), make([]wire.Key, c.Batch)
		for j := range c.Batch {
			if c.Op == Write {
				body := aligned(c.Size)
				fill(body, seedLocal, n.order.local(w, j))
				s.out = append(s.out, client.Block{NS: s.ns, Tier: wire.OutputCritical, Body: body})
			}
		}
	}
	return nil
}

func (n *engineInitiator) move(ctx context.Context, stream, k int, seen *seen) error {
	s := &n.streams[stream]
	if n.order.Op == Write {
		return n.write(ctx, s, seen)
	}
	for j := range s.keys {
		s.keys[j] = heldKey(s.id, n.order.item(stream, k, j))
	}
	if err := s.e.AcquireInto(ctx, &s.lease, s.ns, s.keys, client.AcquireOptions{}); err != nil {
		return err
	}
	defer s.lease.Release()
	for j := range s.lease.Blocks {
		b := &s.lease.Blocks[j]
		if b.Err != nil || uint64(len(b.Body)) != n.order.Size {
			return fmt.Errorf("block %d of a batch: %d bytes, %w", j, len(b.Body), b.Err)
		}
		if n.touch {
			// Count reads each byte once, by vector instructions.
			sink.Add(int64(bytes.Count(b.Body, []byte{0xff})))
			if err := b.Check(); err != nil {
				return err
			}
		}
		if seen != nil {
			if err := seen.read(j, b.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *engineInitiator) write(ctx context.Context, s *engineStream, seen *seen) error {
	for j := range s.out {
		number := n.put.next()
		s.out[j].Key = putKey(s.id, number)
		if seen != nil {
			seen.put(j, number)
		}
	}
	return errors.Join(s.e.Put(ctx, s.out)...)
}

func (n *engineInitiator) close() error {
	var errs []error
	for w := range n.streams {
		if s := &n.streams[w]; s.e != nil {
			errs = append(errs, s.e.Close())
		}
	}
	n.streams = nil
	return errors.Join(errs...)
}
