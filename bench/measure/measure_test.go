package measure

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	var d []time.Duration
	for i := 100; i > 0; i-- {
		d = append(d, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 0.999: 100} {
		if got := Quantile(d, q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
	if d[0] != 100 {
		t.Error("the caller's slice was sorted")
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}

func TestLatencyHasAboutThreeDigits(t *testing.T) {
	for s, want := range map[float64]string{0: "0s", 10.24e-6: "10.2µs", 1.2345e-3: "1.23ms", 2.34567: "2.35s"} {
		if got := Latency(s); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}

func TestTheBoundIsThatOfWireAndHashInTurn(t *testing.T) {
	if got := Bound(4, math.Inf(1), 2); got != 4 {
		t.Errorf("a hash that costs nothing: %v, want the socket's 4", got)
	}
	if got := Bound(4, 2, 2); got != 2 {
		t.Errorf("as long in the hash as on the wire: %v, want half of 4", got)
	}
	if Bound(0, 1, 2) != 0 || Bound(1, 0, 2) != 0 {
		t.Error("nothing measured has a bound")
	}
}

func TestMedianAndSpread(t *testing.T) {
	v := []float64{9, 1, 4, 2}
	if lo, hi := MinMax(v); Median(v) != 3 || Median(v[:3]) != 4 || lo != 1 || hi != 9 {
		t.Errorf("median %v and %v, spread %v to %v", Median(v), Median(v[:3]), lo, hi)
	}
	if lo, hi := MinMax(nil); Median(nil) != 0 || lo != 0 || hi != 0 {
		t.Error("of nothing")
	}
}

func TestDuringTimesEveryCallThatSucceeds(t *testing.T) {
	bad := errors.New("bad")
	var calls atomic.Int64
	took, elapsed, err := During(3, time.Hour, func(int) error {
		if calls.Add(1) > 10 {
			return bad
		}
		return nil
	})
	if !errors.Is(err, bad) || len(took) != 10 || elapsed <= 0 {
		t.Errorf("%d timed in %v, %v; want the 10 that succeeded", len(took), elapsed, err)
	}
}

func TestDuringCallsOnceAWorkerHoweverLittleTimeThereIs(t *testing.T) {
	took, _, err := During(4, 0, func(int) error { return nil })
	if err != nil || len(took) != 4 {
		t.Errorf("%d calls, %v; want one a worker", len(took), err)
	}
}
