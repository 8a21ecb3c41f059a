package wire

import (
	"errors"
	"testing"
)

func TestOnlyHashingMintsAProof(t *testing.T) {
	body := patterned(5000)
	src := patterned(5000)
	dst := make([]byte, 6000)
	var h Hasher
	for at := 0; at < len(body); at += 700 {
		_, _ = h.Write(body[at:min(at+700, len(body))])
	}
	want := SumOf(body)
	for name, c := range map[string]struct {
		v  Verified
		of []byte
	}{
		"Hash":            {Hash(body), body},
		"CopySum":         {CopySum(dst, src), dst[:5000]},
		"Hasher.Verified": {h.Verified(), body},
	} {
		if !c.v.OK() || c.v.Sum() != want || c.v.Len() != len(body) || !c.v.Of(c.of) {
			t.Errorf("%s: ok %v, sum %v, length %d, of its memory %v", name, c.v.OK(), c.v.Sum(), c.v.Len(), c.v.Of(c.of))
		}
		other := append([]byte(nil), body...)
		if c.v.Of(other) || c.v.Of(c.of[:4999]) || c.v.Of(c.of[1:]) {
			t.Errorf("%s: a proof of other memory, or of a part", name)
		}
	}
	var none Verified
	if none.OK() || none.Of(nil) || none.Of(body) {
		t.Error("the zero value proves something")
	}
	if v := Hash(nil); !v.Of(nil) || !v.Of(body[:0]) || v.Sum() != SumOf(nil) {
		t.Error("the empty body's proof")
	}
}

// A Hasher that was given pieces from two places has hashed no memory that lies
// in one, so it is proof of none.
func TestAHasherOfScatteredPiecesProvesNothing(t *testing.T) {
	body := patterned(4096)
	copied := append([]byte(nil), body[2048:]...)
	var h Hasher
	_, _ = h.Write(body[:2048])
	_, _ = h.Write(copied)
	if h.Sum() != SumOf(body) {
		t.Fatal("the sum itself is of the bytes, wherever they lie")
	}
	if h.Verified().OK() {
		t.Error("proof of memory that was not hashed as a whole")
	}
	h.Reset()
	_, _ = h.Write(nil)
	_, _ = h.Write(body)
	if !h.Verified().Of(body) {
		t.Error("Reset does not forget the pieces")
	}
}

func TestMatchSaysWhyAProofIsOfAnotherBody(t *testing.T) {
	body := patterned(100)
	h, err := Mint(ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Match(Hash(body)); err != nil {
		t.Error(err)
	}
	var short *TruncatedError
	if err := h.Match(Hash(body[:99])); !errors.As(err, &short) {
		t.Errorf("a shorter body: %v", err)
	}
	var long *TrailingError
	if err := h.Match(Hash(patterned(101))); !errors.As(err, &long) || long.N != 1 {
		t.Errorf("a longer body: %v", err)
	}
	bad := append([]byte(nil), body...)
	bad[50] ^= 1
	var sum *ChecksumError
	if err := h.Match(Hash(bad)); !errors.As(err, &sum) || sum.Got != SumOf(bad) || sum.Want != h.Sum {
		t.Errorf("another body: %v", err)
	}
	if err := h.Match(Verified{}); !errors.Is(err, CodeChecksum) {
		t.Errorf("no proof: %v", err)
	}
}
