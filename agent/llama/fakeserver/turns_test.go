package fakeserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/llama/fakeserver"
)

// slow answers a token each 20 ms.
func slow(n int) fakeserver.Script {
	return fakeserver.Script{Template: "plain", Answer: strings.Split(strings.Repeat("yes,", n), ",")[:n], StepMS: 20}
}

const hurried = "[scheduler]\nmin_residency = \"1ms\"\n"

func (n *node) tokens(t *testing.T) float64 {
	return n.metric(t, "meridian_llama_decoded_tokens_total")
}

// decodes waits until the node has decoded so many tokens more.
func (n *node) decodes(t *testing.T, more float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for from := n.tokens(t); n.tokens(t) < from+more; {
		if ctx.Err() != nil {
			t.Fatal("nothing is decoded")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// One in the background gives the only slot to an interactive request, and goes on where
// it was: its answer is whole, and its prompt is not computed again.
func TestTheBackgroundGoesOnWhereItWasPreempted(t *testing.T) {
	n := start(t, slow(60), "", hurried)
	back := make(chan reply, 1)
	go func() { back <- n.chat(t, long, `,"service_tier":"flex"`) }()
	n.decodes(t, 10)
	computed := n.metric(t, `meridian_llama_prompt_tokens_total{source="computed"}`)
	r := n.chat(t, "hi", `,"max_tokens":3`)
	if r.text != "yesyesyes" || len(back) != 0 {
		t.Errorf("%s; the background has ended: %v", r.body, len(back) != 0)
	}
	own := n.metric(t, `meridian_llama_prompt_tokens_total{source="computed"}`) - computed
	b := <-back
	if b.text != strings.Repeat("yes", 60) || b.finish != "stop" || !strings.Contains(b.body, `"service_tier":"flex"`) {
		t.Errorf("%s", b.body)
	}
	if again := n.metric(t, `meridian_llama_prompt_tokens_total{source="computed"}`) - computed - own; again != 0 {
		t.Errorf("%g tokens were computed again", again)
	}
	if n.metric(t, `meridian_llama_preempted_total{class="background",policy="output-first"}`) != 1 || n.metric(t, `meridian_llama_preempted_total{class="interactive",policy="output-first"}`) != 0 {
		t.Error("the metrics do not tell")
	}
}

// What could not be kept is computed anew, and the answer is the same.
func TestAPreemptedRequestThatIsNotKeptIsComputedAnew(t *testing.T) {
	script := slow(60)
	script.Saves = 2 // of the node's start, and of the prompt
	n := start(t, script, "", hurried)
	back := make(chan reply, 1)
	go func() { back <- n.chat(t, long, `,"service_tier":"flex"`) }()
	n.decodes(t, 20)
	computed := n.metric(t, `meridian_llama_prompt_tokens_total{source="computed"}`)
	n.chat(t, "hi", `,"max_tokens":3`)
	if b := <-back; b.text != strings.Repeat("yes", 60) {
		t.Errorf("%s", b.body)
	}
	if again := n.metric(t, `meridian_llama_prompt_tokens_total{source="computed"}`) - computed; again < 20 {
		t.Errorf("%g tokens were computed after 20 had been decoded", again)
	}
	if !strings.Contains(n.log.String(), "of a preempted request was not kept") {
		t.Error("the log does not tell")
	}
}

func TestFirstComeFirstServedKnowsNoClasses(t *testing.T) {
	n := start(t, slow(30), "", "[scheduler]\npolicy = \"fcfs\"\nmin_residency = \"1ms\"\n")
	back := make(chan reply, 1)
	go func() { back <- n.chat(t, long, `,"service_tier":"flex"`) }()
	n.decodes(t, 5)
	n.chat(t, "hi", `,"max_tokens":3`)
	if len(back) == 0 {
		t.Error("the interactive request did not wait for the one in the background")
	}
	<-back
	if n.metric(t, `meridian_llama_preempted_total{class="background",policy="fcfs"}`) != 0 {
		t.Error("one was preempted")
	}
}

// A client that goes away while its request waits, preempted or not, leaves nothing.
func TestClientsThatVanishLeaveNothingInTheQueue(t *testing.T) {
	n := start(t, slow(400), "", hurried)
	ctx, vanish := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	ask := func(ctx context.Context, tier string) {
		wg.Go(func() {
			body := fmt.Sprintf(`{"model":"m","stream":true,"service_tier":%q,"messages":[{"role":"user","content":"hi"}]}`, tier)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/v1/chat/completions", strings.NewReader(body))
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	ask(ctx, "flex")
	n.decodes(t, 5)
	for range 10 {
		ask(ctx, "flex")
		ask(ctx, "default")
	}
	n.await(t, `meridian_llama_queue_requests{class="background",state="preempted"}`, 1)
	n.await(t, `meridian_llama_queue_requests{class="background",state="waiting"}`, 11)
	vanish()
	wg.Wait()
	for _, class := range []string{"interactive", "background"} {
		for _, state := range []string{"waiting", "running", "preempted"} {
			n.await(t, fmt.Sprintf(`meridian_llama_queue_requests{class=%q,state=%q}`, class, state), 0)
		}
	}
	n.await(t, `meridian_llama_slots{state="busy"}`, 0)
}

// A thousand requests at a time: each is answered, or refused with the time to try again;
// the background does not take all places, and the node is well afterwards.
func TestAThousandRequestsAtATime(t *testing.T) {
	n := start(t, slow(2), "", hurried+"[quota]\nfront_connections = 2000\nsource_front_connections = 2000\n")
	const all = 1000
	var mu sync.Mutex
	answers := map[string]int{}
	var wg sync.WaitGroup
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxConnsPerHost: all}}
	defer client.CloseIdleConnections()
	for i := range all {
		tier := []string{"flex", "default"}[i%2]
		wg.Go(func() {
			body := fmt.Sprintf(`{"model":"m","service_tier":%q,"messages":[{"role":"user","content":"hi %d"}]}`, tier, i)
			resp, err := client.Post(n.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			line, _ := bufio.NewReader(resp.Body).ReadString('\n')
			switch {
			case resp.StatusCode == http.StatusOK:
			case resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(line, "rate_limit_error"):
				t.Errorf("%s %s", resp.Status, line)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(tier, " ", resp.StatusCode)]++
		})
	}
	wg.Wait()
	t.Logf("%v", answers)
	if answers["default 200"] == 0 || answers["flex 200"] == 0 || answers["flex 429"] == 0 {
		t.Errorf("%v", answers)
	}
	n.await(t, `meridian_llama_slots{state="busy"}`, 0)
	if r := n.chat(t, "hi", ""); r.text != "yesyes" {
		t.Errorf("%s", r.body)
	}
}
