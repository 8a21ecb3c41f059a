package queue_test

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// TestScenarios plays testdata/*.txt: a command, ----, and what followed. testdata/README
// says what the commands mean; -rewrite writes the results.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, "README") {
			s := &scenario{}
			datadriven.RunTest(t, path, s.run)
		}
	})
}

type scenario struct {
	q      *queue.Queue
	step   queue.Step
	phases map[queue.ID]scheduler.Phase
	cached map[queue.ID]int
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "queue":
		c := queue.Config{Slots: 4, StepTokens: 100, Blocks: 100, BlockTokens: 10}
		for _, a := range d.CmdArgs {
			configure(t, &c, a)
		}
		s.cached = map[queue.ID]int{}
		if d.HasArg("cache") {
			c.Cached = func(id queue.ID) int { return s.cached[id] }
		}
		q, err := queue.New(c)
		if err != nil {
			return err.Error()
		}
		s.q, s.phases = q, map[queue.ID]scheduler.Phase{}
		return ""
	case "add":
		r := queue.Request{ID: queue.ID(num(t, d, "id")), Prompt: num(t, d, "prompt"), Thinks: d.HasArg("thinks"), Background: d.HasArg("background")}
		if d.HasArg("cached") {
			r.Cached = num(t, d, "cached")
		}
		if err := s.q.Add(at(t, d), r); err != nil {
			return err.Error()
		}
		if r.Thinks {
			s.phases[r.ID] = scheduler.ThinkDecode
		} else {
			s.phases[r.ID] = scheduler.OutputDecode
		}
		return ""
	case "cached": // from now on
		s.cached[queue.ID(num(t, d, "id"))] = num(t, d, "tokens")
		return ""
	case "answers": // from its next token on
		s.phases[queue.ID(num(t, d, "id"))] = scheduler.OutputDecode
		return ""
	case "last": // its next token is its last
		s.phases[queue.ID(num(t, d, "id"))] = scheduler.Complete
		return ""
	case "step":
		n := 1
		if d.HasArg("times") {
			n = num(t, d, "times")
		}
		out := ""
		for range n {
			out = s.one(at(t, d))
		}
		return out
	case "moved":
		s.q.Moved(at(t, d), queue.ID(num(t, d, "id")))
		return ""
	case "cancel":
		s.q.Cancel(at(t, d), queue.ID(num(t, d, "id")))
		return ""
	case "stats":
		return fmt.Sprintf("%+v\n", s.q.Stats())
	}
	t.Fatalf("%s: no such command", d.Cmd)
	return ""
}

// one runs a step, of which each request makes what it can.
func (s *scenario) one(now queue.Time) string {
	s.q.Schedule(now, &s.step)
	var b strings.Builder
	for _, m := range s.step.Preempt {
		fmt.Fprintf(&b, "preempt %d: %d blocks, %s\n", m.ID, m.Blocks, map[bool]string{true: "offload", false: "drop"}[m.Offload])
	}
	for _, m := range s.step.Load {
		fmt.Fprintf(&b, "load %d: %d blocks\n", m.ID, m.Blocks)
	}
	for _, c := range s.step.Prefill {
		fmt.Fprintf(&b, "prefill %d: %d\n", c.ID, c.Tokens)
	}
	if len(s.step.Decode) > 0 {
		fmt.Fprintf(&b, "decode %s\n", ids(s.step.Decode))
	}
	if len(s.step.Stuck) > 0 {
		fmt.Fprintf(&b, "stuck %s\n", ids(s.step.Stuck))
	}
	for _, c := range s.step.Prefill {
		s.q.Ran(now, c.ID, c.Tokens, 0, 0)
	}
	for _, id := range s.step.Decode {
		s.q.Ran(now, id, 0, 1, s.phases[id])
	}
	return b.String()
}

func ids(l []queue.ID) string {
	sort.Slice(l, func(i, j int) bool { return l[i] < l[j] })
	var s []string
	for _, id := range l {
		s = append(s, strconv.Itoa(int(id)))
	}
	return strings.Join(s, " ")
}

func configure(t *testing.T, c *queue.Config, a datadriven.CmdArg) {
	v := ""
	if len(a.Vals) > 0 {
		v = a.Vals[0]
	}
	n, _ := strconv.Atoi(v)
	d, _ := time.ParseDuration(v)
	switch a.Key {
	case "policy":
		c.Policy = queue.Policy(v)
	case "slots":
		c.Slots = n
	case "tokens":
		c.StepTokens = n
	case "blocks":
		c.Blocks = n
	case "requests":
		c.Requests = n
	case "offload":
		c.Offload = true
	case "partial":
		c.Offload, c.Partial = true, true
	case "cache":
	case "headroom":
		c.Headroom, _ = strconv.ParseFloat(v, 64)
	case "multiplier":
		c.ThinkMultiplier, _ = strconv.ParseFloat(v, 64)
	case "aging":
		c.Aging = d
	case "buffer":
		c.Buffer = d
	case "residency":
		c.MinResidency = d
	case "pace":
		c.OutputPace = d
	default:
		t.Fatalf("%s: no such setting", a.Key)
	}
}

func num(t *testing.T, d *datadriven.TestData, key string) (n int) {
	d.ScanArgs(t, key, &n)
	return n
}

func at(t *testing.T, d *datadriven.TestData) queue.Time {
	var s string
	d.ScanArgs(t, "at", &s)
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return queue.Time(v)
}
