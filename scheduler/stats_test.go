package scheduler

import (
	"reflect"
	"sync"
	"testing"
)

func TestHistogramBounds(t *testing.T) {
	for _, tt := range []struct {
		n    uint32
		want int
	}{{0, 0}, {1, 0}, {64, 0}, {65, 1}, {128, 1}, {129, 2}, {65536, 10}, {65537, 11}, {1<<32 - 1, 11}} {
		if got := bucketOf(tt.n); got != tt.want {
			t.Errorf("bucketOf(%d) = %d, want %d", tt.n, got, tt.want)
		}
	}
	var c counts
	for _, n := range []uint32{1, 64, 65, 65536, 65537} {
		c.observe(n)
	}
	c.publish()
	s := c.read()
	b := s.Think.Buckets()
	if len(b) != buckets-1 || b[64] != 2 || b[128] != 3 || b[32768] != 3 || b[65536] != 4 || s.Think.Count() != 5 || s.Think.Sum != 1+64+65+65536+65537 {
		t.Errorf("buckets %v, count %d, sum %d", b, s.Think.Count(), s.Think.Sum)
	}
}

// Add leaves out no field: every number of the sum is twice that of the addend.
func TestAddSumsEveryField(t *testing.T) {
	var one, sum Stats
	fill(reflect.ValueOf(&one).Elem())
	for i := range one.Think.bucket {
		one.Think.bucket[i] = uint64(i) + 1
	}
	sum.Add(&one)
	if sum != one {
		t.Fatalf("0 + x = %+v", sum)
	}
	sum.Add(&one)
	if sum.Phases[3] != 2*one.Phases[3] || sum.Think.bucket[4] != 2*one.Think.bucket[4] || sum.Dropped != 2*one.Dropped {
		t.Fatalf("x + x = %+v", sum)
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Uint64:
		if v.CanSet() {
			v.SetUint(uint64(len(v.Type().Name())) + 3)
		}
	}
}

// Every field moves when something happens, so none is reported that is always 0.
func TestEveryCountMoves(t *testing.T) {
	ms, err := NewModels([]Model{
		{Name: "m", Start: []int32{tokStart}, End: []int32{tokEnd}, EOS: []int32{tokEOS}, MaxThink: 2},
		{Name: "k", Start: []int32{tokStart}, End: []int32{tokEnd}, KeepsThinking: true},
		{Name: "n", Start: []int32{tokStart}, MaxThink: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Models: ms, OffloadThreshold: 2, MaxRequests: 4, ReapAfter: 50, Signals: rules(t, func(c *SignalConfig) { c.MinThink = 1 })})
	c.Step(0, []Input{
		{Kind: Arrive, ID: 1, Model: "m"},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokStart, tokText}},
		{Kind: KV, ID: 1, Blocks: MaxBlocks + 1},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokText}},
		{Kind: Tokens, ID: 1, Tokens: []int32{tokEnd, tokText, tokEOS, tokText}},
		{Kind: Arrive, ID: 2, Model: "k", Tokens: []int32{tokStart}},
		{Kind: KV, ID: 2, Blocks: 1, Think: true},
		{Kind: Tokens, ID: 2, Tokens: []int32{tokText}},
		{Kind: Probed, ID: 2, Signal: Signal{SigPEnd, nan}},
		{Kind: Probed, ID: 2, Signal: Signal{SigRPDI, 9}},
		{Kind: Probed, ID: 2, Signal: Signal{SigRPDI, 9}},
		{Kind: Tokens, ID: 2, Tokens: []int32{tokEnd}},
		{Kind: Done, ID: 2},
		{Kind: Arrive, ID: 3, Model: "n"},
		{Kind: Tokens, ID: 3, Tokens: []int32{tokStart, tokText}},
		{Kind: Arrive, ID: 4, Model: "qwen3"},
		{Kind: Tokens, ID: 4, Tokens: []int32{tokText}},
		{Kind: Arrive, ID: 5, Model: "nobody's"},
		{Kind: Arrive, ID: 5, Model: "m"},
		{Kind: Arrive, ID: 6, Model: "m"},
		{Kind: Abort, ID: 6},
	})
	s := c.Stats()
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "Aborted" && v.Field(i).IsZero() {
			t.Errorf("%s did not move", f.Name)
		}
	}
	for p, n := range s.Phases {
		if n != 1 {
			t.Errorf("%d requests in %s, want 1", n, Phase(p))
		}
	}
	c.Step(0, []Input{{Kind: Abort, ID: 4}})
	c.Tick(50)
	s = c.Stats()
	for k := EnterThink; k < eventKinds; k++ {
		if s.Events[k] == 0 {
			t.Errorf("event %s did not move", k)
		}
	}
	for _, r := range []Reason{Overthinking, HardCap, EOS, Finished, Full, Duplicate} {
		if s.Reason[r] != 1 {
			t.Errorf("reason %s counted %d times", r, s.Reason[r])
		}
	}
	if s.Aborted != 1 || s.Tracked() != 0 {
		t.Errorf("aborted %d, tracked %d", s.Aborted, s.Tracked())
	}
}

// Stats may be read from other goroutines while the core runs; what is read only
// grows.
func TestStatsAreReadWithoutStoppingTheCore(t *testing.T) {
	c := New(Config{Models: oneTokenModel(t)})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var last Stats
			for {
				s := c.Stats()
				if s.Arrived < last.Arrived || s.ThinkTokens < last.ThinkTokens || s.Think.Count() < last.Think.Count() {
					t.Errorf("went back from %+v to %+v", last, s)
				}
				last = s
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var ready Ready
	for i := range ID(2000) {
		c.Step(Time(i), []Input{
			{Kind: Arrive, ID: i, Model: "m"},
			{Kind: Tokens, ID: i, Tokens: []int32{tokStart, tokText, tokEnd, tokEOS}},
			{Kind: Done, ID: i},
		})
		c.Ready(&ready)
	}
	close(stop)
	readers.Wait()
	if s := c.Stats(); s.Arrived != 2000 || s.ThinkTokens != 4000 || s.Think.Sum != 4000 || s.Tracked() != 0 {
		t.Errorf("%+v", s)
	}
}
