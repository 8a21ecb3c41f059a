package think

import (
	"fmt"
	"math"
	"strings"
)

// verdictLoad is the load that arms are judged at: the highest of the usual ones that stock
// serves for ever.
const verdictLoad = 0.95

// Verdict is what the run says about the arms.
type Verdict struct {
	At    string   `json:"at"` // which load
	Seeds int      `json:"seeds"`
	Apart []Pair   `json:"pairs"` // of policies, by each figure
	Text  []string `json:"text"`
}

// Pair is two arms that are compared with each other.
type Pair struct {
	Base string `json:"base"`
	Arm  string `json:"arm"`
	Change
}

// judge compares the arms at the load of the verdict; nil where nothing was played there.
func (r *Report) judge() *Verdict {
	l := r.judged()
	if l == nil || len(l.Arms) == 0 {
		return nil
	}
	v := &Verdict{At: "load " + l.name(), Seeds: l.Seeds}
	if l.Load == 0 {
		v.At = fmt.Sprintf("%.4g requests a second", l.Rate)
	}
	switch {
	case l.Load > 0 && l.Load != verdictLoad:
		v.say("The verdict is at %s, as load %v was not played.", v.At, verdictLoad)
	case l.Load == 0:
		v.say("The verdict is at %s, which may be any load: none was asked for.", v.At)
	}
	if l.Seeds < 2 {
		v.say("One seed has no interval: this run cannot tell any arm from another.")
		return v
	}
	for i := range l.Arms {
		for k := range l.Arms[:i] {
			for _, c := range changes(l.Arms[k].Seeds, l.Arms[i].Seeds) {
				v.Apart = append(v.Apart, Pair{l.Arms[k].Name, l.Arms[i].Name, c})
			}
		}
	}
	v.against(l)
	v.alike(l)
	v.say("Each comparison is at 95 %%: of those where nothing differs, one in twenty says better or worse all the same.")
	return v
}

// judged is the load of the verdict: the nearest to verdictLoad, or the rate that was given.
func (r *Report) judged() (best *LoadReport) {
	for i := range r.Loads {
		l := &r.Loads[i]
		if best == nil || math.Abs(l.Load-verdictLoad) < math.Abs(best.Load-verdictLoad) {
			best = l
		}
	}
	return best
}

func (v *Verdict) say(format string, args ...any) {
	v.Text = append(v.Text, fmt.Sprintf(format, args...))
}

// against says what each arm is better and worse in than the first.
func (v *Verdict) against(l *LoadReport) {
	for _, a := range l.Arms[1:] {
		by := map[string][]string{}
		for _, c := range a.Changes {
			text := words[c.Figure]
			if c.Says == Better || c.Says == Worse {
				text += " " + c.text()
			}
			by[c.Says] = append(by[c.Says], text)
		}
		var parts []string
		for _, says := range []string{Better, Worse, Same} {
			if len(by[says]) > 0 {
				parts = append(parts, says+" in "+strings.Join(by[says], ", "))
			}
		}
		if len(by[Unclear]) > 0 {
			parts = append(parts, "the run cannot tell in "+strings.Join(by[Unclear], ", "))
		}
		v.say("%s against %s at %s: %s.", a.Name, l.Arms[0].Name, v.At, strings.Join(parts, "; "))
	}
}

// words are the judged figures for people.
var words = map[string]string{
	"chat_answer_p95_ms": "chat p95", "reason_answer_p95_ms": "thinkers' p95", "ttft_p95_ms": "TTFT p95", "ttot_end_tag_p95_ms": "TTOT p95",
	"end_to_end_p95_ms": "end to end p95", "late_share": "late tokens", "goodput_share": "goodput",
}

// alike names the pairs, but for those with the first arm, that did the same in all seeds,
// those that no figure tells apart, and those that the first answers do not.
func (v *Verdict) alike(l *LoadReport) {
	var same, whole, answers []string
	for i := range l.Arms {
		for k := 1; k < i; k++ {
			equal, open, first := 0, 0, 0
			for _, p := range v.Apart {
				if p.Base != l.Arms[k].Name || p.Arm != l.Arms[i].Name || p.Says == Better || p.Says == Worse {
					continue
				}
				open++
				if p.Says == Same || p.Says == Absent {
					equal++
				}
				if strings.HasSuffix(p.Figure, "answer_p95_ms") {
					first++
				}
			}
			name := l.Arms[k].Name + " and " + l.Arms[i].Name
			switch {
			case equal == len(judged):
				same = append(same, name)
			case open == len(judged):
				whole = append(whole, name)
			case first == 2:
				answers = append(answers, name)
			}
		}
	}
	for _, x := range []struct {
		what  string
		pairs []string
	}{
		{"At this load these had nothing to decide, and have the same figures in every seed", same},
		{fmt.Sprintf("This run of %d seeds cannot tell apart at all", v.Seeds), whole},
		{"By first answers, chat's and thinkers', it cannot tell apart", answers},
	} {
		if len(x.pairs) > 0 {
			v.say("%s: %s.", x.what, strings.Join(x.pairs, "; "))
		}
	}
}
