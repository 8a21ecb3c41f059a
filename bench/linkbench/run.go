package linkbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"meridian/adapters/link"
	"meridian/agent/config"
	"meridian/bench/harness"
	"meridian/bench/measure"
	"meridian/blocks"
	"meridian/blocks/spaces"
	"meridian/fabric"
	"meridian/wire"
)

// mappedBatch is the batch of the mapped read.
const mappedBatch = 16

// run is one measuring process with its holder.
type run struct {
	opt   Options
	other *harness.Process
	addrs answer

	store *blocks.Store
	reg   *spaces.Registry
	node  *link.Node
	peer  *link.Peer
}

// Run measures. It takes about Rounds × 3 × Round for each size, and some
// seconds for the rest.
func Run(ctx context.Context, opt Options) (Report, error) {
	if err := opt.fill(); err != nil {
		return Report{}, err
	}
	rep := Report{Host: measure.ThisHost(), Congestion: opt.Congestion, Batch: opt.Batch,
		Streams: opt.Streams, SetBytes: opt.Set, RoundMS: opt.Round.Milliseconds(), Rounds: opt.Rounds}
	for _, size := range opt.Sizes {
		opt.Progress(fmt.Sprintf("pull of %s blocks", config.FormatBytes(uint64(size))))
		if err := with(ctx, opt, size, opt.Set, func(r *run) error {
			p, err := r.pulls(ctx, size)
			rep.Pulls = append(rep.Pulls, p)
			return err
		}); err != nil {
			return rep, err
		}
	}
	for _, size := range opt.Mapped {
		opt.Progress(fmt.Sprintf("mapped read of %s blocks", config.FormatBytes(uint64(size))))
		set := mappedBatch * uint64(size)
		if err := with(ctx, opt, size, set, func(r *run) error {
			m, err := r.mapped(ctx, size, set)
			rep.Mapped = append(rep.Mapped, m)
			return err
		}); err != nil {
			return rep, err
		}
	}
	opt.Progress("urgent pull under offload")
	err := with(ctx, opt, opt.Urgent, opt.Set, func(r *run) (err error) {
		rep.Overtaking, err = r.overtaking(ctx, opt.Urgent)
		return err
	})
	return rep, err
}

// with starts a holder that holds set bytes in blocks of size and this side's
// store and node, runs f, and takes all of it down.
func with(ctx context.Context, opt Options, size uint32, set uint64, f func(*run) error) (err error) {
	r := &run{opt: opt}
	dir, err := os.MkdirTemp("", "meridian-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	capacity := set + set/4 + 128<<20
	r.other, err = harness.Start("holder", harness.Again(opt.Self, strconv.FormatUint(capacity, 10), strconv.Itoa(opt.Streams), opt.Congestion, dir),
		harness.Options{Talk: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.other.End()) }()
	if r.addrs, err = r.told(ctx); err != nil {
		return err
	}
	if _, err := r.ask(ctx, command{Fill: size, Set: set}); err != nil {
		return err
	}
	if err := r.up(ctx, size); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.node.Close(), r.store.Close()) }()
	return f(r)
}

// told is the holder's next answer.
func (r *run) told(ctx context.Context) (a answer, err error) {
	if err := r.other.Next(ctx, &a); err != nil {
		return a, fmt.Errorf("the holder: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("holder: %s", a.Error)
	}
	return a, nil
}

func (r *run) ask(ctx context.Context, c command) (answer, error) {
	if err := r.other.Put(c); err != nil {
		return answer{}, err
	}
	return r.told(ctx)
}

// up opens this side's arena, with room for what is under way and for
// offloads, and connects to the holder.
func (r *run) up(ctx context.Context, size uint32) error {
	var err error
	room := uint64(r.opt.Streams*r.opt.batch(size)) * uint64(size) * 2
	if r.store, err = blocks.Open(blocks.Config{Capacity: room + 256<<20, Agent: pullerAgent, Incarnation: 1}); err != nil {
		return err
	}
	r.reg = spaces.New(r.store.AddNamespace)
	if _, err := r.reg.Add(manifest(size)); err != nil {
		return err
	}
	r.node, err = link.New(link.Config{
		Agent: pullerAgent, Incarnation: 1, Name: "puller", Store: r.store, Namespaces: r.reg, Insecure: true,
		Lanes: r.opt.Streams, Congestion: r.opt.Congestion,
		Peers: []link.PeerConfig{{Name: "holder", Addr: r.addrs.Link, Tenants: []string{"bench"}}},
	})
	if err != nil {
		return err
	}
	r.peer = r.node.Peer("holder")
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return r.peer.Ready(ctx)
}

// puller pulls batches into reserved slots, and gives them back unpublished:
// verification, which is part of the pull, is done by then.
type puller struct {
	r     *run
	ns    wire.Namespace
	keys  []wire.Key
	batch int
	next  int
	owner blocks.Owner
	sizes []uint32
}

func (r *run) newPuller(size uint32, batch, at int) *puller {
	p := &puller{r: r, ns: manifest(size).Namespace(), keys: keys(size, r.opt.Set), batch: batch, owner: r.store.NewOwner(0)}
	p.next = at * len(p.keys) / 4
	p.sizes = make([]uint32, batch)
	for i := range p.sizes {
		p.sizes[i] = size
	}
	return p
}

func (p *puller) pull(ctx context.Context) error {
	views, err := p.r.store.Reserve(p.owner, p.ns, p.sizes, time.Minute)
	if err != nil {
		return err
	}
	items := make([]fabric.Item, p.batch)
	slots := make([]uint32, p.batch)
	for i := range items {
		items[i] = fabric.Item{NS: p.ns, Key: p.keys[p.next%len(p.keys)], M: fabric.Mem{B: p.r.store.Room(views[i])}}
		slots[i] = views[i].Ref.Slot
		p.next++
	}
	p.r.peer.Pull(ctx, items)
	p.r.store.Abort(p.owner, slots)
	for i := range items {
		if items[i].Err != nil {
			return fmt.Errorf("pull: %w", items[i].Err)
		}
	}
	return nil
}

// during is measure.During, with the rate in GB/s at bytes a call.
func during(n int, d time.Duration, bytes int, f func(worker int) error) (gbs float64, took []time.Duration, err error) {
	took, elapsed, err := measure.During(n, d, f)
	return float64(len(took)) * float64(bytes) / elapsed.Seconds() / 1e9, took, err
}

// bound is that of this machine.
func bound(plain, hash float64) float64 { return measure.Bound(plain, hash, runtime.NumCPU()) }

// pulls measures one block size: plain sockets, hash and pull in turn.
func (r *run) pulls(ctx context.Context, size uint32) (Pull, error) {
	batch := r.opt.batch(size)
	p := Pull{BlockBytes: size, Batch: batch}
	plain := make([]*PlainReader, r.opt.Streams)
	pullers := make([]*puller, r.opt.Streams)
	for i := range plain {
		c, err := DialPlain(r.addrs.Plain, r.opt.Congestion, size, batch, len(keys(size, r.opt.Set)), i)
		if err != nil {
			return p, err
		}
		defer func() { _ = c.Close() }()
		plain[i] = c
		pullers[i] = r.newPuller(size, batch, i)
	}
	ctx = fabric.WithClass(ctx, fabric.ClassUrgent)
	var s, h, rate, ratio []float64
	var took []time.Duration
	for round := -1; round < r.opt.Rounds; round++ { // the first one warms up
		a, err := PlainRate(plain, r.opt.Round/2)
		if err != nil {
			return p, fmt.Errorf("plain socket: %w", err)
		}
		b := HashRate(plain[0].buf, int(size), r.opt.Round/4)
		c, t, err := during(len(pullers), r.opt.Round, int(size)*batch, func(w int) error { return pullers[w].pull(ctx) })
		if err != nil {
			return p, err
		}
		if round < 0 {
			continue
		}
		s, h, rate, ratio = append(s, a), append(h, b), append(rate, c), append(ratio, c/bound(a, b))
		took = append(took, t...)
	}
	p.Plain, p.Hash, p.Rate, p.Ratio = measure.Median(s), measure.Median(h), measure.Median(rate), measure.Median(ratio)
	p.Bound = bound(p.Plain, p.Hash)
	p.RateMin, p.RateMax = measure.MinMax(rate)
	p.P50, p.P99 = measure.Quantile(took, 0.5).Seconds(), measure.Quantile(took, 0.99).Seconds()
	return p, nil
}
