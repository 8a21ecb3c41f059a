package real

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/bench/think"
)

// What each request asked for is what the report counts, in every arm.
func TestTheReportCountsWhatWasAsked(t *testing.T) {
	o := small(t)
	rep, err := Run(t.Context(), o)
	if err := errors.Join(err, rep.Err()); err != nil {
		t.Fatal(err)
	}
	budgets, thinkers := 0, 0
	for round := range o.Rounds {
		for client := range o.Background {
			for i := range o.Requests {
				q := o.draw(background, round, client, i)
				budgets, thinkers = budgets+q.think, thinkers+1
			}
		}
	}
	if rep.Done != 2 || rep.Partial != "" || len(rep.Arms) != 2 || rep.Arms[1].Name != "fcfs#2" {
		t.Fatalf("%d rounds, %q, arms %+v", rep.Done, rep.Partial, rep.Arms)
	}
	for _, a := range rep.Arms {
		f := a.Background.Figures
		if a.Interactive.Figures.Requests != 4 || f.Requests != thinkers || a.Interactive.Figures.Forced != nil {
			t.Errorf("%s: %+v, %+v", a.Name, a.Interactive, a.Background)
		}
		if want := float64(budgets) / float64(thinkers); f.ThinkMean != want || f.Forced == nil || *f.Forced != (think.Forced{HardCap: 1}) {
			t.Errorf("%s: %v thinking tokens, budgets of %v on average; forced %+v", a.Name, f.ThinkMean, want, f.Forced)
		}
		for _, name := range []string{"ttft", "ttot_arrival", "chat_answer", "output_itl", "read_itl", "end_to_end", "late_share", "goodput_share", "goodput_rps"} {
			if !a.Interactive.Figures.have[name] || !a.Interactive.ByRound[1].have[name] {
				t.Errorf("%s: the interactive requests have no %s", a.Name, name)
			}
		}
		if !f.have["reason_answer"] || !f.have["ttot_end_tag"] || f.have["chat_answer"] {
			t.Errorf("%s: the background, all of which thinks, has %v", a.Name, f.have)
		}
		if !a.Daemon.have["prefilled_tokens"] || a.Daemon.Prefilled == 0 || a.Daemon.Decoded == 0 || !a.Daemon.have["pulled_bytes"] || !a.Daemon.have["evicted_think_complete"] || !a.Daemon.have["preempted"] || a.Held == nil {
			t.Errorf("%s: the daemon counts %+v", a.Name, a.Daemon)
		}
		if s := a.Stall; s.Alone == nil || s.Storm == nil || s.Prompts != 4 || s.Answer == nil || s.Failed != 0 {
			t.Errorf("%s: storm %+v", a.Name, s)
		}
	}
	if len(rep.Arms[0].Changes) != 0 || len(rep.Arms[1].Changes) != len(compared) || rep.Arms[1].Changes[0].Rounds != 2 {
		t.Errorf("changes %+v", rep.Arms[1].Changes)
	}
	if rep.Equal.Answers != 12 || rep.Equal.Equal != 12 || rep.Equal.Lengths != 12 {
		t.Errorf("the same node twice: %+v", rep.Equal)
	}
}

// What is not measured is named, and is nowhere 0.
func TestWhatIsNotMeasuredIsNamedAndLeftOut(t *testing.T) {
	o := small(t)
	o.Arms, o.Rounds, o.Storm.Answer = o.Arms[:1], 1, 0
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range rep.Absent {
		if strings.Contains(string(b), `"`+a.Name+`":`) || a.Why == "" || !strings.Contains(rep.Markdown(), "no "+a.Name+": "+a.Why) {
			t.Errorf("%+v is in the report, or not told:\n%s", a, b)
		}
	}
	for _, want := range []string{"peak_blocks", "peak_waiting"} {
		if !strings.Contains(string(b), `{"name":"`+want+`"`) {
			t.Errorf("%s is not named as absent", want)
		}
	}
	head, rows := rep.Rows()
	for _, row := range rows {
		if len(row) != len(head) || strings.HasPrefix(row[0], "storm") && row[1] != "not measured" {
			t.Errorf("%q", row)
		}
	}
}

// sse is a front that answers by f, but for the list of its models.
func sse(t *testing.T, f func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"data":[{"id":"m"}]}`))
			return
		}
		f(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: [DONE]\n\n"))
}

// last is an answer whose last event has something in it.
func last(member string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {" + member + "}\n\ndata: [DONE]\n\n"))
	}
}

func usage(member string) func(http.ResponseWriter, *http.Request) {
	return last(`"usage":{` + member + `}`)
}

// fronts are arms of nodes that run already.
func fronts(t *testing.T, urls ...string) Options {
	o := small(t)
	o.Arms, o.Workload.ReasoningRatio, o.Rounds, o.Storm.Answer = nil, 0, 1, 0
	for i, url := range urls {
		o.Arms = append(o.Arms, Arm{Name: string(rune('a' + i)), Front: url})
	}
	return o
}

func TestAFrontOfWhichOnlyTheAnswersAreKnown(t *testing.T) {
	var tiers atomic.Int64
	url := sse(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if json.NewDecoder(r.Body).Decode(&body) == nil && body["service_tier"] != nil {
			tiers.Add(1)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":{"message":"it is not supported","type":"invalid_request_error","param":"service_tier"}}`))
			return
		}
		answer(w)
	})
	rep, err := Run(t.Context(), fronts(t, url))
	if err != nil {
		t.Fatal(err)
	}
	a := rep.Arms[0]
	if a.Tiers || tiers.Load() != 1 || a.Interactive.Figures.Requests != 2 || a.Background.Figures.Requests != 4 {
		t.Errorf("%d requests with a tier were refused; %+v", tiers.Load(), a)
	}
	if len(a.Daemon.have) != 1 || !strings.Contains(rep.Note(), "no prefilled_tokens: ") || !strings.Contains(rep.Note(), "The node of a has no tiers") {
		t.Errorf("%+v\n%s", a.Daemon, rep.Note())
	}
}

// A front that fails, lies or never answers costs its own requests, no more than the
// round's time, and is told.
func TestRequestsWithoutAnAnswerAreCountedAndTold(t *testing.T) {
	for want, f := range map[string]func(w http.ResponseWriter, r *http.Request){
		"2 interactive requests failed, the first one so: ": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of memory", http.StatusInternalServerError)
		},
		"is not what it should be": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {lies\n\n"))
		},
		"the stream ended before [DONE]": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"))
		},
		"it sends more than it was asked for: ": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")); err != nil {
					return
				}
			}
		},
		"bytes of at most 8 tokens": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("a", 900_000) + "\"}}]}\n\n")
			for r.Context().Err() == nil {
				if _, err := w.Write(event); err != nil {
					return
				}
			}
		},
		"without a token and without a reason to finish": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: [DONE]\n\n"))
		},
		"reasoning_tokens is 9223372036854775807, from 0 to 8 of": usage(`"completion_tokens_details":{"reasoning_tokens":9223372036854775807}`),
		"completion_tokens is 9, from 0 to 8 of":                  usage(`"completion_tokens":9`),
		"completion_tokens is -1, from 0 to 8 of":                 usage(`"completion_tokens":-1`),
		"prompt_tokens is 9223372036854775807, from 0 to 65":      usage(`"prompt_tokens":9223372036854775807`),
		"pulled_bytes is 18446744073709551615: at most":           last(`"meridian":{"pulled_bytes":18446744073709551615}`),
		"forced has 900000 bytes: at most 512": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"meridian\":{\"forced\":\"" + strings.Repeat("a", 900_000) + "\"}}\n\ndata: [DONE]\n\n"))
		},
		strings.Repeat("a", maxSaid) + "…": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("{\"error\":{\"message\":\"" + strings.Repeat("a", 60_000) + "\"}}"))
		},
		"2 interactive requests were not answered in their round's time": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		var n atomic.Int64
		o := fronts(t, sse(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 { // the probe
				answer(w)
				return
			}
			_, _ = w.(http.Flusher), r.Body.Close()
			f(w, r)
		}))
		if o.Within = time.Minute; strings.Contains(want, "in their round's time") {
			o.Within = time.Second
		}
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := rep.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if c := rep.Arms[0].Background; c.Figures.Requests != 0 || c.Failed+c.Unfinished != 4 || len(c.Figures.have) != 1 {
			t.Errorf("%+v", c)
		}
	}
}

// What a server says is for people without what a terminal obeys, and as it is in JSON.
func TestWhatAServerSaysCannotSteerATerminal(t *testing.T) {
	const bad = "m\x1b[2J\x9b\nlies"
	r := Report{Model: bad, Server: bad, Partial: bad, Arms: []ArmReport{{Arm: Arm{Name: "a"}, Tiers: true, Background: Class{Failed: 1, Error: bad}}}}
	for _, text := range []string{r.Note(), r.Markdown()} {
		if strings.ContainsAny(text, "\x1b\u009b") || strings.Contains(text, "\x9b") || strings.Contains(text, "\nlies") || strings.Count(text, "m?[2J\uFFFD lies") != 4 {
			t.Errorf("%q", text)
		}
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"model":"m\u001b[2J`) {
		t.Errorf("%s, %v", b, err)
	}
}

// A model that ends at once has said so: that is an answer, of no token.
func TestAnAnswerOfNoTokenHasAReasonToFinish(t *testing.T) {
	url := sse(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	})
	rep, err := Run(t.Context(), fronts(t, url))
	if err := errors.Join(err, rep.Err()); err != nil {
		t.Fatal(err)
	}
	if f := rep.Arms[0].Interactive.Figures; f.Requests != 2 || f.have["ttft"] || f.Goodput != 0 {
		t.Errorf("%+v", f)
	}
}

func TestAFrontThatIsNoneIsAnErrorBeforeAnythingIsPlayed(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	rep, err := Run(t.Context(), fronts(t, srv.URL))
	if err == nil || !strings.Contains(err.Error(), "the front of a, "+srv.URL) || len(rep.Arms) != 0 {
		t.Errorf("%v, %+v", err, rep)
	}
}

// A run that is stopped has the rounds that every arm has played, says so, and leaves no
// process and no file.
func TestAStoppedRunReportsTheWholeRoundsAndEndsItsNodes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := small(t)
	o.Rounds = 50
	var nodes atomic.Int64
	o.Progress = func(s string) {
		if strings.HasPrefix(s, "starting") {
			nodes.Add(1)
		}
		if s == "round 2 of 50: fcfs" { // the other arm has its turn first in that round
			stop()
		}
	}
	rep, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(rep.Partial, "1 of 50 rounds were played by every arm; left out is what was answered in round 2: 0 of 6 requests of fcfs, 6 of 6 requests of fcfs#2, then: ") || !strings.HasPrefix(rep.Note(), "PARTIAL: ") {
		t.Fatalf("%v, %q", err, rep.Partial)
	}
	if len(rep.Arms) != 2 || rep.Arms[0].Interactive.Figures.Requests != 2 || rep.Arms[1].Interactive.Figures.Requests != 2 {
		t.Errorf("%+v", rep.Arms)
	}
	if left := nodesOf(t, o.Node.Model); len(left) > 0 || nodes.Load() != 2 {
		t.Errorf("%d nodes were started; left are %v", nodes.Load(), left)
	}
}

// One that is stopped in its first round has no figure, and says how far it was.
func TestARunThatIsStoppedInItsFirstRoundSaysHowFarItWas(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked atomic.Int64
	url := sse(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n := asked.Add(1); {
		case n <= 3: // a probe of each arm, and one of two clients' request
			answer(w)
			return
		case n == 5: // the other's, and what follows the first
			stop()
		}
		<-ctx.Done()
	})
	o := fronts(t, url, url)
	o.Rounds, o.Background, o.Requests = 3, 1, 1
	rep, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || len(rep.Arms) != 0 || rep.Done != 0 {
		t.Fatalf("%v, %+v", err, rep)
	}
	const want = "no round of 3 was finished, so there is no figure; left out is what was answered in round 1: 1 of 2 requests of a, 0 of 2 requests of b, then: it was interrupted"
	if !strings.HasPrefix(rep.Partial, want) || !strings.HasPrefix(rep.Note(), "PARTIAL: "+want) || !strings.Contains(rep.Markdown(), want) {
		t.Errorf("%q\n%s", rep.Partial, rep.Markdown())
	}
	if want := []Left{{"a", 1, 2}, {"b", 0, 2}}; !slices.Equal(rep.Left, want) {
		t.Errorf("left out are %+v, want %+v", rep.Left, want)
	}
	if strings.Contains(rep.Markdown(), "|") || strings.Contains(rep.Note(), "a change is of") {
		t.Errorf("it speaks of figures that there are not:\n%s", rep.Markdown())
	}
}

// nodesOf are the processes that have a model's path in their arguments.
func nodesOf(t *testing.T, model string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), model) {
			pids = append(pids, path)
		}
	}
	return pids
}

// A node that cannot start says why.
func TestANodeThatCannotStartSaysWhy(t *testing.T) {
	o := small(t)
	o.Arms = ArmsOf([]string{"sideways"})
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "sideways") || !strings.Contains(err.Error(), "scheduler.policy") {
		t.Errorf("error %v", err)
	}
	o = small(t)
	o.Node.Model = filepath.Join(t.TempDir(), "none.gguf")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "none.gguf") {
		t.Errorf("error %v", err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, f := range map[string]func(*Options){
		"0 arms":                     func(o *Options) { o.Arms = nil },
		"each has a name of its own": func(o *Options) { o.Arms[1].Name = o.Arms[0].Name },
		"0 interactive and 2":        func(o *Options) { o.Interactive = 0 },
		"1 interactive and 64":       func(o *Options) { o.Background = 64 },
		"0 requests of each client":  func(o *Options) { o.Requests = 0 },
		"0 rounds: from 1":           func(o *Options) { o.Rounds = 0 },
		"reasoning ratio of NaN": func(o *Options) {
			o.Workload.ReasoningRatio /= 0
			o.Workload.ReasoningRatio -= o.Workload.ReasoningRatio
		},
		"of each of 0 clients":          func(o *Options) { o.Storm.Clients = 0 },
		"thinking of 9 to 3":            func(o *Options) { o.Workload.Think.Least, o.Workload.Think.Most = 9, 3 },
		"SLOs of 0s":                    func(o *Options) { o.FirstAnswer = 0 },
		"0s for an arm's part":          func(o *Options) { o.Within = 0 },
		"tokens, a slot has 100":        func(o *Options) { o.Node.Context = 100 },
		"chat prompts of 0 to 5: 1":     func(o *Options) { o.Workload.ChatPrompt.Least, o.Workload.ChatPrompt.Most = 0, 5 },
		"bound of 100ms: all are above": func(o *Options) { o.Bound = 100 * time.Millisecond },
	} {
		o := small(t)
		f(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
