package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"meridian/bench/harness"
	"meridian/bench/trace"
	"meridian/conformance/chaos"
)

// flipAt is the DATA frame, or the pulled item of the synthetic fabric, in
// which one bit is turned: late enough to be none of the self-test's.
const flipAt = 40

// settleTime bounds the wait for counts to return to zero at the end. Slots that wait
// for a peer's next pushes are given back when none came for ten seconds.
const settleTime = 20 * time.Second

// runner is one run of the demo.
type runner struct {
	opt   Options
	size  size
	reqs  []trace.Request
	dir   string
	psk   string
	proxy *chaos.Proxy
	world *harness.Process // of both daemons, with the synthetic fabric

	mu    sync.Mutex
	procs []*harness.Process

	http   map[string]string // daemon to address of /metrics
	judge  string            // socket
	engine map[string]*engineProc
}

// Run replays the trace and returns what happened. The error says what went
// wrong with the run itself; Report.Failures what Meridian did wrong.
func Run(ctx context.Context, opt Options) (Report, error) {
	opt.Progress.state = &progressState{}
	sz, err := opt.check()
	if err != nil {
		return Report{}, err
	}
	r := &runner{opt: opt, size: sz, dir: opt.Dir, http: map[string]string{}, engine: map[string]*engineProc{}}
	if r.reqs, err = sz.work(); err != nil {
		return Report{}, err
	}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "meridian-demo-"); err != nil {
			return Report{}, err
		}
		defer func() { _ = os.RemoveAll(r.dir) }()
	}
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return Report{}, err
	}
	r.psk = hex.EncodeToString(key[:])
	defer r.killAll()
	if err := r.up(ctx); err != nil {
		return Report{}, err
	}
	rep, err := r.replay(ctx)
	opt.Progress.done()
	return rep, errors.Join(err, r.down())
}

// up starts judge, daemons, proxy and engines, in this order.
func (r *runner) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r.judge = filepath.Join(r.dir, "judge.sock")
	if _, err := r.spawn("judge", nil, RoleJudge, r.judge); err != nil {
		return err
	}
	if err := r.upDaemons(ctx); err != nil {
		return err
	}
	for _, name := range []string{namePrefill, nameDecode} {
		if err := awaitReady(ctx, r.http[name]); err != nil {
			return fmt.Errorf("daemon %s: %w", name, err)
		}
	}
	for name, role := range map[string]string{namePrefill: RolePrefill, nameDecode: RoleDecode} {
		e, err := r.startEngine(role, start{
			Socket: r.socket(name, "engine"), Judge: r.judge, At: name, BlockBytes: r.size.blockBytes,
			Requests: r.size.requests, Seed: r.opt.Seed, Window: r.size.window,
		})
		if err != nil {
			return err
		}
		r.engine[name] = e
	}
	say := r.opt.Progress.say
	for _, name := range []string{namePrefill, nameDecode} {
		say("%s: %s/metrics", name, r.http[name])
		say("  mrdn --admin %s status", r.socket(name, "admin"))
	}
	return nil
}

func (r *runner) upDaemons(ctx context.Context) error {
	prefill, err := r.writeConfig(namePrefill, r.size.prefill, true, "")
	if err != nil {
		return err
	}
	if r.opt.Fabric == "synthetic" {
		decode, err := r.writeConfig(nameDecode, r.size.decode, false, "")
		if err != nil {
			return err
		}
		ports, err := r.daemons(ctx, "daemons", prefill, decode)
		if err != nil {
			return err
		}
		r.http[namePrefill], r.http[nameDecode] = ports[0]["http"][0], ports[1]["http"][0]
		return nil
	}
	ports, err := r.daemons(ctx, namePrefill, prefill)
	if err != nil {
		return err
	}
	r.http[namePrefill] = ports[0]["http"][0]
	r.proxy, err = chaos.NewProxy(chaos.ProxyOptions{
		Listen: "tcp://127.0.0.1:0", Target: ports[0]["link"][0], Seed: r.opt.Seed,
		Plan: []chaos.Action{{Kind: chaos.Flip, Dir: chaos.ToFront, Frame: flipAt, Body: -1}},
	})
	if err != nil {
		return err
	}
	decode, err := r.writeConfig(nameDecode, r.size.decode, false, r.proxy.Addr())
	if err != nil {
		return err
	}
	ports, err = r.daemons(ctx, nameDecode, decode)
	if err != nil {
		return err
	}
	r.http[nameDecode] = ports[0]["http"][0]
	return nil
}

// replay gives the requests to the engines at their times and collects what
// came of it.
func (r *runner) replay(ctx context.Context) (Report, error) {
	began := time.Now()
	span := r.reqs[len(r.reqs)-1].At
	speed := 1.0
	if span > 0 {
		speed = float64(span) / float64(r.size.replay)
	}
	r.opt.Progress.say("replaying %d requests of the FAST '25 trace at %.0f times its pace", len(r.reqs), speed)
	err := r.feed(ctx, began, speed)
	elapsed := time.Since(began)
	if err != nil {
		return Report{}, err
	}
	sums := map[string]summary{}
	for name, e := range r.engine {
		if sums[name], err = e.finish(ctx); err != nil {
			return Report{}, err
		}
	}
	r.opt.Progress.say("waiting until the daemons have given all back, at most %.0f s each", settleTime.Seconds())
	return r.report(ctx, sums, elapsed, speed)
}

// feed is the loop of the replay: due requests go to the prefill engine, done
// ones to the decode engine, and what that has read is released. At most
// window requests are on their way.
func (r *runner) feed(ctx context.Context, began time.Time, speed float64) error {
	prefill, decode := r.engine[namePrefill], r.engine[nameDecode]
	next, finished, running := 0, 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	watch := gauge{base: r.http[nameDecode]}
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for finished < len(r.reqs) {
		for next < len(r.reqs) && running < 2*r.size.window {
			due := time.Duration(float64(r.reqs[next].At) / speed)
			if wait := due - time.Since(began); wait > 0 {
				timer.Reset(wait)
				break
			}
			_ = prefill.Put(order{N: next})
			next, running = next+1, running+1
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-look.C:
			watch.look(ctx)
		case res, ok := <-prefill.results:
			if err := failed(prefill, res, ok); err != nil {
				return err
			}
			_ = decode.Put(order{N: res.N})
		case res, ok := <-decode.results:
			if err := failed(decode, res, ok); err != nil {
				return err
			}
			_ = prefill.Put(order{N: res.N, Release: true})
			finished, running = finished+1, running-1
			took := time.Since(began).Seconds()
			r.opt.Progress.step(time.Now(), "%s", progressText(finished, len(r.reqs), r.total(finished, took)-took, &watch))
		}
	}
	return nil
}

// total estimates how long the replay will take: as planned, until enough is
// done to tell that it takes longer.
func (r *runner) total(finished int, took float64) float64 {
	planned := r.size.replay.Seconds()
	if finished < len(r.reqs)/20 {
		return max(planned, took)
	}
	return max(planned, took*float64(len(r.reqs))/float64(finished))
}

// failed is why an engine's result ends the run.
func failed(e *engineProc, res result, ok bool) error {
	switch {
	case !ok:
		return fmt.Errorf("%s ended: %s", e.Name, e.Ending())
	case res.Error != "":
		return fmt.Errorf("%s, request %d: %s", e.Name, res.N, res.Error)
	}
	return nil
}

// down stops what is left and says what did not end well.
func (r *runner) down() error {
	var errs []error
	r.mu.Lock()
	procs := append([]*harness.Process{}, r.procs...)
	r.mu.Unlock()
	for i := len(procs) - 1; i >= 0; i-- {
		errs = append(errs, procs[i].End())
	}
	if r.proxy != nil {
		errs = append(errs, r.proxy.Close())
	}
	return errors.Join(errs...)
}

// killAll is for a run that ended early.
func (r *runner) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.procs {
		p.Kill()
	}
	if r.proxy != nil {
		_ = r.proxy.Close()
	}
}
