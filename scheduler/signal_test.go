package scheduler

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// randomRow is a row of logits: flat, peaked, far from 0, or with masked ids.
func randomRow(r *rand.Rand) []float32 {
	row := make([]float32, 1+r.IntN(300))
	spread, shift := math.Exp(r.Float64()*6-3), r.NormFloat64()*100
	for i := range row {
		row[i] = float32(r.NormFloat64()*spread + shift)
	}
	for range r.IntN(3) {
		row[r.IntN(len(row))] = -inf
	}
	if slices.Max(row) == -inf {
		row[0] = 0
	}
	return row
}

// logSoftmax is the row's log-probabilities, by way of the probabilities.
func logSoftmax(row []float32) (logprobs []float32, probs []float64) {
	z, m := 0.0, float64(slices.Max(row))
	for _, x := range row {
		z += math.Exp(float64(x) - m)
	}
	for _, x := range row {
		probs = append(probs, math.Exp(float64(x)-m)/z)
		logprobs = append(logprobs, float32(float64(x)-m-math.Log(z)))
	}
	return logprobs, probs
}

// plogp is the entropy by its definition.
func plogp(probs []float64) (h float64) {
	for _, p := range probs {
		if p > 0 {
			h -= p * math.Log(p)
		}
	}
	return h
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if !(math.Abs(got-want) <= by) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestEntropyOfUniformIsLogN(t *testing.T) {
	for _, n := range []int{1, 2, 3, 1000, 151_936} {
		logits, logprobs := make([]float32, n), make([]float32, n)
		for i := range logits {
			logits[i], logprobs[i] = -7.25, float32(-math.Log(float64(n)))
		}
		h, err := EntropyOfLogits(logits)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "of logits", h, math.Log(float64(n)), 1e-9)
		if h, err = Entropy(logprobs); err != nil {
			t.Fatal(err)
		}
		near(t, "of log-probabilities", h, math.Log(float64(n)), 1e-5)
	}
}

func TestEntropyOfOneHotIsZero(t *testing.T) {
	row := slices.Repeat([]float32{-inf}, 100)
	row[42] = 0
	for _, f := range []func([]float32) (float64, error){Entropy, EntropyOfLogits} {
		if h, err := f(row); h != 0 || err != nil {
			t.Errorf("%v, %v", h, err)
		}
	}
	// Logits as far apart as float32 has them neither overflow nor give NaN.
	for _, row := range [][]float32{{math.MaxFloat32, -math.MaxFloat32}, {-math.MaxFloat32, -inf}, {math.MaxFloat32, 0, -inf}} {
		if h, err := EntropyOfLogits(row); h != 0 || err != nil {
			t.Errorf("%v: %v, %v", row, h, err)
		}
	}
}

// Against the definition, in both forms, and for every cut of the row.
func TestSignalsAgreeWithTheirDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		row := randomRow(r)
		logprobs, probs := logSoftmax(row)
		want := plogp(probs)
		fromLogits, err1 := EntropyOfLogits(row)
		fromLogprobs, err2 := Entropy(logprobs)
		end := []int32{int32(r.IntN(len(row))), int32(r.IntN(len(row)))}
		wantEnd := probs[end[0]]
		if end[1] != end[0] {
			wantEnd += probs[end[1]]
		}
		endOfLogits, err3 := PEndOfLogits(row, end)
		endOfLogprobs, err4 := PEnd(logprobs, end)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		near(t, "entropy of logits", fromLogits, want, 1e-9)
		near(t, "entropy of log-probabilities", fromLogprobs, want, 1e-3)
		near(t, "end of logits", endOfLogits, wantEnd, 1e-12)
		near(t, "end of log-probabilities", endOfLogprobs, wantEnd, 1e-4)
		if most := math.Log(float64(len(row))); fromLogits < 0 || fromLogits > most+1e-9 {
			t.Errorf("entropy %v of %d tokens, at most %v", fromLogits, len(row), most)
		}
	}
}

func TestSignalsOfLogitsDoNotDependOnAShift(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		row := make([]float32, 2+r.IntN(100))
		for i := range row {
			row[i] = float32(r.IntN(64)) / 4 // exact in float32, shifted too
		}
		moved := slices.Clone(row)
		by := float32(r.IntN(4000) - 2000)
		for i := range moved {
			moved[i] += by
		}
		a, _ := EntropyOfLogits(row)
		b, err := EntropyOfLogits(moved)
		pa, _ := PEndOfLogits(row, []int32{1})
		pb, err2 := PEndOfLogits(moved, []int32{1})
		if a != b || pa != pb || err != nil || err2 != nil {
			t.Fatalf("shifted by %v: %v and %v, %v and %v", by, a, b, pa, pb)
		}
	}
}

// The end mass of all ids is 1, and that of disjoint sets adds up.
func TestPEndSums(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		row := randomRow(r)
		ids := make([]int32, len(row))
		for i, k := range r.Perm(len(row)) {
			ids[i] = int32(k)
		}
		all, err := PEndOfLogits(row, ids)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "all ids", all, 1, 1e-12)
		if cut := r.IntN(len(ids)); cut > 0 {
			a, _ := PEndOfLogits(row, ids[:cut])
			b, _ := PEndOfLogits(row, ids[cut:])
			near(t, "two halves", a+b, 1, 1e-12)
		}
	}
}

// What a list of the best tokens says holds for the whole row, at every length,
// and says more the longer it is.
func TestBoundsHoldAtEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 60 {
		row := randomRow(r)
		logprobs, probs := logSoftmax(row)
		h := plogp(probs)
		order := make([]int32, len(row))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(logprobs[b], logprobs[a]) })
		end := []int32{int32(r.IntN(len(row))), int32(r.IntN(len(row)))}
		pEnd, _ := PEndOfLogits(row, end)
		last := 0.0
		for k := 1; k <= len(order); k++ {
			if logprobs[order[k-1]] == -inf {
				break
			}
			var top []float32
			for _, id := range order[:k] {
				top = append(top, logprobs[id])
			}
			low, mass, err := EntropyLowerBound(top)
			if err != nil {
				t.Fatalf("%d of %d: %v", k, len(row), err)
			}
			if low > h+1e-3 || low < last-1e-3 || mass > 1 {
				t.Fatalf("%d of %d: bound %v after %v, entropy %v, mass %v", k, len(row), low, last, h, mass)
			}
			if last = low; k == len(order) {
				near(t, "of the whole row", low, h, 1e-3)
				near(t, "its mass", mass, 1, 1e-3)
			}
			a, b, err := PEndBounds(order[:k], top, end)
			if err != nil || a > pEnd+1e-4 || b < pEnd-1e-4 || a > b {
				t.Fatalf("%d of %d: end between %v and %v (%v), is %v", k, len(row), a, b, err, pEnd)
			}
		}
	}
}

func TestLowerBoundIsExactForUniform(t *testing.T) {
	top := slices.Repeat([]float32{float32(-math.Log(1000))}, 20)
	low, mass, err := EntropyLowerBound(top)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "bound", low, math.Log(1000), 1e-5)
	near(t, "mass", mass, 0.02, 1e-6)
	// One token of 0.9: the rest is at most one other token of 0.1.
	low, mass, err = EntropyLowerBound([]float32{float32(math.Log(0.9))})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "bound", low, plogp([]float64{0.9, 0.1}), 1e-6)
	near(t, "mass", mass, 0.9, 1e-6)
}

// Whatever comes in, what comes out is a number or an error that says why.
func TestBadRowsAreErrors(t *testing.T) {
	half := float32(math.Log(0.5))
	entropy := func(f func([]float32) (float64, error), row ...float32) func() (float64, error) {
		return func() (float64, error) { return f(row) }
	}
	end := func(f func([]float32, []int32) (float64, error), row []float32, ids ...int32) func() (float64, error) {
		return func() (float64, error) { return f(row, ids) }
	}
	lower := func(top ...float32) func() (float64, error) {
		return func() (float64, error) { low, _, err := EntropyLowerBound(top); return low, err }
	}
	bounds := func(ids []int32, top []float32, ends ...int32) func() (float64, error) {
		return func() (float64, error) { _, high, err := PEndBounds(ids, top, ends); return high, err }
	}
	for _, tt := range []struct {
		f      func() (float64, error)
		signal SignalName
		text   string
	}{
		{entropy(EntropyOfLogits), SigEntropy, "an empty row"},
		{entropy(EntropyOfLogits, 1, nan), SigEntropy, "value 1 of the row is NaN"},
		{entropy(EntropyOfLogits, inf, 1), SigEntropy, "value 0 of the row is +Inf"},
		{entropy(EntropyOfLogits, -inf, -inf), SigEntropy, "every value of the row is -Inf"},
		{entropy(Entropy), SigEntropy, "no log-probabilities"},
		{entropy(Entropy, half, nan), SigEntropy, "log-probability 1 is NaN"},
		{entropy(Entropy, half, 0.25), SigEntropy, "log-probability 1 is 0.25"},
		{entropy(Entropy, inf), SigEntropy, "log-probability 0 is +Inf"},
		{entropy(Entropy, -inf), SigEntropy, "the probabilities sum to 0"},
		{entropy(Entropy, half), SigEntropy, "the probabilities sum to 0.5"},
		{entropy(Entropy, half, half, half), SigEntropy, "the probabilities sum to 1.5"},
		{lower(), SigEntropy, "no log-probabilities"},
		{lower(nan), SigEntropy, "log-probability 0 is NaN"},
		{lower(half, half, half), SigEntropy, "the probabilities sum to 1.5"},
		{lower(-inf), SigEntropy, "the probabilities sum to 0"},
		{lower(half, -inf), SigEntropy, "a token of probability 0 is listed while 0.5 are not"},
		{end(PEndOfLogits, nil, 0), SigPEnd, "an empty row"},
		{end(PEndOfLogits, []float32{1, 2}), SigPEnd, "no end ids"},
		{end(PEndOfLogits, []float32{1, 2}, 2), SigPEnd, "end id 2 in a row of 2"},
		{end(PEndOfLogits, []float32{1, 2}, -1), SigPEnd, "end id -1 in a row of 2"},
		{end(PEndOfLogits, []float32{1, nan}, 0), SigPEnd, "value 1 of the row is NaN"},
		{end(PEnd, []float32{half}, 0), SigPEnd, "the probabilities sum to 0.5"},
		{end(PEnd, []float32{half, half}), SigPEnd, "no end ids"},
		{bounds([]int32{1}, []float32{half, half}, 1), SigPEnd, "1 ids, 2 log-probabilities"},
		{bounds([]int32{1, 1}, []float32{half, half}, 1), SigPEnd, "end id 1 is listed twice"},
		{bounds([]int32{1}, []float32{half}), SigPEnd, "no end ids"},
		{bounds(nil, nil, 1), SigPEnd, "no log-probabilities"},
	} {
		got, err := tt.f()
		var bad *SignalError
		if got != 0 || !errors.As(err, &bad) || bad.Signal != tt.signal || bad.Text != tt.text {
			t.Errorf("%v, %v; want %s: %s", got, err, tt.signal, tt.text)
		}
	}
}

func FuzzSignals(f *testing.F) {
	f.Add([]byte{0, 0, 128, 191, 0, 0, 128, 255, 0, 0, 192, 127}, int32(1))
	f.Fuzz(func(t *testing.T, b []byte, id int32) {
		var row []float32
		for ; len(b) >= 4; b = b[4:] {
			row = append(row, math.Float32frombits(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24))
		}
		ids := make([]int32, len(row))
		for i := range ids {
			ids[i] = int32(i)
		}
		check := func(what string, x float64, err error, most float64) {
			if err != nil && x != 0 || !(x >= 0 && x <= most) {
				t.Errorf("%s: %v, %v", what, x, err)
			}
		}
		most := math.Log(float64(max(len(row), 1))) + 1e-2
		h, err := EntropyOfLogits(row)
		check("of logits", h, err, most)
		h, err = Entropy(row)
		check("of log-probabilities", h, err, most)
		p, err := PEndOfLogits(row, []int32{id})
		check("end of logits", p, err, 1)
		p, err = PEnd(row, []int32{id})
		check("end of log-probabilities", p, err, 1)
		low, mass, err := EntropyLowerBound(row)
		check("bound", low, err, math.MaxFloat64)
		check("mass", mass, err, 1)
		low, high, err := PEndBounds(ids, row, []int32{id})
		check("low", low, err, 1)
		check("high", high, err, 1)
	})
}

func TestSignalValuesAreChecked(t *testing.T) {
	for _, s := range []Signal{
		{SigEntropy, 0}, {SigEntropy, 11.9}, {SigEntropy, -1e-6}, {SigEAT, 3}, {SigRPDI, 2}, {SigPEnd, 0}, {SigPEnd, 1}, {SigPEnd, 1.0000001},
	} {
		if err := s.Check(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
	for _, s := range []Signal{
		{SigEntropy, nan}, {SigEntropy, inf}, {SigEntropy, -1}, {SigEntropy, 65}, {SigEAT, 65}, {SigPEnd, 1.1}, {SigPEnd, -0.1}, {SigPEnd, nan}, {SigEAT, -inf},
		{SigRPDI, nan}, {SigRPDIIndicator, 1}, {0, 1}, {6, 1},
	} {
		var bad *SignalError
		if err := s.Check(); !errors.As(err, &bad) || bad.Signal != s.Name {
			t.Errorf("%v: %v", s, err)
		} else if !strings.HasPrefix(err.Error(), s.Name.String()+": ") {
			t.Errorf("%v: %v", s, err)
		}
	}
}

func TestSignalNumbersAndNamesAreStable(t *testing.T) {
	for n, want := range []string{"none", "entropy", "p_end", "eat", "rpdi", "rpdi_indicator", "signal(6)"} {
		if got := SignalName(n).String(); got != want {
			t.Errorf("signal %d is %q, want %q", n, got, want)
		}
	}
}
