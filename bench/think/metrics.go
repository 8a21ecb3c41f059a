package think

import (
	"math"
	"slices"
	"time"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// Counts are sums over one seed's requests in one arm.
type Counts struct {
	Prefilled      uint64 `json:"prefilled_tokens"`
	Decoded        uint64 `json:"decoded_tokens"`
	Recomputed     uint64 `json:"recomputed_tokens"`
	HitTokens      uint64 `json:"prefix_hit_tokens"` // of those that were admitted, the ones that were preempted again
	OffloadedBytes uint64 `json:"offloaded_bytes"`   // of preempted requests
	ColdBytes      uint64 `json:"cold_bytes"`        // copied away when thinking was over
	PulledBytes    uint64 `json:"pulled_bytes"`

	EvictedThought  uint64 `json:"evicted_think_complete"` // blocks: of thinking that is over, and of requests that are
	EvictedThinking uint64 `json:"evicted_think_active"`
	EvictedOutput   uint64 `json:"output_critical_eviction_events"` // of prompts and answers of live requests
	ColdKept        uint64 `json:"cold_blocks_kept"`                // copied when thinking was over, and may be read again: the history keeps thinking
	ColdDropped     uint64 `json:"cold_blocks_dropped"`             // were of use to a preemption at most

	Preempted   uint64 `json:"preempted"`
	PeakBlocks  int    `json:"peak_blocks"`
	PeakWaiting int    `json:"peak_waiting"`
}

func (c *Counts) sample(s queue.Stats) {
	c.PeakBlocks, c.PeakWaiting = max(c.PeakBlocks, s.Blocks), max(c.PeakWaiting, s.Waiting)
	c.Preempted = s.Offloaded + s.Recomputed
}

// Percentiles are of times in ms.
type Percentiles struct {
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
}

// Figures are what one arm made of one seed's requests, those of the warm-up left out of
// all but Counts.
type Figures struct {
	Requests     int         `json:"requests"`      // that are counted
	TTFT         Percentiles `json:"ttft"`          // arrival to the first token of any kind
	TTOT         Percentiles `json:"ttot_end_tag"`  // end of thinking to the first visible token
	Answer       Percentiles `json:"ttot_arrival"`  // arrival to the first visible token
	ChatAnswer   Percentiles `json:"chat_answer"`   // of it, of who does not think
	ReasonAnswer Percentiles `json:"reason_answer"` // and of who does
	ITL          Percentiles `json:"output_itl"`    // from a visible token to the next, as they are made
	ReadITL      Percentiles `json:"read_itl"`      // and as a reader at the pace of the SLO sees them
	EndToEnd     Percentiles `json:"end_to_end"`    // arrival to the last token
	ThinkMean    float64     `json:"think_tokens_mean"`
	ThinkP95     float64     `json:"think_tokens_p95"`
	Forced       *Forced     `json:"force_rate,omitempty"` // nil: forcing is off
	Late         float64     `json:"late_share"`           // of visible tokens: more than the bound after the one before, to a reader
	FirstMet     float64     `json:"first_answer_met_share"`
	ITLMet       float64     `json:"itl_met_share"`
	Goodput      float64     `json:"goodput_share"` // of requests: both SLOs are met
	GoodputRate  float64     `json:"goodput_rps"`   // the same a second
	Makespan     float64     `json:"makespan_s"`
	Counts

	course       *course   // of the first seed
	ttft, ttot   []float64 // ms, sorted; likewise
	chat, reason []float64
}

// Forced is the share of thinking requests whose thinking was cut short, by reason.
type Forced struct {
	Converged    float64 `json:"converged"`
	Overthinking float64 `json:"overthinking"`
	HardCap      float64 `json:"hard_cap"`
}

// percentile is by nearest rank, of sorted values.
func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[rank(len(v), p)-1]
}

// rank of a percentile among n values, from 1.
func rank(n int, p float64) int { return max(int(math.Ceil(p*float64(n))), 1) }

func percentiles(v []float64) Percentiles {
	slices.Sort(v)
	return Percentiles{round(percentile(v, .50)), round(percentile(v, .95)), round(percentile(v, .99))}
}

// round keeps six digits: what follows differs between processors that fuse operations.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*p) / p
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// figures of a run.
func (r *run) figures() Figures {
	var ttft, ttot, answer, chat, reason, whole, think []float64
	f := Figures{Counts: r.n, ITL: r.made.percentiles(), ReadITL: r.read.percentiles()}
	gaps, late, first, fluent, good, sum := 0, 0, 0, 0, 0, 0
	var forced [4]int // by reason
	f.EvictedThought, f.EvictedThinking, f.EvictedOutput = r.mem.gone[0], r.mem.gone[1], r.mem.gone[2]
	cold := r.core.Stats()
	f.ColdKept, f.ColdDropped = cold.Kept, cold.Dropped
	for i := range r.reqs {
		q := &r.reqs[i]
		f.Makespan = max(f.Makespan, q.done.Seconds())
		if !q.counted {
			continue
		}
		f.Requests++
		ttft = append(ttft, ms(q.first-q.at))
		whole = append(whole, ms(q.done-q.at))
		answer = append(answer, ms(q.answered-q.at))
		bound := r.cfg.FirstAnswer
		if q.think > 0 {
			reason = append(reason, ms(q.answered-q.at))
			ttot = append(ttot, ms(q.answered-q.thoughts))
			think = append(think, float64(q.think))
			sum += q.think
			forced[q.forced]++
			bound += time.Duration(q.think) * r.cfg.ThinkPace
		} else {
			chat = append(chat, ms(q.answered-q.at))
		}
		gaps += q.gaps
		late += q.late
		soon, steady := q.answered-q.at <= bound, q.late*100 <= q.gaps
		first, fluent, good = first+one(soon), fluent+one(steady), good+one(soon && steady)
	}
	f.TTFT, f.TTOT, f.Answer, f.ChatAnswer, f.ReasonAnswer, f.EndToEnd = percentiles(ttft), percentiles(ttot), percentiles(answer), percentiles(chat), percentiles(reason), percentiles(whole)
	slices.Sort(think)
	f.ThinkMean, f.ThinkP95 = share(sum, len(think)), percentile(think, .95)
	if r.forces {
		n := len(think)
		f.Forced = &Forced{share(forced[scheduler.Converged], n), share(forced[scheduler.Overthinking], n), share(forced[scheduler.HardCap], n)}
	}
	f.Late, f.FirstMet, f.ITLMet, f.Goodput = share(late, gaps), share(first, f.Requests), share(fluent, f.Requests), share(good, f.Requests)
	if n := len(r.reqs); n > 0 {
		if span := (r.reqs[n-1].at - r.reqs[r.warm].at).Seconds(); span > 0 {
			f.GoodputRate = round(float64(good) / span)
		}
	}
	f.Makespan = round(f.Makespan)
	if f.course = r.course; f.course != nil {
		f.ttft, f.ttot, f.chat, f.reason = ttft, ttot, chat, reason
	}
	return f
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return round(float64(n) / float64(of))
}

// Interval is a mean over the seeds with its 95 % confidence interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// t95 is the 97.5th percentile of Student's distribution by degrees of freedom; above
// the table it is the normal one's. Source: any table of the distribution.
var t95 = []float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

func interval(v []float64) Interval {
	n := float64(len(v))
	if n == 0 {
		return Interval{}
	}
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum += x
	}
	mean := sum / n
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	half := 0.0
	if len(v) > 1 {
		t := 1.960
		if len(v)-1 < len(t95) {
			t = t95[len(v)-1]
		}
		half = t * math.Sqrt(squares/(n-1)/n)
	}
	return Interval{round(mean), round(mean - half), round(mean + half)}
}

// paired is the interval of the relative change of a figure from base to arm, seed by
// seed: the seeds have the same requests. Where the base has 0 there is no such change,
// and the seed is left out.
func paired(base, arm []*Figures, of func(*Figures) float64) (i Interval, pairs int) {
	var d []float64
	for i := range base {
		if b := of(base[i]); b > 0 {
			d = append(d, of(arm[i])/b-1)
		}
	}
	return interval(d), len(d)
}

// differing is the interval of the difference, likewise.
func differing(base, arm []*Figures, of func(*Figures) float64) (i Interval, pairs int) {
	var d []float64
	for i := range base {
		d = append(d, of(arm[i])-of(base[i]))
	}
	return interval(d), len(d)
}
