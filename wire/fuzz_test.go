package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
)

func fuzzMode(lenient bool) Mode {
	if lenient {
		return Lenient
	}
	return Strict
}

func seedPayloads(f *testing.F, add func(p []byte)) {
	for _, g := range goldenHeaders[:5] {
		add(append(fromHex(f, g.header), g.body...))
	}
	for _, n := range []int{0, 31, 32, 40} {
		add(append(fromHex(f, goldenHeaders[1].header), goldenHeaders[1].body...)[:n])
	}
	add(append(append(fromHex(f, goldenHeaders[1].header), goldenHeaders[1].body...), "tail"...))
	add(append([]byte("MRDN\x01\x00\x00\x00\xff\xff\xff\xff\x07\x01\x02\x03"), make([]byte, 16)...))
}

// FuzzDecode: what a reader takes is what a writer makes, and what it refuses
// is one of the errors of the format.
func FuzzDecode(f *testing.F) {
	seedPayloads(f, func(p []byte) { f.Add(p, false, uint32(1<<20)); f.Add(p, true, uint32(12)) })
	f.Fuzz(func(t *testing.T, p []byte, lenient bool, limit uint32) {
		before := bytes.Clone(p)
		m := fuzzMode(lenient)
		h, body, err := Decode(p, m, limit)
		if !bytes.Equal(p, before) {
			t.Fatal("Decode changed its input")
		}
		head, headErr := ParseHeader(p, m, limit)
		if headErr != nil && !reflect.DeepEqual(headErr, err) {
			t.Fatalf("ParseHeader says %v, Decode %v", headErr, err)
		}
		if err != nil {
			switch CodeOf(err) {
			case CodeTruncated, CodeMagic, CodeVersion, CodeTooLarge, CodeChecksum:
			case CodeTier, CodePadding, CodeTrailing:
				if lenient {
					t.Fatalf("a lenient reader says %v", err)
				}
			default:
				t.Fatalf("no error of this format: %v", err)
			}
			if h != (Header{}) || body != nil {
				t.Fatalf("a refusal comes with %+v and %d bytes", h, len(body))
			}
			return
		}
		if head != h || h.BodyLen > limit || h.Tier > OutputCritical || len(body) != int(h.BodyLen) {
			t.Fatalf("took %+v with %d bytes, limit %d", h, len(body), limit)
		}
		again, err := AppendPayload(nil, h.Tier, body)
		if err != nil {
			t.Fatal(err)
		}
		if !lenient && !bytes.Equal(again, p) {
			t.Fatalf("strictly read\n%x, written\n%x", p, again)
		}
		if h2, body2, err := Decode(again, Strict, limit); err != nil || h2 != h || !bytes.Equal(body2, body) {
			t.Fatalf("written again: %+v, %v", h2, err)
		}
	})
}

// FuzzReader: a stream, however sliced, is read as Decode reads the whole.
func FuzzReader(f *testing.F) {
	seedPayloads(f, func(p []byte) {
		f.Add(p, false, uint32(1<<20), uint8(0), uint8(7))
		f.Add(p, true, uint32(12), uint8(1), uint8(1))
	})
	f.Fuzz(func(t *testing.T, p []byte, lenient bool, limit uint32, slicing, size uint8) {
		wantHead, wantBody, wantErr := Decode(p, fuzzMode(lenient), limit)
		var trailing *TrailingError
		if errors.As(wantErr, &trailing) {
			trailing.N = 1 // a Reader looks no further
		}
		src := io.Reader(bytes.NewReader(p))
		switch slicing % 4 {
		case 1:
			src = iotest.OneByteReader(src)
		case 2:
			src = iotest.HalfReader(src)
		case 3:
			src = iotest.DataErrReader(src)
		}
		head, body, err := readAll(NewReader(src, fuzzMode(lenient), limit), int(size)+1)
		if !reflect.DeepEqual(err, wantErr) || head != wantHead || !bytes.Equal(body, wantBody) {
			t.Fatalf("Reader: %+v, %d bytes, %v\nDecode: %+v, %d bytes, %v", head, len(body), err, wantHead, len(wantBody), wantErr)
		}
	})
}

// FuzzEnvelope: an envelope and its rest put together are the input.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("MNCK\x04\x00\x00\x00bodyrest"))
	f.Add([]byte("MNCK\x00\x00\x00\x00"))
	f.Add([]byte("MNCK\xff\xff\xff\xff"))
	f.Add([]byte("MRDN"))
	f.Fuzz(func(t *testing.T, p []byte) {
		payload, rest, err := ParseEnvelope(p)
		if err != nil {
			if CodeOf(err) != CodeEnvelope || payload != nil || rest != nil {
				t.Fatalf("%x, %x, %v", payload, rest, err)
			}
			return
		}
		again, err := AppendEnvelope(nil, payload)
		if err != nil || !bytes.Equal(append(again, rest...), p) {
			t.Fatalf("%x came back as %x, %v", p, again, err)
		}
	})
}

// FuzzParseManifest: exactly one text is the form of a manifest.
func FuzzParseManifest(f *testing.F) {
	for _, g := range goldenManifests {
		f.Add(g.m.Append(nil))
	}
	for _, c := range refusedManifests {
		f.Add(bytes.Replace([]byte(fullManifestText), []byte(c.from), []byte(c.to), 1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			if CodeOf(err) != CodeManifest || m != (Manifest{}) {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%q is also written %q", b, again)
		}
		if err := m.Check(); err != nil {
			t.Fatalf("parsed, and yet %v", err)
		}
	})
}

// FuzzManifestValues: a manifest that passes Check survives, and one that does
// not has bytes that nothing parses.
func FuzzManifestValues(f *testing.F) {
	f.Add("acme", "qwen3", "kv", uint32(16))
	f.Add("a\nb", "", "x=y", uint32(0))
	f.Add("\xff", "\u0085", "kv\ntenant=acme\ntp_rank=0\ntp_size=1", uint32(1))
	f.Fuzz(func(t *testing.T, tenant, model, role string, n uint32) {
		m := Manifest{Tenant: tenant, Model: model, Role: role, BlockTokens: n}
		back, err := ParseManifest(m.Append(nil))
		switch check := m.Check(); {
		case check == nil && (err != nil || back != m):
			t.Fatalf("%+v came back as %+v, %v", m, back, err)
		case check != nil && err == nil:
			t.Fatalf("%+v fails with %v, yet its bytes parse as %+v", m, check, back)
		}
	})
}

// FuzzHasher: how a body is cut does not change its sum.
func FuzzHasher(f *testing.F) {
	f.Add(uint32(70000), uint16(1), uint16(8191))
	f.Add(uint32(1025), uint16(1024), uint16(1))
	f.Fuzz(func(t *testing.T, size uint32, first, second uint16) {
		body := patterned(int(size % (1 << 18)))
		want := SumOf(body)
		var h Hasher
		for i, rest := 0, body; len(rest) > 0; i++ {
			n := min(int(first)+1, len(rest))
			if i%2 == 1 {
				n = min(int(second)+1, len(rest))
			}
			_, _ = h.Write(rest[:n])
			if i < 4 && h.Sum() != SumOf(body[:len(body)-len(rest)+n]) {
				t.Fatalf("wrong sum after %d bytes", len(body)-len(rest)+n)
			}
			rest = rest[n:]
		}
		if got := h.Sum(); got != want {
			t.Fatalf("%d bytes by %d and %d: %s, want %s", len(body), first, second, got, want)
		}
	})
}
