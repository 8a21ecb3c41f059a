package peers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"meridian/bench/measure"
	"meridian/wire"
)

// run is one run of the comparison.
type run struct {
	opt   Options
	cells []Cell
	dir   string
	pairs map[string]*pair
	lost  map[string]error // pairs that could not be started: skipped
	dead  map[string]error // pairs that ended during the run: failed
}

// Run measures. The report is good as far as it goes where there is an error
// too: it names what failed. A run takes about cells × systems × rounds × round.
func Run(ctx context.Context, opt Options) (rep Report, err error) {
	if err := opt.fill(); err != nil {
		return Report{}, err
	}
	r := &run{opt: opt, cells: matrix(opt), pairs: map[string]*pair{}, lost: map[string]error{}, dead: map[string]error{}}
	began := time.Now()
	if rep, err = r.describe(); err != nil {
		return rep, err
	}
	if r.dir, err = os.MkdirTemp("", "meridian-peers-"); err != nil {
		return rep, err
	}
	defer func() { _ = os.RemoveAll(r.dir) }()
	defer func() {
		for _, p := range r.pairs {
			err = errors.Join(err, p.stop())
		}
	}()
	if err := r.unpack(); err != nil {
		return rep, err
	}
	if err := r.startAll(ctx, &rep); err != nil {
		return rep, err
	}
	for i, c := range r.cells {
		opt.Progress(fmt.Sprintf("%d of %d: %s", i+1, len(r.cells), c))
		got, err := r.measure(ctx, c)
		if err != nil {
			return rep, err
		}
		rep.Cells = append(rep.Cells, got)
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, rep.err()
}

// unpack writes drivers and certificates.
func (r *run) unpack() error {
	files, err := fs.Glob(drivers, "drivers/*.py")
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := drivers.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dir, filepath.Base(f)), b, 0o600); err != nil {
			return err
		}
	}
	return writeCertificates(r.dir)
}

// describe begins the report.
func (r *run) describe() (Report, error) {
	rep := Report{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Hash: wire.HashPath(), CacheBytes: lastCache(), SetBytes: r.opt.Set, Lanes: plainLanes(),
		Rounds: r.opt.Rounds, RoundMS: r.opt.Round.Milliseconds(), Namespace: r.opt.Namespace, Versions: map[string]string{},
	}
	rep.Machine, rep.Kernel = measure.Machine()
	var err error
	rep.Congestion, err = CongestionInUse()
	for _, s := range r.systems("") {
		rep.Systems = append(rep.Systems, SystemInfo{Name: s.name, About: s.about, Read: s.read, Write: s.write, Verify: s.verify, Bound: s.bound})
	}
	return rep, err
}

// systems that the options ask for and that do op; empty: either.
func (r *run) systems(op Op) []system {
	var out []system
	for _, s := range systems {
		asked := len(r.opt.Only) == 0 && !s.apart || slices.ContainsFunc(r.opt.Only, s.is)
		if asked && (op == "" || s.does(op)) {
			out = append(out, s)
		}
	}
	return out
}

// startAll starts the pairs, side by side, and notes what is missing.
func (r *run) startAll(ctx context.Context, rep *Report) error {
	r.opt.Progress("starting the processes")
	var mu sync.Mutex
	started := map[string]error{}
	var wg sync.WaitGroup
	for _, s := range r.systems("") {
		if r.lost[s.pair] != nil {
			continue // another system's pair as well
		}
		r.lost[s.pair] = errStarting
		wg.Go(func() {
			p, err := r.startPair(ctx, s.pair)
			if err == nil {
				err = p.rest()
			}
			mu.Lock()
			defer mu.Unlock()
			if p != nil {
				r.pairs[s.pair] = p
			}
			started[s.pair] = err
		})
	}
	wg.Wait()
	r.lost = started
	return r.account(rep)
}

// account fills in versions and what is skipped. A foreign system that does not
// start is missing; one of ours is broken.
func (r *run) account(rep *Report) error {
	var errs []error
	for _, s := range r.systems("") {
		err := r.lost[s.pair]
		switch {
		case err == nil:
			if s.own() {
				rep.Versions["meridian"] = r.opt.Version
			} else {
				rep.Versions[s.group] = r.pairs[s.pair].version
			}
		case s.own() || r.opt.Require:
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		default:
			rep.Skipped = append(rep.Skipped, Skipped{s.name, err.Error()})
		}
	}
	return errors.Join(errs...)
}

// errStarting stands for a pair until it has been tried.
var errStarting = errors.New("not started yet")

// measure prepares every system for a cell, then runs the rounds: in each, all
// systems in turn. A system that fails is out of this cell, and out of the run
// where its process is gone; the report tells.
func (r *run) measure(ctx context.Context, c Cell) (CellReport, error) {
	all := r.systems(c.Op)
	failed := map[string]error{}
	samples := map[string][]sample{}
	via := map[string]string{}
	for _, s := range all {
		if r.lost[s.pair] != nil {
			continue
		}
		if err := r.with(s, func(p *pair) error { return p.prepare(ctx, s, s.of(c)) }); err != nil {
			failed[s.name] = err
		}
		via[s.name] = r.pairs[s.pair].via
	}
	for round := -1; round < r.opt.Rounds; round++ { // the first one warms up
		d := r.opt.Round
		if round < 0 {
			d /= 3
		}
		for _, s := range all {
			if r.lost[s.pair] != nil || failed[s.name] != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return CellReport{}, err
			}
			var got sample
			err := r.with(s, func(p *pair) (err error) {
				got, err = p.measure(ctx, s, s.of(c), max(d, time.Millisecond))
				return err
			})
			if err != nil {
				failed[s.name] = err
			} else if round >= 0 {
				samples[s.name] = append(samples[s.name], got)
			}
		}
	}
	out := summarize(c, all, samples, failed)
	for i := range out.Results {
		out.Results[i].Via = via[out.Results[i].System]
	}
	return out, ctx.Err()
}

// with runs f on the pair of s while the others rest. A pair one of whose
// processes does not answer any more has failed for the rest of the run.
func (r *run) with(s system, f func(*pair) error) error {
	if err := r.dead[s.pair]; err != nil {
		return fmt.Errorf("%s: its processes ended before: %w", s.name, err)
	}
	p := r.pairs[s.pair]
	err := p.wake()
	if err == nil {
		err = f(p)
	}
	if err == nil {
		err = p.rest()
	}
	var broken *ProcessError
	if errors.As(err, &broken) && !errors.Is(err, errAnswer) {
		r.dead[s.pair] = err
	}
	return err
}

// farRoom and nearRoom are what the cells need at most, at the target and in the
// initiator's buffers.
func (r *run) farRoom() (n uint64) {
	for _, c := range r.cells {
		n = max(n, c.Set)
	}
	return n
}

func (r *run) nearRoom() (n uint64) {
	for _, c := range r.cells {
		n = max(n, c.near())
	}
	return n
}
