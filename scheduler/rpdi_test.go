package scheduler

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Against the definition over everything that was kept, at every sentence end.
func TestRPDIAgreesWithItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, w := range []int{1, 7, 100, MaxRPDIWindow} {
		x, err := NewRPDI(w)
		if err != nil {
			t.Fatal(err)
		}
		var all []float32
		told := 0
		for range 5000 {
			h := float32(r.ExpFloat64())
			if r.IntN(500) == 0 {
				h = maxNats
			}
			all = append(all, h)
			end := r.IntN(15) == 0
			got, ok, err := x.Token(h, end)
			if err != nil {
				t.Fatal(err)
			}
			if ok != (end && len(all) >= w) {
				t.Fatalf("token %d, end %v: told %v", len(all), end, ok)
			}
			if ok {
				told++
				near(t, "rpdi", got, mean(all[len(all)-w:])/mean(all), 1e-9)
			}
		}
		if told < 100 {
			t.Errorf("window %d: told %d times", w, told)
		}
	}
}

func mean(x []float32) (m float64) {
	for _, v := range x {
		m += float64(v)
	}
	return m / float64(len(x))
}

// With the window of the paper the first signal is at the 512th token, and 1,
// for the window is everything.
func TestRPDIOfTheZeroValueHasThePapersWindow(t *testing.T) {
	var x RPDI
	for i := 1; i < MaxRPDIWindow; i++ {
		if _, ok, err := x.Token(float32(i%5), true); ok || err != nil {
			t.Fatalf("token %d: %v, %v", i, ok, err)
		}
	}
	if got, ok, err := x.Token(3, true); got != 1 || !ok || err != nil {
		t.Fatalf("%v, %v, %v", got, ok, err)
	}
}

func TestRPDIRefusesWhatNoEntropyIs(t *testing.T) {
	x, err := NewRPDI(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []float32{nan, inf, -1, maxNats + 1} {
		var bad *SignalError
		if _, ok, err := x.Token(h, true); ok || !errors.As(err, &bad) || bad.Signal != SigEntropy {
			t.Errorf("%v: %v, %v", h, ok, err)
		}
	}
	// Nothing of it was kept, and no entropy at all is no signal.
	for range 3 {
		if got, ok, err := x.Token(0, true); got != 0 || ok || err != nil {
			t.Fatalf("%v, %v, %v", got, ok, err)
		}
	}
	if got, ok, err := x.Token(4, true); got != 2 || !ok || err != nil {
		t.Fatalf("%v, %v, %v: want (0+4)/2 over (0+0+0+4)/4", got, ok, err)
	}
	for _, w := range []int{0, -1, MaxRPDIWindow + 1} {
		var bad *SignalError
		if _, err := NewRPDI(w); !errors.As(err, &bad) || bad.Signal != SigRPDI {
			t.Errorf("window %d: %v", w, err)
		}
	}
}
