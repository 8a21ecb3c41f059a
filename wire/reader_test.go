package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// readAll drains a Reader as Decode would, with Read calls of size bytes.
func readAll(r *Reader, size int) (Header, []byte, error) {
	h, err := r.Header()
	if err != nil {
		return Header{}, nil, err
	}
	var body []byte
	p := make([]byte, size)
	for {
		n, err := r.Read(p)
		body = append(body, p[:n]...)
		if err == io.EOF {
			return h, body, nil
		}
		if err != nil {
			return Header{}, nil, err
		}
	}
}

// slicings are ways in which a stream may hand out its bytes.
var slicings = map[string]func(io.Reader) io.Reader{
	"whole":         func(r io.Reader) io.Reader { return r },
	"one byte":      iotest.OneByteReader,
	"halves":        iotest.HalfReader,
	"EOF with data": iotest.DataErrReader,
}

func TestReaderReadsWhatDecodeReads(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 1024, 1025, 8192, 70000} {
		body := patterned(n)
		p := payloadOf(t, OutputCritical, body)
		for name, slice := range slicings {
			for _, size := range []int{1, 13, 4096, n + 1} {
				h, got, err := readAll(NewReader(slice(bytes.NewReader(p)), Strict, uint32(n)), size)
				if err != nil || !bytes.Equal(got, body) || h.Tier != OutputCritical || int(h.BodyLen) != n {
					t.Fatalf("%d bytes, %s, reads of %d: %+v, %d bytes, %v", n, name, size, h, len(got), err)
				}
			}
		}
	}
}

func TestReaderIsAReader(t *testing.T) {
	body := patterned(3000)
	r := NewReader(bytes.NewReader(payloadOf(t, ThinkActive, body)), Strict, MaxBody)
	if err := iotest.TestReader(r, body); err != nil {
		t.Fatal(err)
	}
}

func TestReaderCutAtEveryByte(t *testing.T) {
	p := payloadOf(t, ThinkActive, patterned(70))
	for n := range p {
		_, _, want := Decode(p[:n], Strict, MaxBody)
		for name, slice := range slicings {
			for m := range modeNames {
				r := NewReader(slice(bytes.NewReader(p[:n])), m, MaxBody)
				_, _, err := readAll(r, 16)
				wantError(t, err, want)
				if _, again := r.Read(make([]byte, 1)); again != err {
					t.Fatalf("cut at %d, %s: the error did not stay: %v", n, name, again)
				}
			}
		}
	}
}

func TestReaderEverySingleBitFlip(t *testing.T) {
	const limit = 1 << 10
	good := payloadOf(t, ThinkComplete, []byte("reasoning-kv"))
	for i := range good {
		for bit := range 8 {
			p := bytes.Clone(good)
			p[i] ^= 1 << bit
			for m, name := range modeNames {
				_, _, err := readAll(NewReader(bytes.NewReader(p), m, limit), 5)
				if want := flipOutcome(p, i, m, limit); CodeOf(err) != want {
					t.Fatalf("%s: byte %d bit %d: %v, want %v", name, i, bit, err, want)
				}
			}
		}
	}
}

// TestReaderHoldsTheLastPieceBack is why io.ReadFull is safe: it drops an error
// that comes with the last bytes, so those bytes must not come.
func TestReaderHoldsTheLastPieceBack(t *testing.T) {
	good := payloadOf(t, ThinkActive, patterned(5000))
	corrupt := bytes.Clone(good)
	corrupt[HeaderLen+17] ^= 1
	for name, p := range map[string][]byte{"corrupt": corrupt, "trailing": append(bytes.Clone(good), 0)} {
		for slicing, slice := range slicings {
			r := NewReader(slice(bytes.NewReader(p)), Strict, MaxBody)
			h, err := r.Header()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.ReadFull(r, make([]byte, h.BodyLen)); err == nil || n == int(h.BodyLen) {
				t.Fatalf("%s, %s: ReadFull got %d bytes, %v", name, slicing, n, err)
			}
		}
	}
}

func TestReaderEmptyBodyIsCheckedWithTheHeader(t *testing.T) {
	p := Header{Sum: SumOf([]byte("something else"))}.Append(nil)
	_, err := NewReader(bytes.NewReader(p), Strict, 0).Header()
	wantError(t, err, &ChecksumError{Want: SumOf([]byte("something else")), Got: SumOf(nil)})

	p = append(payloadOf(t, ThinkActive, nil), 0)
	_, err = NewReader(bytes.NewReader(p), Strict, 0).Header()
	wantError(t, err, &TrailingError{N: 1})
}

func TestReaderTakesNotOneByteBeyond(t *testing.T) {
	src := bytes.NewReader(append(payloadOf(t, ThinkActive, patterned(100)), "next"...))
	if _, _, err := readAll(NewReader(src, Lenient, MaxBody), 64); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(src); string(rest) != "next" {
		t.Fatalf("lenient left %q", rest)
	}
}

func TestReaderRefusesALengthBeforeItReadsBody(t *testing.T) {
	src := bytes.NewReader(payloadOf(t, ThinkActive, patterned(101)))
	r := NewReader(src, Strict, 100)
	_, err := r.Header()
	wantError(t, err, &TooLargeError{Got: 101, Limit: 100})
	if src.Len() != 101 {
		t.Fatalf("%d body bytes left in the stream, want all 101", src.Len())
	}
	if n, again := r.Read(make([]byte, 200)); n != 0 || again != err {
		t.Fatalf("Read after the refusal: %d, %v", n, again)
	}
}

// lastBytesError returns err once, together with its last bytes, and is at its
// end afterwards.
type lastBytesError struct {
	b   []byte
	err error
}

func (r *lastBytesError) Read(p []byte) (int, error) {
	n := copy(p, r.b)
	r.b = r.b[n:]
	switch {
	case n == 0:
		return 0, io.EOF
	case len(r.b) > 0:
		return n, nil
	}
	return n, r.err
}

func TestReaderPassesTheStreamsErrorOn(t *testing.T) {
	broken := errors.New("cable pulled")
	p := payloadOf(t, ThinkActive, patterned(50))
	for n := range len(p) + 1 {
		src := io.MultiReader(bytes.NewReader(p[:n]), iotest.ErrReader(broken))
		_, _, err := readAll(NewReader(src, Strict, MaxBody), 7)
		if err != broken {
			t.Fatalf("broken after %d bytes: %v", n, err)
		}
	}
	// The error may also come with the last bytes.
	src := &lastBytesError{p, broken}
	if _, _, err := readAll(NewReader(src, Strict, MaxBody), 100); err != broken {
		t.Fatalf("broken with the last bytes: %v", err)
	}
	// A lenient reader has all it needs once the body is complete.
	if _, body, err := readAll(NewReader(&lastBytesError{p, broken}, Lenient, MaxBody), 100); err != nil || len(body) != 50 {
		t.Fatalf("lenient: %d bytes, %v", len(body), err)
	}
	after := io.MultiReader(bytes.NewReader(p), iotest.ErrReader(broken))
	if _, body, err := readAll(NewReader(after, Lenient, MaxBody), 7); err != nil || len(body) != 50 {
		t.Fatalf("lenient: %d bytes, %v", len(body), err)
	}
}

func TestReaderReset(t *testing.T) {
	r := NewReader(bytes.NewReader([]byte("no payload at all, but long enough for a header")), Strict, 4096)
	if _, err := r.Header(); !errors.Is(err, CodeMagic) {
		t.Fatal(err)
	}
	for _, n := range []int{4096, 0, 100} {
		r.Reset(bytes.NewReader(payloadOf(t, ThinkActive, patterned(n))))
		if _, body, err := readAll(r, 1000); err != nil || !bytes.Equal(body, patterned(n)) {
			t.Fatalf("%d bytes: got %d, %v", n, len(body), err)
		}
	}
	r.Reset(bytes.NewReader(payloadOf(t, ThinkActive, patterned(4097))))
	_, err := r.Header()
	wantError(t, err, &TooLargeError{Got: 4097, Limit: 4096})
}
