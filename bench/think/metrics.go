package think

import (
	"math"
	"slices"
	"time"

	"meridian/scheduler/queue"
)

// Counts are sums over one seed's requests in one arm.
type Counts struct {
	Prefilled      uint64 `json:"prefilled_tokens"`
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

// Figures are what one arm made of one seed's requests, those of the warm-up left out.
type Figures struct {
	TTFT         Percentiles `json:"ttft"`          // arrival to the first token of any kind
	ChatAnswer   Percentiles `json:"chat_answer"`   // arrival to the first visible token, of who does not think
	ReasonAnswer Percentiles `json:"reason_answer"` // of who does
	TTOT         Percentiles `json:"ttot"`          // end of thinking to the first visible token
	ITL          Percentiles `json:"itl"`           // visible, of a reader at the pace of the SLO
	EndToEnd     Percentiles `json:"end_to_end"`    // arrival to the last token
	Late         float64     `json:"late_share"`    // of visible tokens: more than the bound after the one before
	Goodput      float64     `json:"goodput_share"` // of requests: first answer and 99 of 100 visible tokens in time
	Makespan     float64     `json:"makespan_s"`
	Counts

	depth        []depth   // of the first seed
	chat, reason []float64 // ms to the first visible token, sorted; likewise
}

// percentile is by nearest rank, of sorted values.
func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[max(int(math.Ceil(p*float64(len(v))))-1, 0)]
}

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

// figures of a run; the first warm requests of those that came are not counted.
func (r *run) figures(warm int) Figures {
	var ttft, chat, reason, ttot, itl, whole []float64
	f := Figures{Counts: r.n}
	f.EvictedThought, f.EvictedThinking, f.EvictedOutput = r.mem.gone[0], r.mem.gone[1], r.mem.gone[2]
	cold := r.core.Stats()
	f.ColdKept, f.ColdDropped = cold.Kept, cold.Dropped
	visible, late, good, all := 0, 0, 0, 0
	for i := range r.reqs {
		q := &r.reqs[i]
		f.Makespan = max(f.Makespan, q.done.Seconds())
		if i < warm {
			continue
		}
		all++
		ttft = append(ttft, ms(q.first-q.at))
		whole = append(whole, ms(q.done-q.at))
		bound := r.cfg.FirstAnswer
		if q.think > 0 {
			reason = append(reason, ms(q.answered-q.at))
			ttot = append(ttot, ms(q.answered-q.thoughts))
			bound += time.Duration(q.think) * r.cfg.ThinkPace
		} else {
			chat = append(chat, ms(q.answered-q.at))
		}
		for _, g := range q.gaps {
			itl = append(itl, float64(g))
		}
		visible += len(q.gaps)
		late += q.late
		if q.answered-q.at <= bound && q.late*100 <= len(q.gaps) {
			good++
		}
	}
	f.TTFT, f.ChatAnswer, f.ReasonAnswer, f.TTOT, f.ITL, f.EndToEnd = percentiles(ttft), percentiles(chat), percentiles(reason), percentiles(ttot), percentiles(itl), percentiles(whole)
	if visible > 0 {
		f.Late = round(float64(late) / float64(visible))
	}
	if all > 0 {
		f.Goodput = round(float64(good) / float64(all))
	}
	f.Makespan = round(f.Makespan)
	if f.depth = r.depth; f.depth != nil {
		f.chat, f.reason = chat, reason
	}
	return f
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
// seed: the seeds have the same requests.
func paired(base, arm []Figures, of func(*Figures) float64) Interval {
	var d []float64
	for i := range base {
		if b := of(&base[i]); b > 0 {
			d = append(d, of(&arm[i])/b-1)
		}
	}
	return interval(d)
}
