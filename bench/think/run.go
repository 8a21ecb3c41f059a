package think

import (
	"context"
	"fmt"
	"runtime"
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
	Keeps       bool // the model's template keeps thinking in the history, so its blocks are not dropped at the end
	Requests    int  // of each seed
	Warm        int  // of them, the first ones are not counted
	Seeds       int
	Seed        uint64    // of the first
	Sanity      int       // requests of the comparison with queueing theory; below some 100,000 it is noise
	Loads       []float64 // of what the first arm can serve
	Rate        float64   // requests a second, instead of Loads; 0: by Loads
	FirstAnswer time.Duration
	ThinkPace   time.Duration
	OutputPace  time.Duration
	Bound       time.Duration // a visible token is late that comes so long after the one before
	Progress    func(string)  // nil: nobody is told
}

// Defaults of Options but for the arms: the set-up of docs/results.md.
func Defaults() Options {
	o := Options{
		Workload: Reference(), Cost: H100(),
		Slots: 256, StepTokens: 2048, KVTokens: 390_000, BlockTokens: 16,
		Requests: 6000, Warm: 1500, Seeds: 20, Seed: 1, Sanity: 400_000, Loads: []float64{0.7, 0.85, 0.95, 1.05},
		FirstAnswer: time.Second, ThinkPace: 80 * time.Millisecond, OutputPace: 50 * time.Millisecond, Bound: 100 * time.Millisecond,
	}
	o.Arms = Arms(&o)
	return o
}

// Arms are the baseline and ours, with the SLOs of o.
func Arms(o *Options) []Arm {
	of := func(p queue.Policy) queue.Config {
		return queue.Config{Policy: p, FirstAnswer: o.FirstAnswer, ThinkPace: o.ThinkPace, OutputPace: o.OutputPace}
	}
	with := func(c queue.Config, f func(*queue.Config)) queue.Config { f(&c); return c }
	room := func(c *queue.Config) { c.Headroom, c.Offload = 0.05, true }
	return []Arm{
		{Name: "stock", What: "vLLM V1's loop: running requests first, prompts in chunks, first come first served, who came last is recomputed", OneTier: true, Config: of(queue.FCFS)},
		{Name: "minivllm", What: "MinivLLM's loop: a step is whole prompts or decodes, prompts first; who came last is recomputed, and is the next one", OneTier: true, Mini: miniFor(o)},
		{Name: "stock+offload", What: "stock with 5 % of the blocks kept for those that run, and offload in place of recomputing", ColdBatch: coldBatch, Config: with(of(queue.FCFS), room)},
		{Name: "output-first", What: "who does not think, or answers already, first; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.OutputFirst), room)},
		{Name: "reason-first", What: "thinking first, answers at the pace of their readers; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.ReasonFirst), room)},
		{Name: "slo-slack", What: "the least slack to its SLO first; headroom and offload", ColdBatch: coldBatch, Config: with(of(queue.SLOSlack), room)},
	}
}

// coldBatch is the default of disagg.offload_threshold_blocks.
const coldBatch = 4

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
	case o.Requests < 1 || o.Requests > 1<<20 || o.Warm < 0 || o.Warm >= o.Requests:
		return fmt.Errorf("%d requests, of which %d are not counted: at most %d, and some must be left", o.Requests, o.Warm, 1<<20)
	case o.Sanity < 1 || o.Sanity > 1<<24:
		return fmt.Errorf("%d requests for the comparison with theory: at least 1, at most %d", o.Sanity, 1<<24)
	case o.Seeds < 1 || o.Seeds > 1000:
		return fmt.Errorf("%d seeds: from 1 to 1,000", o.Seeds)
	case o.BlockTokens < 1 || o.kvBlocks() < 1 || o.kvBlocks() > 1<<22:
		return fmt.Errorf("%d KV tokens in blocks of %d: at least %d blocks, at most %d", o.KVTokens, o.BlockTokens, blocksAnExtent, 1<<22)
	case o.Rate < 0 || o.Rate > 1e6 || o.Rate == 0 && len(o.Loads) == 0:
		return fmt.Errorf("a rate of %v requests a second", o.Rate)
	case o.FirstAnswer <= 0 || o.ThinkPace <= 0 || o.OutputPace <= 0 || o.Bound <= o.OutputPace:
		return fmt.Errorf("SLOs of %v to the first answer, %v and %v a token, and a bound of %v: all are above 0, and the bound above the pace of output", o.FirstAnswer, o.ThinkPace, o.OutputPace, o.Bound)
	}
	for _, l := range o.Loads {
		if !(l > 0 && l <= 10) {
			return fmt.Errorf("a load of %v: above 0, at most 10", l)
		}
	}
	if longest := o.Workload.longest(); longest >= o.KVTokens {
		return fmt.Errorf("a request may have %d tokens, the cache has %d", longest, o.KVTokens)
	}
	for _, a := range o.Arms {
		if _, err := newRun(context.Background(), o, a, nil); err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
	}
	return nil
}

// capacity is the highest rate, in requests a second, that an arm can serve: at which no
// more than one in waitShare of its slots' requests waits when the last one comes. It is
// found by halving, to a 500th.
func (o *Options) capacity(ctx context.Context, arm Arm) (float64, error) {
	serves := func(rate float64) (bool, error) {
		r, err := newRun(ctx, o, arm, o.Workload.draw(o.Seed, o.Requests, rate))
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
		if low, high = high, 2*high; high > 1e6 {
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
// the same report.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	rep := Report{
		Workload: o.Workload, Cost: o.Cost, Slots: o.Slots, StepTokens: o.StepTokens, KVTokens: o.KVTokens, BlockTokens: o.BlockTokens,
		Requests: o.Requests, Warm: o.Warm, Seeds: o.Seeds, Seed: o.Seed,
		FirstAnswerMS: ms(o.FirstAnswer), ThinkPaceMS: ms(o.ThinkPace), OutputPaceMS: ms(o.OutputPace), BoundMS: ms(o.Bound), Arms: o.Arms,
	}
	var err error
	if rep.Sanity, err = sanity(ctx, o.Seed, o.Sanity); err != nil {
		return rep, err
	}
	rates := []float64{o.Rate}
	if o.Rate == 0 {
		top, err := o.capacity(ctx, o.Arms[0])
		if err != nil {
			return rep, err
		}
		rep.Capacity, rates = round(top), nil
		for _, l := range o.Loads {
			rates = append(rates, l*top)
		}
	}
	for k, rate := range rates {
		lr := LoadReport{Rate: round(rate)}
		if o.Rate == 0 {
			lr.Load = o.Loads[k]
		}
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%.2f requests a second", rate))
		}
		all, err := o.load(ctx, rate)
		if err != nil {
			return rep, err
		}
		for i := range o.Arms {
			lr.Arms = append(lr.Arms, summarise(o.Arms[i].Name, all[0], all[i]))
		}
		rep.Loads = append(rep.Loads, lr)
	}
	return rep, nil
}

// load plays all arms and seeds at a rate, as many at a time as there are processors.
func (o *Options) load(ctx context.Context, rate float64) ([][]Figures, error) {
	all := make([][]Figures, len(o.Arms))
	for i := range all {
		all[i] = make([]Figures, o.Seeds)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct{ arm, seed int }
	jobs := make(chan job)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(o.Arms)*o.Seeds) {
		workers.Go(func() {
			for j := range jobs {
				r, err := newRun(ctx, o, o.Arms[j.arm], o.Workload.draw(o.Seed+uint64(j.seed), o.Requests, rate))
				if err == nil {
					if j.seed == 0 {
						r.depth = []depth{{}}
					}
					err = r.play()
				}
				if err != nil {
					cancel(fmt.Errorf("arm %s, seed %d: %w", o.Arms[j.arm].Name, o.Seed+uint64(j.seed), err))
					continue
				}
				all[j.arm][j.seed] = r.figures(o.Warm)
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
