package engine_test

import (
	"fmt"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
)

// Token ids of the test's model.
const (
	thinkStart = 100
	thinkEnd   = 101
	eos        = 102
	word       = 1
)

// thinker is an engine with a model that thinks.
type thinker struct {
	t      *testing.T
	n      *node
	e      *client.Engine
	ns     client.NS
	phases chan client.Phase
}

func startThinker(t *testing.T, change func(*scheduler.Config)) *thinker {
	t.Helper()
	models, err := scheduler.NewModels([]scheduler.Model{
		{Name: "thinker", Start: []int32{thinkStart}, End: []int32{thinkEnd}, EOS: []int32{eos}, MaxThink: 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &thinker{t: t, phases: make(chan client.Phase, 64)}
	x.n = startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Scheduler = scheduler.Config{Models: models, OffloadThreshold: 2, OffloadAfter: scheduler.Time(time.Hour)}
		if change != nil {
			change(&c.Scheduler)
		}
	})
	x.e = x.n.dial(t, client.Options{OnPhase: func(p client.Phase) { x.phases <- p }})
	if x.ns, err = x.e.Open(ctx, manifest("acme")); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *thinker) begin(prompt ...int32) uint32 {
	x.t.Helper()
	id, err := x.e.Begin(ctx, client.Begin{ID: "r", Model: "thinker", Prompt: prompt})
	if err != nil {
		x.t.Fatal(err)
	}
	return id
}

func (x *thinker) tokens(id uint32, tok ...int32) {
	x.t.Helper()
	if err := x.e.Tokens([]uint32{id}, []uint8{uint8(len(tok))}, tok); err != nil {
		x.t.Fatal(err)
	}
}

func (x *thinker) put(req uint32, tier wire.Tier, names ...string) {
	x.t.Helper()
	for _, name := range names {
		put(x.t, x.e, client.Block{NS: x.ns, Key: keyOf(name), Tier: tier, Body: body(1, 1000), Req: req})
	}
}

// phase asserts the next advice.
func (x *thinker) phase(kind client.PhaseKind, used uint32) client.Phase {
	x.t.Helper()
	p := <-x.phases
	if p.Kind != kind || p.Used != used {
		x.t.Fatalf("advice %s used %d, want %s used %d", p.Kind, p.Used, kind, used)
	}
	return p
}

// tiers asserts the tiers of blocks, after everything that was sent has been
// handled.
func (x *thinker) tiers(want map[string]wire.Tier) {
	x.t.Helper()
	if err := x.e.Ping(ctx); err != nil {
		x.t.Fatal(err)
	}
	x.tiersNow(want)
}

func (x *thinker) tiersNow(want map[string]wire.Tier) {
	x.t.Helper()
	for name, tier := range want {
		v, err := x.n.store.Stat(keyOf(name))
		if err != nil || v.Tier != tier {
			x.t.Errorf("%s: %s (%v), want %s", name, v.Tier, err, tier)
		}
	}
}

func TestPhasesComeBackAndTiersFollow(t *testing.T) {
	x := startThinker(t, nil)
	r := x.begin(word, word)
	x.put(r, wire.OutputCritical, "prompt")
	x.tokens(r, thinkStart, word, word)
	x.phase(client.EnterThink, 0)
	x.put(r, wire.ThinkActive, "t1", "t2", "t3")
	x.tiers(map[string]wire.Tier{"prompt": wire.OutputCritical, "t1": wire.ThinkActive, "t2": wire.ThinkActive, "t3": wire.ThinkActive})

	x.tokens(r, word, thinkEnd)
	x.phase(client.ExitThink, 4)
	x.tiers(map[string]wire.Tier{"prompt": wire.OutputCritical, "t1": wire.ThinkComplete, "t2": wire.ThinkComplete, "t3": wire.ThinkComplete})
	<-x.n.host.offload
	x.n.host.mu.Lock()
	if got, want := fmt.Sprint(x.n.host.offloaded), fmt.Sprint([]wire.Key{keyOf("t1"), keyOf("t2")}); got != want {
		t.Errorf("offloaded %s, want the two oldest think blocks", got)
	}
	x.n.host.mu.Unlock()

	x.put(r, wire.ThinkActive, "late") // saved after thinking ended
	<-x.n.host.offload                 // with it the next batch of two is whole
	x.put(r, wire.OutputCritical, "answer")
	x.tiers(map[string]wire.Tier{"late": wire.ThinkComplete, "answer": wire.OutputCritical})

	x.tokens(r, word, eos)
	x.phase(client.Completed, 4)
	x.tiers(map[string]wire.Tier{"prompt": wire.ThinkComplete, "answer": wire.ThinkComplete})
	x.put(r, wire.OutputCritical, "last")
	x.tiers(map[string]wire.Tier{"last": wire.ThinkComplete})
	if err := x.e.Finish(ctx, r, false); err != nil {
		t.Fatal(err)
	}
	x.n.host.mu.Lock()
	defer x.n.host.mu.Unlock()
	if got, want := fmt.Sprint(x.n.host.offloaded), fmt.Sprint([]wire.Key{keyOf("t1"), keyOf("t2"), keyOf("t3"), keyOf("late")}); got != want {
		t.Errorf("offloaded %s, want the think blocks in order", got)
	}
}

func TestOffloadRemainderLeavesByTheTimer(t *testing.T) {
	x := startThinker(t, func(c *scheduler.Config) { c.OffloadThreshold, c.OffloadAfter = 100, scheduler.Time(time.Millisecond) })
	r := x.begin(word)
	x.tokens(r, thinkStart, word)
	x.put(r, wire.ThinkActive, "t1")
	x.tokens(r, thinkEnd)
	<-x.n.host.offload // nothing else is sent
	x.n.host.mu.Lock()
	defer x.n.host.mu.Unlock()
	if len(x.n.host.offloaded) != 1 || x.n.host.offloaded[0] != keyOf("t1") {
		t.Errorf("offloaded %v", x.n.host.offloaded)
	}
}

func TestSilentRequestsAreReaped(t *testing.T) {
	x := startThinker(t, func(c *scheduler.Config) { c.ReapAfter = scheduler.Time(50 * time.Millisecond) })
	r := x.begin(word)
	x.put(r, wire.OutputCritical, "prompt")
	x.phase(client.Reaped, 0)
	x.tiers(map[string]wire.Tier{"prompt": wire.ThinkComplete})
}

func TestThinkingBeyondItsBudgetIsForced(t *testing.T) {
	x := startThinker(t, nil)
	r := x.begin(word, thinkStart) // the template opens thinking
	for range 20 {
		x.tokens(r, word)
	}
	x.phase(client.EnterThink, 0)
	p := x.phase(client.ForceBudget, 20)
	if len(p.Inject) != 1 || p.Inject[0] != thinkEnd || p.Req != r {
		t.Errorf("advice %+v", p)
	}
	st := x.n.srv.Stats().Scheduler
	if st.Events[scheduler.ForceBudget] != 1 || st.Tracked() != 1 || st.Phases[scheduler.ThinkDecode] != 1 {
		t.Errorf("stats: %d forced, %d tracked", st.Events[scheduler.ForceBudget], st.Tracked())
	}
	if err := x.e.Finish(ctx, r, true); err != nil {
		t.Fatal(err)
	}
	x.e.Close()
	x.n.wait(1)
	x.n.srv.Close()
	st = x.n.srv.Stats().Scheduler
	if st.Tracked() != 0 || st.ThinkTokens != 20 || st.Aborted != 1 {
		t.Errorf("after the session: %d tracked, %d think tokens, %d aborted", st.Tracked(), st.ThinkTokens, st.Aborted)
	}
}

func TestFinishIsIdempotent(t *testing.T) {
	x := startThinker(t, nil)
	for _, abort := range []bool{false, true} {
		if err := x.e.Finish(ctx, 4711, abort); err != nil {
			t.Errorf("before any request: %v", err)
		}
	}
	r := x.begin(word)
	x.put(r, wire.OutputCritical, "p")
	for _, abort := range []bool{false, false, true} {
		if err := x.e.Finish(ctx, r, abort); err != nil {
			t.Error(err)
		}
		x.tiers(map[string]wire.Tier{"p": wire.ThinkComplete})
	}
	if err := x.e.Finish(ctx, 4711, true); err != nil {
		t.Errorf("a request that never was: %v", err)
	}
	x.tokens(r, word) // late tokens are no fault
	x.tokens(4711, word)
	if err := x.e.Ping(ctx); err != nil {
		t.Error(err)
	}
	if got := x.n.srv.Stats().Scheduler.Tracked(); got != 0 {
		t.Errorf("%d requests tracked", got)
	}
}

func TestSharedPromptStaysUntilTheLastRequestEnds(t *testing.T) {
	x := startThinker(t, nil)
	a, b := x.begin(word), x.begin(word)
	x.put(a, wire.OutputCritical, "prompt")
	is(t, x.e.Put(ctx, []client.Block{{NS: x.ns, Key: keyOf("prompt"), Tier: wire.OutputCritical, Body: body(1, 1000), Req: b}})[0], wire.CodeExists)
	if err := x.e.Finish(ctx, a, false); err != nil {
		t.Fatal(err)
	}
	x.tiers(map[string]wire.Tier{"prompt": wire.OutputCritical})
	if err := x.e.Finish(ctx, b, false); err != nil {
		t.Fatal(err)
	}
	x.tiers(map[string]wire.Tier{"prompt": wire.ThinkComplete})
}

func TestPutForARequestThatNeverWasGoesFirst(t *testing.T) {
	x := startThinker(t, nil)
	x.put(99, wire.OutputCritical, "a")
	x.put(0, wire.OutputCritical, "b")
	x.tiers(map[string]wire.Tier{"a": wire.ThinkComplete, "b": wire.OutputCritical})
}

func TestTooManyRequestsIsBusy(t *testing.T) {
	x := startThinker(t, func(c *scheduler.Config) { c.MaxRequests = 2 })
	a := x.begin(word)
	x.begin(word)
	_, err := x.e.Begin(ctx, client.Begin{Model: "thinker"})
	is(t, err, wire.CodeBusy)
	if err := x.e.Finish(ctx, a, false); err != nil {
		t.Fatal(err)
	}
	x.begin(word)
}

func TestDeathOfASessionEndsItsRequests(t *testing.T) {
	x := startThinker(t, nil)
	r := x.begin(word)
	x.put(r, wire.OutputCritical, "prompt")
	x.tokens(r, thinkStart, word)
	x.phase(client.EnterThink, 0)
	x.put(r, wire.ThinkActive, "t1")
	x.e.Close()
	x.n.wait(1)
	x.tiersNow(map[string]wire.Tier{"prompt": wire.ThinkComplete, "t1": wire.ThinkComplete})
}

func TestTrackedBlocksAreBounded(t *testing.T) {
	x := startThinker(t, nil)
	lim := x.n.cfg.Limits
	if lim.Blocks != 0 {
		t.Fatal("the default is meant")
	}
	y := startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Scheduler, c.Limits.Blocks = x.n.cfg.Scheduler, 2
	})
	e, ns := y.open(t)
	id, err := e.Begin(ctx, client.Begin{Model: "thinker"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		put(t, e, client.Block{NS: ns, Key: keyOf(fmt.Sprint(i)), Tier: wire.OutputCritical, Body: body(1, 100), Req: id})
	}
	for i, want := range []wire.Tier{wire.OutputCritical, wire.OutputCritical, wire.ThinkComplete} {
		if v, err := y.store.Stat(keyOf(fmt.Sprint(i))); err != nil || v.Tier != want {
			t.Errorf("block %d: %s (%v), want %s", i, v.Tier, err, want)
		}
	}
}

func TestPhaseNumbersAreTheSchedulers(t *testing.T) {
	for kind, want := range map[client.PhaseKind]scheduler.EventKind{
		client.EnterThink: scheduler.EnterThink, client.ExitThink: scheduler.ExitThink, client.ForceBudget: scheduler.ForceBudget,
		client.Completed: scheduler.Completed, client.Reaped: scheduler.Reaped, client.CannotForce: scheduler.CannotForce,
	} {
		if uint8(kind) != uint8(want) {
			t.Errorf("%s is %d here and %d there", kind, kind, want)
		}
	}
}
