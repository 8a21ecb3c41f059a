package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/scheduler"
)

// TestScenarios plays testdata/*.txt: a command, ----, and what followed.
// testdata/README says what the commands mean; -rewrite writes the results.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, "README") || strings.Contains(path, "fuzz") {
			return
		}
		s := &scenario{}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	models []scheduler.Model
	rules  *scheduler.Rules
	core   *scheduler.Core
	ready  scheduler.Ready
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "model":
		s.models = append(s.models, scheduler.Model{
			Name:          text(d, "name"),
			Start:         ids(t, text(d, "start")),
			End:           ids(t, text(d, "end")),
			EOS:           ids(t, text(d, "eos")),
			MaxThink:      uint32(number(t, text(d, "max"))),
			MinThink:      uint32(number(t, text(d, "min"))),
			KeepsThinking: d.HasArg("keeps"),
		})
		return ""
	case "core":
		models, err := scheduler.NewModels(s.models)
		if err != nil {
			s.models = nil
			return "error: " + err.Error()
		}
		s.core = scheduler.New(scheduler.Config{
			Models:           models,
			Signals:          s.rules,
			MaxThink:         uint32(number(t, text(d, "max"))),
			OffloadThreshold: number(t, text(d, "threshold")),
			OffloadAfter:     instant(t, text(d, "after")),
			MaxRequests:      number(t, text(d, "requests")),
			ReapAfter:        instant(t, text(d, "reap")),
		})
		return ""
	case "signals":
		s.rules = nil
		c := scheduler.DefaultSignalConfig()
		for _, a := range d.CmdArgs {
			set(t, &c, a.Key, a.Vals[0])
		}
		var err error
		if s.rules, err = scheduler.NewRules(c); err != nil {
			return "error: " + err.Error()
		}
		return ""
	case "replay":
		return s.replay(t, d)
	case "step":
		var in []scheduler.Input
		for _, line := range strings.Split(d.Input, "\n") {
			in = append(in, input(t, strings.Fields(line)))
		}
		s.core.Step(instant(t, text(d, "at")), in)
		return s.follows()
	case "tick":
		s.core.Tick(instant(t, text(d, "at")))
		return s.follows()
	case "part":
		return s.part(t, d)
	case "stats":
		return stats(s.core.Stats())
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

// set changes one field of a signal configuration.
func set(t *testing.T, c *scheduler.SignalConfig, key, value string) {
	t.Helper()
	x := decimal(t, value)
	switch key {
	case "alpha":
		c.Alpha = x
	case "variance":
		c.VarianceThreshold = x
	case "p_end":
		c.PEndLevel = x
	case "eat":
		c.EATLevel = x
	case "transition":
		c.TransitionEntropy = x
	case "indicator":
		c.RPDIThreshold = x
	case "turning":
		c.TransitionLevel = x
	case "lambda":
		c.RPDILambda = x
	case "interval":
		c.ProbeInterval = uint32(number(t, value))
	case "min":
		c.MinThink = uint32(number(t, value))
	case "max":
		c.MaxThink = uint32(number(t, value))
	default:
		t.Fatalf("no signal setting %q", key)
	}
}

// replay steps one request through many probes, and renders the events.
func (s *scenario) replay(t *testing.T, d *datadriven.TestData) string {
	id := scheduler.ID(number(t, text(d, "id")))
	tokens := make([]int32, number(t, text(d, "tokens")))
	for i := range tokens {
		tokens[i] = int32(number(t, text(d, "token")))
	}
	var lines []string
	for range number(t, text(d, "probes")) {
		in := []scheduler.Input{{Kind: scheduler.Tokens, ID: id, Tokens: tokens}}
		for _, line := range strings.Split(d.Input, "\n") {
			in = append(in, input(t, append([]string{"signal", text(d, "id")}, strings.Fields(line)...)))
		}
		s.core.Step(instant(t, text(d, "at")), in)
		if got := s.follows(); !strings.HasPrefix(got, "next: ") {
			lines = append(lines, got[:strings.Index(got, "next: ")])
		}
	}
	return strings.Join(lines, "") + fmt.Sprintf("%d tokens thought in all\n", s.core.Stats().ThinkTokens)
}

// part renders what runs of a request's tokens are: lines of a position and a number.
func (s *scenario) part(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	for _, line := range strings.Split(d.Input, "\n") {
		f := strings.Fields(line)
		p, ok := s.core.PartOf(scheduler.ID(number(t, text(d, "id"))), uint32(number(t, f[0])), uint32(number(t, f[1])))
		if !ok {
			return "not tracked\n"
		}
		fmt.Fprintf(&b, "%s: %s\n", line, [...]string{"rest", "thinking", "thought"}[p])
	}
	return b.String()
}

// follows renders what Ready hands out.
func (s *scenario) follows() string {
	s.core.Ready(&s.ready)
	var b strings.Builder
	for _, e := range s.ready.Events {
		fmt.Fprintf(&b, "%d %s", e.ID, e.Kind)
		if e.Reason != scheduler.NoReason {
			fmt.Fprintf(&b, " %s", e.Reason)
		}
		switch e.Kind {
		case scheduler.Offload:
			fmt.Fprintf(&b, " blocks=%d", e.Blocks)
		case scheduler.EnterThink, scheduler.Refused:
		default:
			fmt.Fprintf(&b, " used=%d", e.Used)
		}
		if e.Pos > 0 {
			fmt.Fprintf(&b, " pos=%d", e.Pos)
		}
		if e.Inject != nil {
			fmt.Fprintf(&b, " inject=%v", e.Inject)
		}
		b.WriteByte('\n')
	}
	next := "never"
	if s.ready.Next != scheduler.Never {
		next = time.Duration(s.ready.Next).String()
	}
	fmt.Fprintf(&b, "next: %s\n", next)
	return b.String()
}

func stats(s scheduler.Stats) string {
	var b strings.Builder
	line := func(name string, v uint64) {
		if v > 0 {
			fmt.Fprintf(&b, "%s: %d\n", name, v)
		}
	}
	line("tracked", s.Tracked())
	for i, v := range s.Phases {
		line("phase "+scheduler.Phase(i).String(), v)
	}
	for i, v := range s.Events {
		line("event "+scheduler.EventKind(i).String(), v)
	}
	for i, v := range s.Reason {
		line("reason "+scheduler.Reason(i).String(), v)
	}
	line("arrived", s.Arrived)
	line("aborted", s.Aborted)
	line("untracked", s.Untracked)
	line("after end", s.AfterEnd)
	line("think tokens", s.ThinkTokens)
	line("output tokens", s.OutputTokens)
	line("vocab fallback", s.VocabFallback)
	line("unknown model", s.UnknownModel)
	line("signals", s.Signals)
	line("signals idle", s.SignalsIdle)
	line("signals bad", s.SignalsBad)
	line("offloaded", s.Offloaded)
	line("kept", s.Kept)
	line("dropped", s.Dropped)
	line("think requests", s.Think.Count())
	line("think sum", s.Think.Sum)
	return b.String()
}

// input reads one line of a step.
func input(t *testing.T, f []string) scheduler.Input {
	t.Helper()
	if len(f) < 2 {
		t.Fatalf("an input needs a kind and an id: %q", f)
	}
	x := scheduler.Input{ID: scheduler.ID(number(t, f[1]))}
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "arrive":
		x.Kind, x.Model, x.Tokens = scheduler.Arrive, arg(2), ids(t, arg(3))
		for _, a := range f[min(3, len(f)):] {
			if v, ok := strings.CutPrefix(a, "decoded="); ok {
				x.Decoded = ids(t, v)
			}
			if v, ok := strings.CutPrefix(a, "first="); ok {
				x.First = uint32(number(t, v))
			}
		}
	case "tokens":
		x.Kind, x.Tokens = scheduler.Tokens, ids(t, arg(2))
	case "kv":
		x.Kind, x.Blocks, x.Think = scheduler.KV, uint32(number(t, arg(2))), arg(3) == "think"
	case "signal":
		x.Kind = scheduler.Probed
		x.Signal = scheduler.Signal{Name: signalName(t, arg(2)), Value: float32(decimal(t, arg(3)))}
	case "abort":
		x.Kind = scheduler.Abort
	case "done":
		x.Kind = scheduler.Done
	default:
		t.Fatalf("unknown input %q", f[0])
	}
	return x
}

func text(d *datadriven.TestData, key string) string {
	if a, ok := d.Arg(key); ok && len(a.Vals) > 0 {
		return a.Vals[0]
	}
	return ""
}

// ids reads "1+2+3".
func ids(t *testing.T, s string) []int32 {
	t.Helper()
	var out []int32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == '+' }) {
		out = append(out, int32(number(t, f)))
	}
	return out
}

func signalName(t *testing.T, s string) scheduler.SignalName {
	t.Helper()
	for n := scheduler.SignalName(0); n < 8; n++ {
		if n.String() == s {
			return n
		}
	}
	t.Fatalf("no signal %q", s)
	return 0
}

func decimal(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func number(t *testing.T, s string) int {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func instant(t *testing.T, s string) scheduler.Time {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.Time(d)
}
