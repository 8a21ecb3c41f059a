package control

import (
	"testing"
	"time"
)

func TestAPaceIsTheMeanOfTheLastTransfers(t *testing.T) {
	p := &Pace{}
	if d, known := p.Takes(1 << 20); known {
		t.Errorf("before the first transfer one takes %v", d)
	}
	takes := func(want time.Duration) {
		t.Helper()
		if d, known := p.Takes(4 << 20); d != want || !known {
			t.Errorf("4 MiB take %v, want %v", d, want)
		}
	}
	p.Took(2<<20, 200*time.Microsecond)
	takes(400 * time.Microsecond)
	p.Took(1<<20, time.Hour) // counts for 200 µs
	takes(450 * time.Microsecond)
	for range 100 {
		p.Took(1<<20, 0)
	}
	if d, known := p.Takes(1 << 20); !known || d > 10 {
		t.Errorf("after 100 that took no time: %v, known %v", d, known)
	}
}
