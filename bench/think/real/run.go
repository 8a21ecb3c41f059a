package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"meridian/agent"
	"meridian/bench/measure"
)

// Run starts the nodes, or takes those that run, and plays the rounds. A run that is
// stopped or fails returns its error with a report of the rounds that every arm has
// played, which says so, and how much of the next one is left out.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	if err := o.Check(); err != nil {
		return rep, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	rep = Report{
		Mode: Mode, Host: measure.ThisHost(), Version: agent.BuildVersion(), Loads: loadAverage(nil),
		Workload: o.Workload, Interactive: o.Interactive, Background: o.Background, Requests: o.Requests, Rounds: o.Rounds, Seed: o.Seed, Storm: o.Storm,
		FirstAnswerMS: ms(o.FirstAnswer), ThinkPaceMS: ms(o.ThinkPace), OutputPaceMS: ms(o.OutputPace), BoundMS: ms(o.Bound),
	}
	if o.starts() {
		rep.Slots, rep.Context, rep.Threads = o.Node.Slots, o.Node.Context, o.Node.Threads
	}
	nodes, closeAll, err := o.nodes(ctx)
	defer func() { err = errors.Join(err, closeAll()) }()
	parts := make([][]*part, len(o.Arms))
	if err == nil {
		rep.Server, rep.Model = nodes[0].build, nodes[0].model
		rep.Left, err = o.play(ctx, nodes, parts)
	}
	rep.Loads = loadAverage(rep.Loads)
	for _, all := range parts {
		rep.Done = len(all)
	}
	if err != nil {
		rep.Partial = fmt.Sprintf("%s, then: %s", rep.played(), ending(ctx, err))
	}
	if rep.Done == 0 {
		return rep, err
	}
	for i, n := range nodes {
		a := o.summarise(n, parts[i])
		if i > 0 {
			a.Changes = o.changes(parts[0], parts[i])
		}
		rep.Arms = append(rep.Arms, a)
	}
	rep.Equal, rep.Absent = equality(parts), absent(rep.Arms)
	return rep, err
}

// ending is why a run ended early.
func ending(ctx context.Context, err error) string {
	switch ctx.Err() {
	case context.Canceled:
		return "it was interrupted"
	case context.DeadlineExceeded:
		return "its time was over"
	}
	return err.Error()
}

// nodes of all arms, and what ends them.
func (o *Options) nodes(ctx context.Context) (nodes []*node, closeAll func() error, err error) {
	dir := ""
	closeAll = func() error {
		errs := make([]error, len(nodes))
		var ends sync.WaitGroup
		for i, n := range nodes {
			ends.Go(func() { errs[i] = n.close(ctx) })
		}
		ends.Wait()
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
		return errors.Join(errs...)
	}
	if dir, err = os.MkdirTemp(memory(), "mrdn-think-"); err != nil {
		return nil, closeAll, err
	}
	for i, arm := range o.Arms {
		o.Progress("starting " + arm.Name)
		var n *node
		if arm.Front != "" {
			n, err = use(ctx, arm, o.Token)
		} else {
			n, err = start(ctx, o, arm, filepath.Join(dir, strconv.Itoa(i)))
		}
		if err != nil {
			return nodes, closeAll, err
		}
		nodes = append(nodes, n)
		if err := n.probe(ctx, o.Workload.ReasoningRatio > 0 && o.Background > 0); err != nil {
			return nodes, closeAll, err
		}
	}
	return nodes, closeAll, nil
}

// memory is a folder in memory, where the host has one: slots write their states there.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// play plays the rounds, and appends to parts what all arms have played. With an error, left
// is what the arms have done of the round that was not finished.
func (o *Options) play(ctx context.Context, nodes []*node, parts [][]*part) (left []Left, _ error) {
	for round := range o.Rounds {
		now := make([]*part, len(nodes))
		for _, i := range order(len(nodes), round) {
			o.Progress(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, nodes[i].arm.Name))
			var err error
			if now[i], err = o.turn(ctx, nodes[i], round); err != nil {
				return o.left(nodes, now), err
			}
		}
		for i := range parts {
			parts[i] = append(parts[i], now[i])
		}
	}
	return nil, nil
}

// left counts what the arms have done of a round.
func (o *Options) left(nodes []*node, now []*part) (all []Left) {
	for i, n := range nodes {
		l := Left{Arm: n.arm.Name, Of: (o.Interactive + o.Background) * o.Requests}
		if now[i] != nil {
			for _, s := range slices.Concat(now[i].samples[:]...) {
				if s.err == nil {
					l.Answered++
				}
			}
		}
		all = append(all, l)
	}
	return all
}

// turn is one arm's part of a round, as much of it as there is with an error. Its two halves
// have Within each.
func (o *Options) turn(ctx context.Context, n *node, round int) (*part, error) {
	within, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	before, err := n.metrics(ctx)
	if err != nil {
		return nil, err
	}
	p := o.load(within, n, round)
	if ctx.Err() != nil {
		return p, ctx.Err()
	}
	p.before = before
	if err := n.rest(ctx); err != nil {
		return p, err
	}
	if p.after, err = n.metrics(ctx); err != nil {
		return p, err
	}
	within, cancel = context.WithTimeout(ctx, o.Within)
	defer cancel()
	o.blow(within, n, p, round)
	if err := errors.Join(ctx.Err(), n.rest(ctx)); err != nil {
		return p, err
	}
	return p, n.alive()
}

// alive says why a node that was started here has ended, if it has.
func (n *node) alive() error {
	if n.proc == nil {
		return nil
	}
	select {
	case <-n.proc.Done():
		return fmt.Errorf("%s has ended: %s", n.proc.Name, n.proc.Ending())
	default:
		return nil
	}
}

// Err says what is wrong with what was measured: requests that were not answered.
func (r Report) Err() error {
	var errs []error
	for _, a := range r.Arms {
		for _, c := range []struct {
			name string
			*Class
		}{{"interactive", &a.Interactive}, {"background", &a.Background}} {
			if c.Failed > 0 {
				errs = append(errs, fmt.Errorf("%s: %d %s requests failed, the first one so: %s", a.Name, c.Failed, c.name, c.Error))
			}
			if c.Unfinished > 0 {
				errs = append(errs, fmt.Errorf("%s: %d %s requests were not answered in their round's time", a.Name, c.Unfinished, c.name))
			}
		}
		if n := a.Stall.Failed; n > 0 {
			errs = append(errs, fmt.Errorf("%s: %d streams and prompts of the storms were not answered", a.Name, n))
		}
	}
	return errors.Join(errs...)
}

// loadAverage appends the host's load of a minute, where it tells one.
func loadAverage(to []float64) []float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return to
	}
	first, _, _ := strings.Cut(string(b), " ")
	if v, err := strconv.ParseFloat(first, 64); err == nil {
		to = append(to, v)
	}
	return to
}
