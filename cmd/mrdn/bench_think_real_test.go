package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"meridian/bench/think"
	"meridian/bench/think/real"
)

// What cannot be is refused before a node is started, and a part that is missing is named
// with what installs it.
func TestRealNodesOfBenchThinkAreCheckedFirst(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir()) // no source tree whose tests have fetched the parts
	s := newShell(t, nil)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"--mode", "real-vllm"}, exitUsage, `--mode: "real-vllm" is neither synthetic-replay nor real-llamacpp`},
		{[]string{"--policies", "fcfs"}, exitUsage, "--policies is not read with --mode synthetic-replay"},
		{[]string{"--mode", "real-llamacpp", "--kv-tokens", "9"}, exitUsage, "--kv-tokens is not read with --mode real-llamacpp"},
		{[]string{"--mode", "real-llamacpp", "--seed", "1,2"}, exitUsage, "--seed 1,2: real nodes take one"},
		{[]string{"--mode", "real-llamacpp", "--policies", ""}, exitUsage, "--policies: it names none"},
		{[]string{"--mode", "real-llamacpp", "--policies", "fcfs,sideways"}, exitUsage, `--policies: "sideways"`},
		{[]string{"--mode", "real-llamacpp", "--front", "here"}, exitUsage, `--front "here": want NAME=URL`},
		{[]string{"--mode", "real-llamacpp", "--front", "a=http://x", "--interactive", "0"}, exitUsage, "--interactive: 0: at least 1"},
		{[]string{"--mode", "real-llamacpp", "--interactive", "0", "--background", "0"}, exitUsage, "--interactive: 0: at least 1"},
		{[]string{"--mode", "real-llamacpp", "--background", "-1"}, exitUsage, "--background: -1: at least 0"},
		{[]string{"--mode", "real-llamacpp", "--requests", "0"}, exitUsage, "--requests: 0: at least 1"},
		{[]string{"--mode", "real-llamacpp", "--rounds", "0"}, exitUsage, "--rounds: 0: at least 1"},
		{[]string{"--mode", "real-llamacpp", "--front", "a=http://x", "--interactive", "60"}, exitUsage, "60 interactive and 6 background clients"},
		{[]string{"--mode", "real-llamacpp", "--front", "a=http://x", "--late", "1ms"}, exitUsage, "a bound of 1ms"},
		{[]string{"--mode", "real-llamacpp", "--slots", "0"}, exitUsage, `--slots: "0" must be`},
		{[]string{"--mode", "real-llamacpp"}, exitFailed, "no llama-server and model in "},
		{[]string{"--mode", "real-llamacpp"}, exitFailed, "mrdn llama up --fetch does it"},
		{[]string{"--mode", "real-llamacpp", "--front", "a=" + gone.URL}, exitFailed, "the front of a, " + gone.URL},
	} {
		got := s.run(t, append([]string{"bench", "think"}, c.args...)...)
		if got.exit != c.exit || !strings.Contains(got.err, c.want) || strings.Contains(got.err, "starting fcfs") {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, got.exit, got.err, c.exit, c.want)
		}
	}
}

// ^C in the first round leaves a report that says that it has no figure, and how far it was.
func TestRealNodesThatAreInterruptedInTheFirstRoundLeaveAReport(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"data":[{"id":"m"}]}`))
			return
		}
		if asked.Add(1) == 1 { // the probe
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"))
			return
		}
		stop()
		<-ctx.Done()
	}))
	defer front.Close()
	got := newShell(t, nil).runIn(ctx, "bench", "think", "--mode", "real-llamacpp", "--front", "a="+front.URL,
		"--reasoning-ratio", "0", "--interactive", "1", "--background", "0", "--requests", "1", "--rounds", "2", "--out", "out")
	const want = "PARTIAL: no round of 2 was finished, so there is no figure; left out is what was answered in round 1: 0 of 1 requests of a, then: it was interrupted"
	said := strings.Join(strings.Fields(got.out), " ")
	if got.exit != exitFailed || !strings.HasPrefix(said, want) || !strings.Contains(got.err, "error: interrupted before the end") {
		t.Errorf("exit %d, %s\n%s", got.exit, got.err, got.out)
	}
	b, err := os.ReadFile("out/report.md")
	if err != nil || !strings.HasPrefix(strings.TrimSpace(string(b)), want) {
		t.Errorf("%v: %s", err, b)
	}
	if b, err := os.ReadFile("out/report.json"); err != nil || !strings.Contains(string(b), `"left_out"`) {
		t.Errorf("%v: %s", err, b)
	}
}

// The help has the defaults of both modes, where they differ.
func TestTheHelpOfBenchThinkHasTheDefaultsOfBothModes(t *testing.T) {
	m, r := think.Defaults(), real.Defaults()
	got := newShell(t, nil).run(t, "bench", "think", "--help")
	said := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{
		fmt.Sprintf("requests of a seed (default %d; real: %d of each client)", m.Requests, r.Requests),
		fmt.Sprintf("(default %d; real: one for each client)", m.Slots),
		fmt.Sprintf("(default %v; real: %v)", m.FirstAnswer, r.FirstAnswer),
		fmt.Sprintf("(default %v; real: %v)", m.ThinkPace, r.ThinkPace),
		fmt.Sprintf("(default %v; real: %v)", m.OutputPace, r.OutputPace),
		fmt.Sprintf("(default %v; real: %v)", m.Bound, r.Bound),
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it has no %q:\n%s", want, got.out)
		}
	}
	if m.Workload.ReasoningRatio != r.Workload.ReasoningRatio {
		t.Error("the flag's default is of one mode only")
	}
}
