package link

import (
	"testing"
	"time"
)

func TestALeaseOfNoTimeIsTheLongest(t *testing.T) {
	for ms, want := range map[uint32]time.Duration{
		0: MaxLease, 1: time.Millisecond, 29_999: 29_999 * time.Millisecond, 30_000: MaxLease, 30_001: MaxLease, 1<<32 - 1: MaxLease,
	} {
		if got := LeaseFor(ms); got != want {
			t.Errorf("%d ms: %v, want %v", ms, got, want)
		}
	}
}
