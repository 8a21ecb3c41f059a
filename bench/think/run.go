package think

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// Arm is a way of scheduling.
type Arm struct {
	Name     string       `json:"name"`
	What     string       `json:"what"`
	ThinkCap uint32       `json:"think_cap,omitempty"` // thinking is cut there; 0: never
	Config   queue.Config `json:"-"`
	Mini     *MiniConfig  `json:"-"` // MinivLLM's loop in place of the queue; nil: the queue

	OneTier   bool `json:"one_tier,omitempty"`   // all blocks go in order of their last use, whatever they are
	ColdBatch int  `json:"cold_batch,omitempty"` // think blocks are copied away from the end of thinking on, so many at a time; 0: never
}

// loop is what decides about steps: the queue, or the loop of another engine.
type loop interface {
	Add(now queue.Time, r queue.Request) error
	Schedule(now queue.Time, s *queue.Step)
	Ran(now queue.Time, id queue.ID, prefilled, decoded int, p scheduler.Phase)
	Moved(now queue.Time, id queue.ID)
	Stats() queue.Stats
}

func (a *Arm) loop(o *Options, requests int, cached func(queue.ID) int) (loop, error) {
	if a.Mini != nil {
		return newMini(*a.Mini, o.kvBlocks(), o.BlockTokens, cached)
	}
	c := a.Config
	c.Slots, c.StepTokens, c.Blocks, c.BlockTokens, c.Requests, c.Cached = o.Slots, o.StepTokens, o.kvBlocks(), o.BlockTokens, requests, cached
	return queue.New(c)
}

// Options of a run.
type Options struct {
	Workload    Workload
	Cost        Cost
	Arms        []Arm // the first is what the others are compared with
	Slots       int
	StepTokens  int
	KVTokens    int
	BlockTokens int
	Keeps       bool          // the model's template keeps thinking in the history, so its blocks are not dropped at the end
	Requests    int           // of each seed
	Duration    time.Duration // of arrivals, in place of Requests; 0: by Requests
	Warm        int           // of the requests, the first ones are not counted; QuarterWarm: a quarter of those that come
	Seeds       []uint64      // each once
	Sanity      int           // requests of the comparison with queueing theory; below some 100,000 it is noise
	Loads       []float64     // of what the first arm can serve
	Rate        float64       // requests a second, instead of Loads; 0: by Loads
	FirstAnswer time.Duration
	ThinkPace   time.Duration
	OutputPace  time.Duration
	Bound       time.Duration  // a visible token is late that comes so long after the one before
	Progress    func(Progress) // nil: nobody is told; it is called by one goroutine at a time
}

// QuarterWarm is Options.Warm where a quarter of the requests is not counted.
const QuarterWarm = -1

// Progress is how far a run is.
type Progress struct {
	Done, Total int // plays of an arm with a seed's requests
	Now         string
}

// Seeds are n of them, from first on.
func Seeds(first uint64, n int) []uint64 {
	all := make([]uint64, max(n, 0))
	for i := range all {
		all[i] = first + uint64(i)
	}
	return all
}

// Defaults of Options but for the arms: the set-up of docs/results.md.
func Defaults() Options {
	o := Options{
		Workload: Reference(), Cost: H100(),
		Slots: 256, StepTokens: 2048, KVTokens: 390_000, BlockTokens: 16,
		Requests: 6000, Warm: QuarterWarm, Seeds: Seeds(1, 20), Sanity: 400_000, Loads: []float64{0.7, 0.85, 0.95, 1.05},
		FirstAnswer: time.Second, ThinkPace: 80 * time.Millisecond, OutputPace: 50 * time.Millisecond, Bound: 100 * time.Millisecond,
	}
	o.Arms = Arms(&o)
	return o
}

// Arms are the baseline and ours, with the SLOs of o.
func Arms(o *Options) []Arm {
	of, with := o.policy, with
	return []Arm{
		{Name: "stock", What: "vLLM V1's loop: running requests first, prompts in chunks, first come first served, who came last is recomputed", OneTier: true, Config: of(queue.FCFS)},
		{Name: "minivllm", What: "MinivLLM's loop: a step is whole prompts, as many tokens as the longest request has at least, or decodes, prompts first; who came last is recomputed, and is the next one", OneTier: true, Mini: miniFor(o)},
		{Name: "stock+offload", What: "stock with 5 % of the blocks kept for those that run, and offload in place of recomputing", ColdBatch: coldBatch, Config: with(of(queue.FCFS), room)},
		{Name: "output-first", What: "who does not think, or answers already, first; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.OutputFirst), room)},
		{Name: "reason-first", What: "thinking first, answers at the pace of their readers; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.ReasonFirst), room)},
		{Name: "slo-slack", What: "the least slack to its SLO first; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.SLOSlack), room)},
		{Name: "static-2048", What: "stock, and thinking is cut after 2,048 tokens, whatever it is about", OneTier: true, ThinkCap: staticBudget, Config: of(queue.FCFS)},
	}
}

// coldBatch is the default of disagg.offload_threshold_blocks.
const coldBatch = 4

// staticBudget is the fixed thinking budget that forcing by signals is compared with.
const staticBudget = 2048

// Check says which option cannot be.
func (o *Options) Check() error {
	if err := o.Workload.check(); err != nil {
		return err
	}
	if err := o.Cost.check(); err != nil {
		return err
	}
	switch {
	case len(o.Arms) == 0:
		return fmt.Errorf("no arm")
	case o.Arms[0].ThinkCap > 0:
		return fmt.Errorf("arm %s cuts thinking: what others are compared with does not", o.Arms[0].Name)
	case o.Requests < 1 || o.Requests > maxRequests || o.Warm < QuarterWarm || o.Duration == 0 && o.Warm >= o.Requests:
		return fmt.Errorf("%d requests, of which %d are not counted: at least one, at most %d, and some must be left", o.Requests, o.Warm, maxRequests)
	case o.Duration < 0 || o.Duration > maxDuration:
		return fmt.Errorf("arrivals for %v: above 0, at most %v", o.Duration, maxDuration)
	case o.Sanity < 1 || o.Sanity > 1<<24:
		return fmt.Errorf("%d requests for the comparison with theory: at least 1, at most %d", o.Sanity, 1<<24)
	case len(o.Seeds) < 1 || len(o.Seeds) > 1000:
		return fmt.Errorf("%d seeds: from 1 to 1,000", len(o.Seeds))
	case o.Slots < 1 || o.Slots > queue.MaxRequests:
		return fmt.Errorf("%d slots: at least 1, at most %d", o.Slots, queue.MaxRequests)
	case o.StepTokens < o.Slots || o.StepTokens > 1<<24:
		return fmt.Errorf("a budget of %d tokens for a step of %d slots: at least one for each, at most %d", o.StepTokens, o.Slots, 1<<24)
	case o.BlockTokens < 1 || o.kvBlocks() < 1 || o.kvBlocks() > 1<<22:
		return fmt.Errorf("%d KV tokens in blocks of %d: at least %d blocks, at most %d", o.KVTokens, o.BlockTokens, blocksAnExtent, 1<<22)
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("a rate of %v requests a second: above 0, at most %v", o.Rate, maxRate)
	case o.Rate == 0 && len(o.Loads) == 0:
		return fmt.Errorf("neither a rate nor loads")
	}
	for _, s := range []struct {
		name string
		v    time.Duration
	}{{"to the first answer", o.FirstAnswer}, {"of a thinking token", o.ThinkPace}, {"of an output token", o.OutputPace}} {
		if s.v <= 0 || s.v > 24*time.Hour {
			return fmt.Errorf("an SLO %s of %v: above 0, at most a day", s.name, s.v)
		}
	}
	if o.Bound <= o.OutputPace {
		return fmt.Errorf("a token is late after %v, and a reader reads one every %v: the first is above the second", o.Bound, o.OutputPace)
	}
	known := map[uint64]bool{}
	for _, s := range o.Seeds {
		if known[s] {
			return fmt.Errorf("seed %d is there twice: the second time says nothing new, and would narrow the intervals", s)
		}
		known[s] = true
	}
	for i, l := range o.Loads {
		if !(l > 0 && l <= 10) {
			return fmt.Errorf("a load of %v: above 0, at most 10", l)
		}
		if slices.Contains(o.Loads[:i], l) {
			return fmt.Errorf("a load of %v is there twice", l)
		}
	}
	if err := o.Workload.fits(o.kvBlocks() * o.BlockTokens); err != nil {
		return err
	}
	for _, a := range o.Arms {
		if _, err := newRun(context.Background(), o, a, nil); err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
	}
	return nil
}

const (
	maxRequests = 1 << 20
	maxRate     = 1e6
	maxDuration = 30 * 24 * time.Hour
)

// arrivals are those of a seed at a rate.
func (o *Options) arrivals(seed uint64, rate float64) ([]arrival, error) {
	all := o.Workload.drawUntil(seed, o.most(), o.Duration, rate)
	switch {
	case o.Duration == 0:
	case len(all) == maxRequests:
		return nil, fmt.Errorf("at %.4g a second more than %d requests come in %v", rate, maxRequests, o.Duration)
	case o.warm(len(all)) >= len(all):
		return nil, fmt.Errorf("at %.4g a second %d requests come in %v, of which the first %d are not counted: none is left", rate, len(all), o.Duration, max(o.Warm, 0))
	}
	return all, nil
}

// most is how many requests a seed has at most.
func (o *Options) most() int {
	if o.Duration > 0 {
		return maxRequests
	}
	return o.Requests
}

// warm is how many of n requests are not counted.
func (o *Options) warm(n int) int {
	if o.Warm == QuarterWarm {
		return n / 4
	}
	return o.Warm
}

// capacity is the highest rate, in requests a second, that an arm can serve: at which no
// more than one in waitShare of its slots' requests waits when the last one comes. It is
// found by halving, to a 500th.
func (o *Options) capacity(ctx context.Context, arm Arm) (float64, error) {
	serves := func(rate float64) (bool, error) {
		r, err := newRun(ctx, o, arm, o.Workload.drawUntil(o.Seeds[0], o.most(), o.Duration, rate))
		if err != nil {
			return false, err
		}
		err = r.play()
		return r.left <= max(o.Slots/waitShare, 1), err
	}
	low, high := 0.0, 1.0
	for {
		ok, err := serves(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if low, high = high, 2*high; high > maxRate {
			return 0, fmt.Errorf("%d requests are too few to find what can be served: they do not fill %d slots", o.Requests, o.Slots)
		}
	}
	for high-low > high/500 {
		ok, err := serves((low + high) / 2)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low = (low + high) / 2
		default:
			high = (low + high) / 2
		}
	}
	if low == 0 {
		return 0, fmt.Errorf("not even %v requests a second can be served", high)
	}
	return low, nil
}

const waitShare = 50

// Run plays each arm at each load with the requests of each seed. The same options give
// the same report. Where ctx ends before, the report has what is whole, says so in
// Interrupted, and comes with the error.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	rep := newReport(&o)
	t := &teller{to: o.Progress, p: Progress{Total: len(o.Arms) * len(o.Seeds) * max(len(o.Loads), 1)}}
	if o.Rate > 0 {
		t.p.Total = len(o.Arms) * len(o.Seeds)
	}
	err := o.run(ctx, &rep, t)
	if err != nil && ctx.Err() == nil {
		return rep, err
	}
	if err != nil {
		rep.Interrupted = fmt.Sprintf("%d of %d plays were done when the run was ended: what is here has fewer loads or seeds than was asked for", t.p.Done, t.p.Total)
	}
	rep.Verdict = rep.judge()
	return rep, err
}

func (o *Options) run(ctx context.Context, rep *Report, t *teller) (err error) {
	t.say("the comparison with queueing theory", 0)
	if rep.Sanity, err = sanity(ctx, o.Seeds[0], o.Sanity); err != nil {
		return err
	}
	rates := []float64{o.Rate}
	if o.Rate == 0 {
		t.say("what "+o.Arms[0].Name+" can serve", 0)
		top, err := o.capacity(ctx, o.Arms[0])
		if err != nil {
			return err
		}
		rep.Capacity, rates = round(top), nil
		for _, l := range o.Loads {
			rates = append(rates, l*top)
		}
	}
	for k, rate := range rates {
		lr := LoadReport{Rate: round(rate)}
		now := fmt.Sprintf("%.2f requests a second", rate)
		if o.Rate == 0 {
			lr.Load = o.Loads[k]
			now = fmt.Sprintf("load %.2f", lr.Load)
		}
		all, err := o.load(ctx, rate, func() { t.say(now, 1) })
		if lr.summarise(o, all); len(lr.Arms) > 0 {
			rep.Loads = append(rep.Loads, lr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// teller tells of progress.
type teller struct {
	mu sync.Mutex
	to func(Progress)
	p  Progress
}

func (t *teller) say(now string, done int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.Now = now
	t.p.Done += done
	if t.to != nil {
		t.to(t.p)
	}
}

// load plays all arms and seeds at a rate, as many at a time as there are processors. What
// an arm did not come to is nil.
func (o *Options) load(ctx context.Context, rate float64, played func()) ([][]*Figures, error) {
	all := make([][]*Figures, len(o.Arms))
	for i := range all {
		all[i] = make([]*Figures, len(o.Seeds))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct{ arm, seed int }
	jobs := make(chan job)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(o.Arms)*len(o.Seeds)) {
		workers.Go(func() {
			for j := range jobs {
				f, err := o.play(ctx, j.arm, j.seed, rate)
				if err != nil {
					cancel(fmt.Errorf("arm %s, seed %d: %w", o.Arms[j.arm].Name, o.Seeds[j.seed], err))
					continue
				}
				all[j.arm][j.seed] = f
				played()
			}
		})
	}
	for seed := range o.Seeds {
		for arm := range o.Arms {
			if ctx.Err() == nil {
				jobs <- job{arm, seed}
			}
		}
	}
	close(jobs)
	workers.Wait()
	return all, context.Cause(ctx)
}

// play is an arm with the requests of a seed. Of the first seed the course over time is kept.
func (o *Options) play(ctx context.Context, arm, seed int, rate float64) (*Figures, error) {
	reqs, err := o.arrivals(o.Seeds[seed], rate)
	if err != nil {
		return nil, err
	}
	r, err := newRun(ctx, o, o.Arms[arm], reqs)
	if err != nil {
		return nil, err
	}
	if seed == 0 {
		r.course = &course{}
	}
	if err := r.play(); err != nil {
		return nil, err
	}
	f := r.figures()
	return &f, nil
}
