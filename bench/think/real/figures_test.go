package real

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"meridian/bench/think"
)

func at(all ...int) (d []time.Duration) {
	for _, v := range all {
		d = append(d, time.Duration(v)*time.Millisecond)
	}
	return d
}

func TestFiguresOfSamples(t *testing.T) {
	o := Defaults()
	o.FirstAnswer, o.ThinkPace, o.OutputPace, o.Bound = 100*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	chat := &sample{visible: at(90, 100, 300), done: 310 * time.Millisecond}                                                                                   // its second gap is late: 300 − 140 is above 100
	thinker := &sample{request: request{think: 2}, thoughts: at(50, 60), visible: at(115, 165), done: 170 * time.Millisecond, thinking: 2, forced: "hard_cap"} // in time: 100 + 2 × 10
	failed := &sample{err: errors.New("refused"), visible: at(1, 2)}
	empty := &sample{done: 5 * time.Millisecond}
	f := o.see([]*sample{chat, thinker, failed, empty}).figures(2 * time.Second)
	want := Figures{have: map[string]bool{}}
	for _, name := range []string{"requests", "ttft", "ttot_end_tag", "ttot_arrival", "chat_answer", "reason_answer", "output_itl", "read_itl", "end_to_end", "late_share",
		"first_answer_met_share", "itl_met_share", "goodput_share", "goodput_rps", "think_tokens_mean", "think_tokens_p95", "force_rate"} {
		want.have[name] = true
	}
	all := func(p50, p95 float64) think.Percentiles { return think.Percentiles{P50: p50, P95: p95, P99: p95} }
	want.Requests = 3
	want.TTFT, want.Answer, want.ChatAnswer, want.ReasonAnswer = all(50, 90), all(90, 115), all(90, 90), all(115, 115)
	want.TTOT, want.ITL, want.ReadITL, want.EndToEnd = all(55, 55), all(50, 200), all(50, 160), all(170, 310)
	want.Late, want.FirstMet, want.ITLMet, want.Goodput, want.GoodputRate = 1.0/3, 2.0/3, 1.0/3, 1.0/3, 0.5
	want.ThinkMean, want.ThinkP95, want.Forced = 2, 2, &think.Forced{HardCap: 1}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%+v, want %+v", f, want)
	}
	if b, err := (Figures{}).MarshalJSON(); err != nil || string(b) != "{}" {
		t.Errorf("nothing is %s, %v", b, err)
	}
}

func TestChangesArePairedByRound(t *testing.T) {
	o := Defaults()
	gap := func(gap int) *part {
		return &part{samples: [2][]*sample{{{visible: at(10, 10+gap)}}, {}}}
	}
	gone := &part{samples: [2][]*sample{{{err: errors.New("refused")}}, {}}}
	all := o.changes([]*part{gap(100), gap(40), gap(100)}, []*part{gap(50), gap(20), gone})
	for _, c := range all {
		if c.Figure == "interactive output_itl p95" {
			if c.Rounds != 2 || c.Change != (think.Interval{Mean: -0.5, Low: -0.5, High: -0.5}) {
				t.Errorf("%+v", c)
			}
			return
		}
	}
	t.Errorf("no change of output_itl: %+v", all)
}

func TestAStormIsPooledOverRounds(t *testing.T) {
	parts := []*part{
		{alone: &sample{visible: at(0, 10, 20)}, storm: &sample{visible: at(0, 10, 500)}, prompts: []*sample{{prompt: 700, done: time.Second}, {prompt: 600, done: 2 * time.Second}, {prompt: 9, err: errors.New("refused")}}},
		{alone: &sample{err: errors.New("refused")}, storm: &sample{visible: at(0, 30)}},
	}
	r := stallOf(parts)
	if r.Failed != 2 || *r.Answer != (think.Percentiles{P50: 1000, P95: 2000, P99: 2000}) || r.Prompts != 2 || r.Tokens != 1300 || r.Longest != 490 || *r.Alone != (think.Percentiles{P50: 10, P95: 10, P99: 10}) || *r.Storm != (think.Percentiles{P50: 30, P95: 490, P99: 490}) {
		t.Errorf("%+v, %+v, %+v", r, r.Alone, r.Storm)
	}
}

func TestDifferencesOfSeries(t *testing.T) {
	before := parseSeries("# HELP a text\na{x=\"1 2\"} 3\nb 1\nbroken\nc x\n")
	after := parseSeries("a{x=\"1 2\"} 5\na{x=\"3\"} 1.5e1\nb 1\nab 9\n")
	if n, ok := grown([]*part{{before: before, after: after}, {before: after, after: after}}, "a"); n != 17 || !ok {
		t.Errorf("a has grown by %d, %t", n, ok)
	}
	if n, ok := grown([]*part{{before: before, after: after}}, "b"); n != 0 || !ok {
		t.Errorf("b has grown by %d, %t", n, ok)
	}
	for _, parts := range [][]*part{nil, {{before: before, after: after}, {}}} {
		if n, ok := grown(parts, "a"); ok {
			t.Errorf("of %d parts, not all of which tell a, it has grown by %d", len(parts), n)
		}
	}
}

// The same seed asks every arm the same; another seed, round, client or number does not.
func TestTheWorkloadIsTheSeeds(t *testing.T) {
	o, other := Defaults(), Defaults()
	other.Seed = 2
	q := o.draw(background, 1, 2, 3)
	if q.prompt != o.draw(background, 1, 2, 3).prompt || !q.flex || o.draw(interactive, 1, 2, 3).flex {
		t.Errorf("%+v", q)
	}
	for _, p := range []request{other.draw(background, 1, 2, 3), o.draw(background, 2, 2, 3), o.draw(background, 1, 3, 3), o.draw(background, 1, 2, 4), o.draw(interactive, 1, 2, 3)} {
		if p.prompt == q.prompt {
			t.Errorf("%+v", p)
		}
	}
	thinks := 0
	for i := range 1000 {
		q := o.draw(background, 0, 0, i)
		if q.think > 0 {
			thinks++
		}
		if n := len(strings.Fields(q.prompt)); q.think > 0 && (n < o.Workload.Prompt.Least || n > o.Workload.Prompt.Most+9) {
			t.Errorf("a prompt of %d words", n)
		}
	}
	if thinks < 350 || thinks > 450 {
		t.Errorf("%d of 1,000 think, want 400 or so", thinks)
	}
	for round := range 4 {
		if got := order(3, round); got[0] != round%3 || len(got) != 3 {
			t.Errorf("round %d: %v", round, got)
		}
	}
}
