package real

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"meridian/bench/think"
	"meridian/scheduler"
)

// Figures are those of the model's report, of which only what was measured is written.
type Figures struct {
	think.Figures
	have map[string]bool // by their names in JSON
}

// MarshalJSON leaves out what was not measured: 0 would be a figure.
func (f Figures) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(f.Figures)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return !f.have[name] })
	return json.Marshal(all)
}

// names are those of all figures of the model's report.
func names() (all []string) {
	var of func(reflect.Type)
	of = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "" && name != "-" {
				all = append(all, name)
			} else if f.Anonymous {
				of(f.Type)
			}
		}
	}
	of(reflect.TypeFor[think.Figures]())
	return all
}

// put notes a figure that was measured.
func put[T any](f *Figures, name string, to *T, v T) {
	if f.have == nil {
		f.have = map[string]bool{}
	}
	*to, f.have[name] = v, true
}

func (f *Figures) times(name string, to *think.Percentiles, v []float64) {
	if len(v) > 0 {
		put(f, name, to, think.PercentilesOf(slices.Clone(v)))
	}
}

// seen is what clients saw, in ms, before it becomes figures.
type seen struct {
	ttft, answer, chat, reason, ttot, itl, read, whole, think []float64

	visible, late, soon, paced, good, answered int
	forced                                     map[string]int // thinking requests, by why it was ended
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// see adds up the answered samples; one without any token has only an end.
func (o *Options) see(all []*sample) *seen {
	v := &seen{forced: map[string]int{}}
	for _, s := range all {
		if s.err != nil {
			continue
		}
		v.answered++
		v.whole = append(v.whole, ms(s.done))
		if s.think > 0 {
			v.think = append(v.think, float64(s.thinking))
			v.forced[s.forced]++
		}
		if len(s.thoughts)+len(s.visible) > 0 {
			v.ttft = append(v.ttft, ms(s.first()))
		}
		if len(s.visible) > 0 {
			o.seeAnswer(v, s)
		}
	}
	return v
}

// seeAnswer adds a sample's visible tokens.
func (o *Options) seeAnswer(v *seen, s *sample) {
	first, bound := s.visible[0], o.FirstAnswer
	v.answer = append(v.answer, ms(first))
	if s.think > 0 {
		bound += time.Duration(len(s.thoughts)) * o.ThinkPace
		v.reason = append(v.reason, ms(first))
		if n := len(s.thoughts); n > 0 {
			v.ttot = append(v.ttot, ms(first-s.thoughts[n-1]))
		}
	} else {
		v.chat = append(v.chat, ms(first))
	}
	read, late := o.read(s.visible)
	v.itl, v.read = append(v.itl, gapsOf(s.visible)...), append(v.read, read...)
	v.visible, v.late = v.visible+len(read), v.late+late
	soon, paced := first <= bound, late*100 <= len(read)
	if soon {
		v.soon++
	}
	if paced {
		v.paced++
	}
	if soon && paced {
		v.good++
	}
}

// gapsOf are the times between tokens, in ms.
func gapsOf(at []time.Duration) (gaps []float64) {
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, ms(at[i]-at[i-1]))
	}
	return gaps
}

// read are the times between tokens of a reader who reads at the pace of the SLO, in ms,
// and how many are above the bound: as the model has it.
func (o *Options) read(at []time.Duration) (gaps []float64, late int) {
	if len(at) == 0 {
		return nil, 0
	}
	read := at[0]
	for _, t := range at[1:] {
		next := max(t, read+o.OutputPace)
		if gaps = append(gaps, ms(next-read)); next-read > o.Bound {
			late++
		}
		read = next
	}
	return gaps, late
}

// figures of what was seen in some time; 0: the time is not known.
func (v *seen) figures(took time.Duration) (f Figures) {
	put(&f, "requests", &f.Requests, v.answered)
	f.times("ttft", &f.TTFT, v.ttft)
	f.times("ttot_end_tag", &f.TTOT, v.ttot)
	f.times("ttot_arrival", &f.Answer, v.answer)
	f.times("chat_answer", &f.ChatAnswer, v.chat)
	f.times("reason_answer", &f.ReasonAnswer, v.reason)
	f.times("output_itl", &f.ITL, v.itl)
	f.times("read_itl", &f.ReadITL, v.read)
	f.times("end_to_end", &f.EndToEnd, v.whole)
	if v.visible > 0 {
		put(&f, "late_share", &f.Late, float64(v.late)/float64(v.visible))
	}
	if n := float64(v.answered); n > 0 {
		put(&f, "first_answer_met_share", &f.FirstMet, float64(v.soon)/n)
		put(&f, "itl_met_share", &f.ITLMet, float64(v.paced)/n)
		put(&f, "goodput_share", &f.Goodput, float64(v.good)/n)
		if took > 0 {
			put(&f, "goodput_rps", &f.GoodputRate, float64(v.good)/took.Seconds())
		}
	}
	if n := float64(len(v.think)); n > 0 {
		put(&f, "think_tokens_mean", &f.ThinkMean, sum(v.think)/n)
		put(&f, "think_tokens_p95", &f.ThinkP95, think.PercentilesOf(slices.Clone(v.think)).P95)
		put(&f, "force_rate", &f.Forced, &think.Forced{
			Converged:    float64(v.forced[scheduler.Converged.String()]) / n,
			Overthinking: float64(v.forced[scheduler.Overthinking.String()]) / n,
			HardCap:      float64(v.forced[scheduler.HardCap.String()]) / n,
		})
	}
	return f
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// Series of the daemon that become figures of an arm, by the figure's name in JSON. What
// is counted is the difference over the arm's parts.
var counted = []struct {
	name, series string
	to           func(*Figures) *uint64
}{
	{"prefilled_tokens", `meridian_llama_prompt_tokens_total{source="computed"}`, func(f *Figures) *uint64 { return &f.Prefilled }},
	{"decoded_tokens", "meridian_llama_decoded_tokens_total", func(f *Figures) *uint64 { return &f.Decoded }},
	{"preempted", "meridian_llama_preempted_total", func(f *Figures) *uint64 { return &f.Preempted }},
	{"cold_bytes", "meridian_disagg_bytes_offloaded_total", func(f *Figures) *uint64 { return &f.ColdBytes }},
	{"evicted_think_complete", `meridian_block_manager_evictions_total{tier="ThinkComplete"}`, func(f *Figures) *uint64 { return &f.EvictedThought }},
	{"evicted_think_active", `meridian_block_manager_evictions_total{tier="ThinkActive"}`, func(f *Figures) *uint64 { return &f.EvictedThinking }},
	{"output_critical_eviction_events", "meridian_output_critical_eviction_total", func(f *Figures) *uint64 { return &f.EvictedOutput }},
}

// grown is by how much a series has grown over parts; ok is false where a daemon does not
// tell it.
func grown(parts []*part, name string) (n uint64, ok bool) {
	for _, p := range parts {
		after, told := p.after.sum(name)
		if !told {
			return 0, false
		}
		before, _ := p.before.sum(name) // a series may appear with its first event
		n += uint64(max(0, after-before))
	}
	return n, len(parts) > 0
}
