package think

import (
	"context"
	"fmt"
	"time"

	"meridian/scheduler/queue"
)

// Sanity compares the model with queueing theory where that has an answer: one slot,
// requests of one length, Poisson arrivals, first come first served is M/D/1, whose mean
// waiting time is rho·S/(2(1-rho)) (Pollaczek and Khinchine).
type Sanity struct {
	Utilisation float64 `json:"utilisation"`
	WaitMS      float64 `json:"mean_wait_ms"`
	TheoryMS    float64 `json:"theory_ms"`
	Error       float64 `json:"relative_error"`
}

func sanity(ctx context.Context, seed uint64, requests int) ([]Sanity, error) {
	const prompt = 100
	o := Options{
		Workload: Workload{ChatPrompt: Span{prompt, prompt}, ChatAnswer: Span{1, 1}, Prompt: Span{1, 1}, Think: Span{1, 1}, Answer: Span{1, 1}},
		Cost:     Cost{BaseUS: 5000, TokenUS: 50, MoveGBs: 1}, Slots: 1, StepTokens: prompt, KVTokens: 8 * prompt, BlockTokens: prompt,
		FirstAnswer: time.Hour, ThinkPace: time.Second, OutputPace: time.Second, Bound: time.Minute,
	}
	service := o.Cost.step(prompt, 0)
	var all []Sanity
	for _, rho := range []float64{0.5, 0.8} {
		r, err := newRun(ctx, &o, Arm{Config: queue.Config{Policy: queue.FCFS}}, o.Workload.draw(seed, requests, rho/service.Seconds()))
		if err != nil {
			return nil, err
		}
		if err := r.play(); err != nil {
			return nil, fmt.Errorf("M/D/1 at %v: %w", rho, err)
		}
		sum := 0.0
		for i := range r.reqs {
			sum += ms(r.reqs[i].done - r.reqs[i].at - service)
		}
		got, want := sum/float64(len(r.reqs)), rho*ms(service)/(2*(1-rho))
		all = append(all, Sanity{rho, round(got), round(want), round(got/want - 1)})
	}
	return all, nil
}
