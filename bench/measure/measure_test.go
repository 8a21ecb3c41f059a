package measure

import (
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
