package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"meridian/agent/client"
	"meridian/bench/harness"
	"meridian/conformance/chaos"
	"meridian/wire"
)

// standIn is what both engines have in common: the connection to the daemon,
// the jobs, the witness to the judge, and what was counted.
type standIn struct {
	start start
	eng   *client.Engine
	space client.NS
	ns    wire.Namespace
	jobs  []job
	judge *witness
	out   *harness.Writer

	mu     sync.Mutex
	sum    summary
	leases map[int]*client.Lease
}

// runStandIn reads start and orders from in, does each order by serve, at most
// start.Window at a time, and writes results to out.
func runStandIn(ctx context.Context, name string, in io.Reader, out io.Writer, serve func(*standIn, context.Context, job) error) error {
	dec := json.NewDecoder(in)
	s := &standIn{out: harness.NewWriter(out), leases: map[int]*client.Lease{}}
	if err := dec.Decode(&s.start); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := s.connect(ctx, name); err != nil {
		return err
	}
	defer func() { _ = s.eng.Close() }()
	var wg sync.WaitGroup
	window := make(chan struct{}, s.start.Window)
	for {
		var o order
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("order: %w", err)
		}
		if o.Release {
			s.release(o.N)
			continue
		}
		window <- struct{}{}
		wg.Go(func() {
			defer func() { <-window }()
			res := result{N: o.N}
			if err := serve(s, ctx, s.jobs[o.N]); err != nil {
				res.Error = err.Error()
			}
			_ = s.out.Put(res) // a parent that is gone ends our input too
		})
	}
	wg.Wait()
	for n := range s.jobs {
		s.release(n)
	}
	if err := s.eng.Ping(ctx); err != nil { // releases travel in front of it
		return err
	}
	if err := s.judge.close(); err != nil {
		return err
	}
	sum := s.final()
	return s.out.Put(result{Summary: &sum})
}

// adviceWait bounds the wait for the last advice of the daemon: it comes
// without being asked for, and so perhaps after the last answer.
const adviceWait = 2 * time.Second

// final is what was counted, once every request that reasoned has been seen to
// stop, or will not be.
func (s *standIn) final() summary {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for deadline := time.Now().Add(adviceWait); ; <-t.C {
		s.mu.Lock()
		sum := s.sum
		s.mu.Unlock()
		if sum.Exits >= sum.Reasoned || time.Now().After(deadline) {
			return sum
		}
	}
}

func (s *standIn) connect(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reqs, err := size{requests: s.start.Requests}.work()
	if err != nil {
		return err
	}
	if s.judge, err = dialJudge(ctx, s.start.Judge, name, s.start.At); err != nil {
		return err
	}
	if s.eng, err = client.DialEngine(ctx, s.start.Socket, client.Options{OnPhase: s.onPhase}); err != nil {
		return err
	}
	m := manifest(s.start.BlockBytes)
	s.ns = m.Namespace()
	s.jobs = jobs(s.ns, s.start.Seed, reqs)
	s.space, err = s.eng.Open(ctx, m)
	return err
}

func (s *standIn) onPhase(p client.Phase) {
	if p.Kind == client.ExitThink {
		s.count(func(c *summary) { c.Exits++ })
	}
}

func (s *standIn) count(f func(*summary)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.sum)
}

// keep holds on to a lease until an order releases it.
func (s *standIn) keep(n int, l *client.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[n] = l
}

func (s *standIn) release(n int) {
	s.mu.Lock()
	l := s.leases[n]
	delete(s.leases, n)
	s.mu.Unlock()
	if l != nil {
		l.Release()
	}
}

// store puts blocks whose bodies follow from their keys.
func (s *standIn) store(ctx context.Context, keys []wire.Key, tier wire.Tier, req uint32) error {
	for len(keys) > 0 {
		n := min(len(keys), 16)
		if err := s.storeBatch(ctx, keys[:n], tier, req); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (s *standIn) storeBatch(ctx context.Context, keys []wire.Key, tier wire.Tier, req uint32) error {
	batch := make([]client.Block, len(keys))
	for i, k := range keys {
		body, err := s.eng.Stage(ctx, int(s.start.BlockBytes))
		if err != nil {
			return err
		}
		chaos.Body(body, k)
		s.judge.offer(s.ns, k, len(body))
		batch[i] = client.Block{NS: s.space, Key: k, Tier: tier, Body: body, Req: req}
	}
	for i, err := range s.eng.Put(ctx, batch) {
		s.judge.put(s.ns, keys[i], err)
		if err != nil && !errors.Is(err, wire.CodeExists) {
			return fmt.Errorf("put: %w", err)
		}
		if err == nil {
			s.count(func(c *summary) { c.Stored++; c.StoredBytes += uint64(s.start.BlockBytes) })
		}
	}
	return nil
}

// readBatches reads blocks that are here in batches, as an engine that loads
// them step by step, and records how long each batch took to get.
func (s *standIn) readBatches(ctx context.Context, keys []wire.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), readBatch)
		began := time.Now()
		l, err := s.eng.Acquire(ctx, s.space, keys[:n], client.AcquireOptions{})
		took := time.Since(began).Nanoseconds()
		if err != nil {
			return fmt.Errorf("mapped read: %w", err)
		}
		if got := hits(l); got < n {
			s.judge.absent(s.ns, keys[got])
			l.Release()
			return fmt.Errorf("mapped read of a leased block: %w", l.Blocks[got].Err)
		}
		s.count(func(c *summary) { c.Local, c.PerBlock = append(c.Local, took), append(c.PerBlock, n) })
		err = s.read(l, n)
		l.Release()
		if err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// read checks every byte of the first n blocks of a lease.
func (s *standIn) read(l *client.Lease, n int) error {
	for i := range l.Blocks[:n] {
		b := &l.Blocks[i]
		wrong := s.judge.served(s.ns, b.Key, b.Body)
		if err := b.Check(); err != nil {
			return fmt.Errorf("block %s under a lease: %w", b.Key, err)
		}
		s.count(func(c *summary) {
			c.Read++
			c.ReadBytes += uint64(len(b.Body))
			if wrong != nil {
				c.WrongBytes += uint64(len(b.Body))
			}
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// hits is the length of the unbroken run of blocks that were granted.
func hits(l *client.Lease) int {
	for i := range l.Blocks {
		if l.Blocks[i].Err != nil {
			return i
		}
	}
	return len(l.Blocks)
}

// readBatch is how many blocks an engine reads at once.
const readBatch = 16
