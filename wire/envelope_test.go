package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func TestEnvelopeGolden(t *testing.T) {
	payload := payloadOf(t, ThinkComplete, []byte("reasoning-kv"))
	b, err := AppendEnvelope([]byte("before"), payload)
	if err != nil {
		t.Fatal(err)
	}
	b = b[len("before"):]
	if got := hex.EncodeToString(b[:8]); got != "4d4e434b2c000000" || len(b) != 52 {
		t.Fatalf("%d bytes, beginning %s", len(b), got)
	}
	got, rest, err := ParseEnvelope(b)
	if err != nil || !bytes.Equal(got, payload) || len(rest) != 0 {
		t.Fatalf("payload %x, rest %x, %v", got, rest, err)
	}
	if _, body, err := Decode(got, Strict, MaxBody); err != nil || string(body) != "reasoning-kv" {
		t.Fatalf("body %q, %v", body, err)
	}
}

func TestEnvelopeCutAtEveryByte(t *testing.T) {
	b, err := AppendEnvelope(nil, payloadOf(t, ThinkComplete, []byte("reasoning-kv")))
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		need := uint64(len(b))
		if n < EnvelopeLen {
			need = EnvelopeLen
		}
		payload, rest, err := ParseEnvelope(b[:n])
		wantError(t, err, &EnvelopeError{&TruncatedError{Have: uint64(n), Need: need}})
		if payload != nil || rest != nil || !errors.Is(err, CodeTruncated) {
			t.Fatalf("cut at %d: %x, %x, %v", n, payload, rest, err)
		}
	}
}

func TestEnvelopeMagicComesBeforeLength(t *testing.T) {
	for i := range 4 {
		b := []byte("MNCK\xff\xff\xff\xff")
		b[i] ^= 0x20
		_, _, err := ParseEnvelope(b)
		wantError(t, err, &EnvelopeError{&MagicError{Want: envelopeMagic, Got: [4]byte(b)}})
	}
	_, _, err := ParseEnvelope([]byte("MNCK\xff\xff\xff\xff"))
	wantError(t, err, &EnvelopeError{&TruncatedError{Have: 8, Need: 8 + MaxBody}})
}

func TestEnvelopesOneAfterAnother(t *testing.T) {
	var b []byte
	for _, p := range []string{"first", "", "third"} {
		b, _ = AppendEnvelope(b, []byte(p))
	}
	for _, want := range []string{"first", "", "third"} {
		payload, rest, err := ParseEnvelope(b)
		if err != nil || string(payload) != want {
			t.Fatalf("payload %q, %v; want %q", payload, err, want)
		}
		if cap(payload) != len(payload) {
			t.Fatal("an append to the payload would overwrite the next envelope")
		}
		b = rest
	}
	if len(b) != 0 {
		t.Fatalf("rest %q", b)
	}
}
