package bridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"meridian/adapters/link"
	"meridian/agent/config"
	"meridian/bench/linkbench"
	"meridian/bench/measure"
	"meridian/bench/peers"
	"meridian/wire"
)

// source brings blocks to a daemon.
type source interface {
	// prepare makes it ready to bring payload i under the key i.
	prepare(ctx context.Context, d *daemon, keys []wire.Key) error
	// bring returns when the daemon has told of each block that it has it.
	bring(ctx context.Context, d *daemon, keys []wire.Key) error
	close() error
}

// sink takes blocks.
type sink interface {
	// expect makes it ready for payload i under the key i, and for no other block.
	expect(ctx context.Context, keys []wire.Key) error
	// wait returns when each of them has come.
	wait(ctx context.Context) error
	// check compares header and body of each with what was sent, and counts them.
	check(ctx context.Context) (int, error)
	close() error
}

// run is one measurement of everything.
type run struct {
	opt     Options
	dir     string
	psk     string
	started int // processes so far
	rep     *Report
}

// Run measures. Each bridge and block size starts its processes anew.
func Run(ctx context.Context, opt Options) (rep Report, err error) {
	if err := opt.Check(); err != nil {
		return rep, err
	}
	began := time.Now()
	rep = Report{Host: measure.ThisHost(), Namespace: opt.Namespace, UCX: opt.UCX, Bytes: opt.Bytes, Rounds: opt.Rounds,
		Versions: map[string]string{"meridian": opt.Version}, Bridges: []Row{}, Skipped: []Skipped{}}
	if rep.Congestion, err = peers.CongestionInUse(); err != nil {
		return rep, err
	}
	r := &run{opt: opt, dir: opt.Dir, rep: &rep}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "meridian-bridge-"); err != nil {
			return rep, err
		}
		defer func() { _ = os.RemoveAll(r.dir) }()
	}
	if err := unpack(r.dir); err != nil {
		return rep, err
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	r.psk = hex.EncodeToString(key[:])
	for _, size := range opt.Sizes {
		if err := r.size(ctx, size); err != nil {
			return rep, err
		}
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}

// size measures all bridges with blocks of one size.
func (r *run) size(ctx context.Context, size uint32) error {
	s, err := r.make(size)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(s.path) }()
	for _, name := range r.opt.Only {
		if slices.ContainsFunc(r.rep.Skipped, func(s Skipped) bool { return s.Bridge == name }) {
			continue
		}
		row, err := r.bridge(ctx, name, s)
		var missing *MissingError
		switch {
		case errors.As(err, &missing) && !r.opt.Require:
			r.rep.Skipped = append(r.rep.Skipped, Skipped{name, missing.Text})
		case err != nil:
			return fmt.Errorf("%s, blocks of %s: %w", name, config.FormatBytes(uint64(size)), err)
		default:
			r.rep.Bridges = append(r.rep.Bridges, row)
		}
	}
	return nil
}

// make makes the payloads, each of other bytes, here and in a file.
func (r *run) make(size uint32) (*set, error) {
	const align = 64
	s := &set{size: size, count: int(r.opt.Bytes / uint64(size)), ns: manifest(size).Namespace(), path: filepath.Join(r.dir, fmt.Sprintf("payloads-%d", size))}
	s.stride = (wire.HeaderLen + int(size) + align - 1) / align * align
	s.payloads = make([]byte, s.count*s.stride)
	content := mathrand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)})
	for i := range s.count {
		p := s.payload(i)
		_, _ = content.Read(p[wire.HeaderLen:]) // never fails
		if _, err := wire.Seal(p, tier); err != nil {
			return nil, err
		}
	}
	return s, os.WriteFile(s.path, s.payloads, 0o600)
}

// row is what one bridge is measured with.
type row struct {
	set       *set
	source    source
	sink      sink
	leg, gate *daemon
	closers   []func() error
}

func (w *row) close() (err error) {
	for _, f := range slices.Backward(w.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// bridge measures one bridge with blocks of one size.
func (r *run) bridge(ctx context.Context, name string, s *set) (_ Row, err error) {
	say := func(what string) {
		r.opt.Progress(fmt.Sprintf("%s, blocks of %s: %s", name, config.FormatBytes(uint64(s.size)), what))
	}
	say("starting the processes")
	w := &row{set: s}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := r.open(ctx, name, w); err != nil {
		return Row{}, err
	}
	out := Row{Bridge: name, BlockBytes: s.size, Blocks: s.count}
	var leg1, leg2, hash, rates, ratios, batches, pushing, ones, processor []float64
	for i := range r.opt.Rounds + 1 { // the first one warms up
		say(fmt.Sprintf("round %d of %d", i, r.opt.Rounds))
		if err := errors.Join(w.leg.settled(ctx), w.gate.settled(ctx)); err != nil {
			return Row{}, err
		}
		got, compared, err := w.round(ctx, fmt.Sprint(i), r.opt.Round)
		if err != nil {
			return Row{}, err
		}
		if i == 0 {
			continue
		}
		out.Compared += compared
		leg1, leg2, hash, rates = append(leg1, got.Leg1), append(leg2, got.Leg2), append(hash, got.Hash), append(rates, got.Rate)
		batches, pushing, ones = append(batches, got.Batch), append(pushing, got.Pushing), append(ones, got.One)
		processor = append(processor, got.Processor)
		ratios = append(ratios, got.Rate/bound(got.Leg1, got.Leg2, got.Hash, runtime.NumCPU()))
	}
	out.Leg1, out.Leg2, out.Hash, out.Rate = measure.Median(leg1), measure.Median(leg2), measure.Median(hash), measure.Median(rates)
	out.RateMin, out.RateMax = measure.MinMax(rates)
	out.Bound, out.Ratio = bound(out.Leg1, out.Leg2, out.Hash, runtime.NumCPU()), measure.Median(ratios)
	out.Batch, out.Pushing, out.One = measure.Median(batches), measure.Median(pushing), measure.Median(ones)
	out.Processor = measure.Median(processor)
	out.Met = out.Ratio >= Goal
	return out, w.gate.refusals(ctx)
}

// round measures each of the four once.
func (w *row) round(ctx context.Context, name string, d time.Duration) (got Row, compared int, err error) {
	got.Hash = w.hash(d)
	if got.Leg1, err = w.leg1(ctx, w.set.keys(name+"-leg1")); err != nil {
		return got, 0, fmt.Errorf("leg1: %w%s", err, w.leg.Tail())
	}
	var n, m int
	if got.Leg2, n, err = w.leg2(ctx, w.set.keys(name+"-leg2")); err != nil {
		return got, 0, fmt.Errorf("leg2: %w%s", err, w.gate.Tail())
	}
	if m, err = w.whole(ctx, w.set.keys(name+"-bridge"), &got); err != nil {
		return got, 0, fmt.Errorf("bridge: %w%s", err, w.gate.Tail())
	}
	if _, ok := w.sink.(*linkSink); !ok {
		return got, n + m, nil
	}
	if _, ok := w.source.(*linkSource); ok {
		got.One, err = w.one(ctx, w.set.keys(name + "-one")[:1])
	}
	return got, n + m, err
}

// one is how long one block takes, in milliseconds.
func (w *row) one(ctx context.Context, keys []wire.Key) (float64, error) {
	if err := w.sink.expect(ctx, keys); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := w.source.bring(ctx, w.gate, keys); err != nil {
		return 0, err
	}
	if err := w.sink.wait(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	_, err := w.sink.check(ctx)
	return took.Seconds() * 1e3, err
}

func (w *row) hash(d time.Duration) float64 {
	return linkbench.HashRate(w.set.payloads, int(w.set.size), d)
}

func (w *row) rate(took time.Duration) float64 { return float64(w.set.bytes()) / took.Seconds() / 1e9 }

func (w *row) leg1(ctx context.Context, keys []wire.Key) (float64, error) {
	if err := w.source.prepare(ctx, w.leg, keys); err != nil {
		return 0, err
	}
	began := time.Now()
	err := w.source.bring(ctx, w.leg, keys)
	return w.rate(time.Since(began)), err
}

func (w *row) leg2(ctx context.Context, keys []wire.Key) (rate float64, compared int, err error) {
	end, err := w.gate.think(ctx, keys)
	if err != nil {
		return 0, 0, err
	}
	if err := w.sink.expect(ctx, keys); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := end(); err != nil {
		return 0, 0, err
	}
	if err := w.sink.wait(ctx); err != nil {
		return 0, 0, err
	}
	rate = w.rate(time.Since(began))
	compared, err = w.sink.check(ctx)
	return rate, compared, err
}

func (w *row) whole(ctx context.Context, keys []wire.Key, got *Row) (compared int, err error) {
	if err := w.sink.expect(ctx, keys); err != nil {
		return 0, err
	}
	if err := w.source.prepare(ctx, w.gate, keys); err != nil {
		return 0, err
	}
	calls, pushing, err := w.gate.pushes(ctx)
	if err != nil {
		return 0, err
	}
	used, err := w.gate.processor(ctx)
	if err != nil {
		return 0, err
	}
	came := make(chan error, 1)
	began := time.Now()
	var took time.Duration
	go func() {
		err := w.sink.wait(ctx)
		took = time.Since(began)
		came <- err
	}()
	err = w.source.bring(ctx, w.gate, keys)
	if err = errors.Join(err, <-came); err != nil {
		return 0, err
	}
	usedNow, err := w.gate.processor(ctx)
	if err != nil {
		return 0, err
	}
	got.Processor = (usedNow - used) / float64(w.set.bytes()) * 1e9
	if compared, err = w.sink.check(ctx); err != nil {
		return 0, err
	}
	callsNow, pushingNow, err := w.gate.pushes(ctx)
	got.Rate = w.rate(took)
	got.Batch, got.Pushing = float64(len(keys))/max(1, callsNow-calls), (pushingNow-pushing)/took.Seconds()
	return compared, err
}

// open starts the processes of a bridge.
func (r *run) open(ctx context.Context, name string, w *row) error {
	switch name {
	case LinkToLink:
		return r.openLinkToLink(ctx, w, "cut_through_bytes = 1\n")
	case LinkStored:
		return r.openLinkToLink(ctx, w, "cut_through_bytes = 0\n")
	}
	if err := r.needs(); err != nil {
		return err
	}
	switch name {
	case LinkToNIXL:
		return r.openLinkToNIXL(ctx, w)
	case MooncakeToNIXL:
		return r.openMooncakeToNIXL(ctx, w)
	}
	return r.openNIXLToLink(ctx, w)
}

// helper is the program that has NIXL's library.
const helper = "meridian-ffi"

// needs says what of the parts that each bridge has is missing.
func (r *run) needs() error {
	if _, _, err := r.opt.python(); err != nil {
		return err
	}
	if r.opt.Helper != "" {
		return nil
	}
	if self, err := os.Executable(); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(self), helper)); err == nil {
			return nil
		}
	}
	if _, err := exec.LookPath(helper); err != nil {
		return &MissingError{helper + " is neither beside this program nor in PATH; make build builds it, and --helper names it"}
	}
	return nil
}

func (w *row) keep(close func() error) { w.closers = append(w.closers, close) }

// openDaemons starts leg and gate.
func (r *run) openDaemons(ctx context.Context, w *row, leg, gate tables) (err error) {
	if w.leg, err = r.startDaemon(ctx, legName, w.set, leg); err != nil {
		return err
	}
	w.keep(w.leg.close)
	if w.gate, err = r.startDaemon(ctx, gateName, w.set, gate); err != nil {
		return err
	}
	w.keep(w.gate.close)
	return nil
}

// openSink starts an application of NIXL that lends memory.
func (r *run) openSink(ctx context.Context, w *row) (*appSink, error) {
	half := w.set.count*w.set.stride + w.set.count*w.set.stride/8 + 1<<20
	half -= half % 4096
	a, err := r.startNIXL(ctx, "sink", 2*half)
	if err != nil {
		return nil, err
	}
	sink := &appSink{app: a, set: w.set, half: half}
	w.sink = sink
	w.keep(sink.close)
	r.rep.Versions["nixl"] = a.version
	return sink, a.load(ctx, w.set, false)
}

func (r *run) openLinkToNIXL(ctx context.Context, w *row) error {
	sink, err := r.openSink(ctx, w)
	if err != nil {
		return err
	}
	if err := r.openDaemons(ctx, w, tables{links: true}, tables{links: true, sink: sink.app, routes: route("link", "nixl"), offload: "nixl"}); err != nil {
		return err
	}
	sink.daemon = w.gate
	return r.openLinkSource(w)
}

func (r *run) openMooncakeToNIXL(ctx context.Context, w *row) error {
	sink, err := r.openSink(ctx, w)
	if err != nil {
		return err
	}
	a, err := r.startApp(ctx, "source", mooncakeDriver, nil, fmt.Sprint(w.set.count*w.set.stride))
	if err != nil {
		return err
	}
	r.rep.Versions["mooncake"] = a.version
	if err := r.openSource(ctx, w, a); err != nil {
		return err
	}
	from := []*app{a}
	if err := r.openDaemons(ctx, w, tables{sources: from}, tables{sources: from, sink: sink.app, routes: route("mooncake", "nixl"), offload: "nixl"}); err != nil {
		return err
	}
	sink.daemon = w.gate
	return nil
}

func (r *run) openSource(ctx context.Context, w *row, a *app) error {
	w.source = &appSource{app: a, set: w.set}
	w.keep(w.source.close)
	return a.load(ctx, w.set, true)
}

func (r *run) openNIXLToLink(ctx context.Context, w *row) error {
	a, err := r.startNIXL(ctx, "source", w.set.count*w.set.stride)
	if err != nil {
		return err
	}
	r.rep.Versions["nixl"] = a.version
	if err := r.openSource(ctx, w, a); err != nil {
		return err
	}
	at, err := r.openLinkSink(edge, w)
	if err != nil {
		return err
	}
	from := []*app{a}
	if err := r.openDaemons(ctx, w, tables{sources: from}, tables{sources: from, links: true, edge: at, routes: route("nixl", "link"), offload: "link"}); err != nil {
		return err
	}
	return w.gate.ready(ctx)
}

// openLinkSink makes the link's end of that name the sink, and returns its address.
func (r *run) openLinkSink(name string, w *row) (string, error) {
	end, err := r.newLinkEnd(name, w.set, link.PeerConfig{Name: gateName, Tenants: []string{tenant}})
	if err != nil {
		return "", err
	}
	sink := &linkSink{linkEnd: end}
	w.sink = sink
	w.keep(sink.close)
	if err := sink.touch(); err != nil {
		return "", err
	}
	at, err := end.node.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "tcp://" + at.String(), nil
}

// openLinkToLink has a source and a sink in this process. What the gate's own engine has
// goes to the sink, not back to the source.
func (r *run) openLinkToLink(ctx context.Context, w *row, gateway string) error {
	at, err := r.openLinkSink(far, w)
	if err != nil {
		return err
	}
	routes := fmt.Sprintf("[[route]]\nfabric = \"link\"\npeer = %[1]q\n[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = %[1]q\n", far)
	if err := r.openDaemons(ctx, w, tables{links: true}, tables{links: true, far: at, gateway: gateway, routes: routes, offload: "link"}); err != nil {
		return err
	}
	if err := r.openLinkSource(w); err != nil {
		return err
	}
	return w.gate.ready(ctx)
}

// openLinkSource makes the link's end in this process the source of both daemons.
func (r *run) openLinkSource(w *row) error {
	var list []link.PeerConfig
	for _, d := range []*daemon{w.leg, w.gate} {
		list = append(list, link.PeerConfig{Name: d.name, Addr: d.ports["link"][0], Tenants: []string{tenant}})
	}
	end, err := r.newLinkEnd(edge, w.set, list...)
	if err != nil {
		return err
	}
	w.source = &linkSource{end}
	w.keep(w.source.close)
	return nil
}
