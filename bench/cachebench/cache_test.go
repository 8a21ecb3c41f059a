package cachebench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/bench/trace"
)

func traces(t *testing.T) []Trace {
	t.Helper()
	c, err := trace.Conversation(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := trace.Synthetic(0)
	if err != nil {
		t.Fatal(err)
	}
	return []Trace{{"conversation", c}, {"synthetic", s}}
}

func served(c cache, reqs []trace.Request) (share float64) {
	hits, n := 0, 0
	for _, r := range reqs {
		hits += c.serve(r.Blocks)
		n += len(r.Blocks)
	}
	return float64(hits) / float64(n)
}

// The figures that were published for plain LRU, which ours is never below.
func TestPublishedRatiosAndOurs(t *testing.T) {
	sizes := []int{1000, 10000, 30000, 50000, 100000}
	published := map[string][]float64{
		"conversation": {0.044, 0.211, 0.326, 0.355, 0.364},
		"synthetic":    {0.082, 0.423, 0.624, 0.640, 0.640},
	}
	better := 0
	for _, tr := range traces(t) {
		for i, n := range sizes {
			plain := served(newLRU(n), tr.Requests)
			if want := published[tr.Name][i]; math.Abs(plain-want) > 0.0006 {
				t.Errorf("%s, %d blocks: LRU %.4f, published %.3f", tr.Name, n, plain, want)
			}
			s, err := newStore(n)
			if err != nil {
				t.Fatal(err)
			}
			e := &engine{store: s}
			ours := served(e, tr.Requests)
			if e.err != nil {
				t.Fatal(e.err)
			}
			if ours < plain {
				t.Errorf("%s, %d blocks: ours %.5f, plain LRU %.5f", tr.Name, n, ours, plain)
			}
			if ours > plain {
				better++
			}
		}
	}
	if better == 0 {
		t.Error("ours is nowhere better than plain LRU")
	}
}

// random makes prompts of a few blocks out of few chains, so that all may be tried.
func random(seed uint64, requests, chains, longest int) (prompts [][]int) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range requests {
		c := r.IntN(chains)
		var p []int
		for i := range 1 + r.IntN(longest) {
			p = append(p, c*100+i)
		}
		prompts = append(prompts, p)
	}
	return prompts
}

// best is the most hits that any way of keeping blocks can have: each cache that may be
// left after a prompt is tried.
func best(prompts [][]int, capacity int) int {
	states := map[string]int{"": 0}
	decode := func(s string) (ids []int) {
		_ = json.Unmarshal([]byte("["+s+"]"), &ids)
		return ids
	}
	encode := func(ids []int) string {
		b, _ := json.Marshal(ids)
		return strings.Trim(string(b), "[]")
	}
	for _, p := range prompts {
		next := map[string]int{}
		for s, hits := range states {
			have := decode(s)
			for _, id := range p {
				if !slices.Contains(have, id) {
					break
				}
				hits++
			}
			all := slices.Clone(have)
			for _, id := range p {
				if !slices.Contains(all, id) {
					all = append(all, id)
				}
			}
			slices.Sort(all)
			for mask := range 1 << len(all) {
				var left []int
				for i, id := range all {
					if mask>>i&1 == 1 {
						left = append(left, id)
					}
				}
				if len(left) == min(capacity, len(all)) {
					k := encode(left)
					next[k] = max(next[k], hits)
				}
			}
		}
		states = next
	}
	most := 0
	for _, h := range states {
		most = max(most, h)
	}
	return most
}

func TestBeladyHasTheMostHits(t *testing.T) {
	for seed := range uint64(40) {
		prompts := random(seed, 9, 3, 3)
		for _, capacity := range []int{1, 2, 3, 5} {
			b, hits := newBelady(capacity, prompts), 0
			for _, p := range prompts {
				hits += b.serve(p)
			}
			if want := best(prompts, capacity); hits != want {
				t.Errorf("seed %d, %d blocks: %d hits of %v, %d can be had", seed, capacity, hits, prompts, want)
			}
			if len(b.at) > capacity || len(b.order) != len(b.at) {
				t.Errorf("%d blocks cached, %d in the heap, the limit is %d", len(b.at), len(b.order), capacity)
			}
		}
	}
}

// A trace by hand: what is used twice more while it is new goes to the main queue, what
// comes back after it left the small one too, and the rest is forgotten.
func TestS3FIFOByHand(t *testing.T) {
	c := newS3FIFO(10) // 1 block is in the small queue
	serve := func(ids ...int) (hits int) {
		for _, id := range ids {
			hits += c.serve([]int{id})
		}
		return hits
	}
	if got := serve(1, 1, 1); got != 2 {
		t.Errorf("%d hits, want 2", got)
	}
	for id := 2; id <= 11; id++ { // the 10 after it fill the cache: 1 is promoted, 2 goes
		serve(id)
	}
	if got := serve(1); got != 1 || c.at[1].in != c.main {
		t.Errorf("block 1: %d hits, in the main queue: %v", got, c.at[1].in == c.main)
	}
	if e := c.at[2]; e == nil || e.in != c.ghost {
		t.Errorf("block 2 is no ghost: %+v", e)
	}
	if got := serve(2); got != 0 || c.at[2].in != c.main {
		t.Errorf("a ghost that comes back: %d hits, in the main queue: %v", got, c.at[2].in == c.main)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		serve(r.IntN(200))
		if n := c.small.Len() + c.main.Len(); n > 10 || c.ghost.Len() > 9 || len(c.at) != n+c.ghost.Len() {
			t.Fatalf("%d blocks, %d ghosts, %d known", n, c.ghost.Len(), len(c.at))
		}
	}
}

func small(t *testing.T) Options {
	t.Helper()
	o := Defaults()
	c, err := trace.Conversation(400)
	if err != nil {
		t.Fatal(err)
	}
	o.Traces, o.Sizes, o.Tiers = []Trace{{"conversation", c}}, []int{104, 1000}, true
	return o
}

func TestTheSameOptionsGiveTheSameReport(t *testing.T) {
	var reports [3][]byte
	for i := range reports {
		o := small(t)
		if i == 2 {
			o.Thinking.Seed++
		}
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		rep.Thinking.Seed = 0 // of the options, too, which are not used again
		reports[i], err = json.Marshal(rep)
		if err != nil {
			t.Fatal(err)
		}
		head, rows := rep.Rows(true)
		if len(rows) != 8 || len(rows[0]) != len(head) {
			t.Errorf("%d rows of %d columns, %d heads", len(rows), len(rows[0]), len(head))
		}
		if plots := rep.Plots(); len(plots) != 1 || !strings.Contains(plots["cache-tiers-conversation.svg"], string(Dropped)) {
			t.Errorf("%d plots", len(plots))
		}
	}
	if !reflect.DeepEqual(reports[0], reports[1]) {
		t.Error("two runs of the same options differ")
	}
	if reflect.DeepEqual(reports[0], reports[2]) {
		t.Error("another seed makes no difference")
	}
	o := small(t)
	o.Tiers = false
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	head, rows := rep.Rows(false)
	if len(rows) != 2 || len(rows[0]) != len(head) || rep.Thinking != nil {
		t.Errorf("policies: %d rows of %d columns, %d heads", len(rows), len(rows[0]), len(head))
	}
	if plots := rep.Plots(); len(plots) != 1 || !strings.Contains(plots["cache-conversation.svg"], "S3-FIFO") {
		t.Errorf("policies: %d plots", len(plots))
	}
}

// With tiers, think blocks go before blocks of requests that run; without thinking there
// is nothing to tell apart, and with room for all nothing goes.
func TestTiersKeepWhatRuns(t *testing.T) {
	o := small(t)
	of := func(o Options) map[Arm]Kept {
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		m := map[Arm]Kept{}
		for _, k := range rep.Traces[0].Rows[0].Tiers {
			m[k.Arm] = k
		}
		return m
	}
	o.Sizes = []int{1000}
	if got := of(o); got[Tiers].LiveEvictions >= got[OneTier].LiveEvictions {
		t.Errorf("%d live evictions with tiers, %d without", got[Tiers].LiveEvictions, got[OneTier].LiveEvictions)
	}
	o.Thinking.Ratio = 0
	if got := of(o); got[Tiers] != (Kept{Tiers, got[NoThink].HitRatio, got[NoThink].LiveEvictions}) || got[Dropped].HitRatio != got[Tiers].HitRatio {
		t.Errorf("nobody thinks: %+v", got)
	}
	o.Thinking.Ratio, o.Sizes = 1, []int{40000}
	for arm, k := range of(o) {
		if k.LiveEvictions != 0 || math.Abs(k.HitRatio-trace.LRU(o.Traces[0].Requests, 0).Ratio()) > 1e-6 {
			t.Errorf("%s, room for all: %+v", arm, k)
		}
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, f := range map[string]func(*Options){
		"no trace":          func(o *Options) { o.Traces = nil },
		"has no request":    func(o *Options) { o.Traces = []Trace{{Name: "empty"}} },
		"order of time":     func(o *Options) { o.Traces[0].Requests = []trace.Request{{At: 2}, {At: 1}} },
		"0 cache sizes":     func(o *Options) { o.Sizes = nil },
		"a cache of 7":      func(o *Options) { o.Sizes = []int{7} },
		"a cache of 838860": func(o *Options) { o.Sizes = []int{2 * MostBlocks} },
		"reasoning ratio":   func(o *Options) { o.Thinking.Ratio = math.NaN() },
		"think tokens":      func(o *Options) { o.Thinking.Least = o.Thinking.Most + 1 },
		"a token":           func(o *Options) { o.Thinking.PerToken = 0 },
	} {
		o := small(t)
		f(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if _, err := Run(ctx, small(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v after the time was over", err)
	}
}
