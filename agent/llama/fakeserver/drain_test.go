package fakeserver_test

import (
	"context"
	"testing"
	"time"

	"meridian/agent/llama/fakeserver"
)

// chats asks for an answer in the background, and waits until the node is at it.
func (n *node) chats(t *testing.T) (answered chan reply) {
	t.Helper()
	answered = make(chan reply, 1)
	go func() { answered <- n.chat(t, long, "") }()
	n.await(t, `meridian_llama_slots{state="busy"}`, 1)
	return answered
}

// drained ends the daemon's work within a bound that no test here should meet.
func (n *node) drained(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := n.Drain(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("drain: %v, %v", err, ctx.Err())
	}
}

// A request that works ends well, however long it takes.
func TestADrainWaitsForARequestThatWorks(t *testing.T) {
	slow := answers
	slow.PrefillMS = 3000
	n := start(t, slow, "", "")
	answered := n.chats(t)
	n.drained(t)
	if r := <-answered; r.status != 200 || r.text != "yes" {
		t.Errorf("the request that ran: %d %s", r.status, r.body)
	}
}

// One whose model is stuck cannot end well, and is not waited for.
func TestADrainDoesNotWaitForARequestThatIsStuck(t *testing.T) {
	n := start(t, answers, "args = [\"--alias\", \""+fakeserver.Stalls+"\"]\n", "")
	answered := n.chats(t)
	n.drained(t)
	if r := <-answered; r.status == 200 {
		t.Errorf("the request that hung ended well: %s", r.body)
	}
}
