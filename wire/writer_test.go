package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

var errFull = errors.New("device full")

// failingWriter takes left bytes and then fails.
type failingWriter struct {
	bytes.Buffer
	left int
}

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestWritePayload(t *testing.T) {
	for _, n := range []int{0, 1, 1024, streamPiece - 1, streamPiece, streamPiece + 1, 3*streamPiece + 5} {
		body := patterned(n)
		var out bytes.Buffer
		// The source is longer than size: only the first size bytes are the body.
		h, err := WritePayload(&out, ThinkActive, bytes.NewReader(append(bytes.Clone(body), 1, 2, 3)), int64(n))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if !bytes.Equal(out.Bytes(), payloadOf(t, ThinkActive, body)) || int(h.BodyLen) != n || h.Sum != SumOf(body) {
			t.Fatalf("%d bytes: wrong payload, header %+v", n, h)
		}
	}
}

func TestWritePayloadRefusals(t *testing.T) {
	var out bytes.Buffer
	src := bytes.NewReader(patterned(100))
	_, err := WritePayload(&out, 3, src, 100)
	wantError(t, err, &TierError{Got: 3})
	_, err = WritePayload(&out, ThinkActive, src, MaxBody+1)
	wantError(t, err, &TooLargeError{Got: MaxBody + 1, Limit: MaxBody})
	_, err = WritePayload(&out, ThinkActive, src, 101)
	wantError(t, err, &TruncatedError{Have: HeaderLen + 100, Need: HeaderLen + 101})
	_, err = WritePayload(&out, ThinkActive, src, -1)
	wantError(t, err, &TruncatedError{Need: HeaderLen})
	if out.Len() != 0 {
		t.Fatalf("%d bytes were written by refused calls", out.Len())
	}
}

// changingSource flips a byte of its first piece once all of it was read.
type changingSource struct {
	body   []byte
	change bool
}

func (s *changingSource) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, s.body[off:])
	if s.change && off+int64(n) == int64(len(s.body)) {
		s.body[0] ^= 1
		s.change = false
	}
	return n, nil
}

func TestWritePayloadNoticesAChangedSource(t *testing.T) {
	body := patterned(2*streamPiece + 10)
	want := SumOf(body)
	var out bytes.Buffer
	_, err := WritePayload(&out, ThinkActive, &changingSource{body, true}, int64(len(body)))
	wantError(t, err, &ChecksumError{Want: want, Got: SumOf(body)})
	if _, _, err := Decode(out.Bytes(), Lenient, MaxBody); !errors.Is(err, CodeTruncated) {
		t.Fatalf("what was written reads as %v, want truncated", err)
	}
}

func TestWritePayloadPassesErrorsOn(t *testing.T) {
	body := patterned(streamPiece + 10)
	for _, left := range []int{0, HeaderLen - 1, HeaderLen, HeaderLen + 5, HeaderLen + streamPiece} {
		if _, err := WritePayload(&failingWriter{left: left}, ThinkActive, bytes.NewReader(body), int64(len(body))); err != errFull {
			t.Fatalf("writer with room for %d: %v", left, err)
		}
	}
}

func TestWriterWritesTheHeaderLast(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "blocks"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("before"); err != nil {
		t.Fatal(err)
	}
	body := patterned(5000)
	w := NewWriter(f, OutputCritical, 5000)
	for _, cut := range [][2]int{{0, 1}, {1, 1}, {1, 4096}, {4096, 5000}} {
		if n, err := w.Write(body[cut[0]:cut[1]]); n != cut[1]-cut[0] || err != nil {
			t.Fatal(n, err)
		}
	}
	onDisk := func() []byte {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return b[len("before"):]
	}
	for m := range modeNames {
		if _, _, err := Decode(onDisk(), m, MaxBody); !errors.Is(err, CodeMagic) {
			t.Fatalf("unfinished, %s: %v, want no payload", modeNames[m], err)
		}
	}
	h, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Finish(); again != h || err != nil {
		t.Fatalf("second Finish: %+v, %v", again, err)
	}
	if _, err := w.Write([]byte("more")); !errors.Is(err, errFinished) {
		t.Fatalf("Write after Finish: %v", err)
	}
	// The next payload follows at once.
	if _, err := NewWriter(f, ThinkActive, 0).Finish(); err != nil {
		t.Fatal(err)
	}
	want := append(payloadOf(t, OutputCritical, body), payloadOf(t, ThinkActive, nil)...)
	if !bytes.Equal(onDisk(), want) {
		t.Fatal("the file holds something else than two payloads")
	}
}

// memSeeker is an io.WriteSeeker over memory that fails on demand.
type memSeeker struct {
	b                   []byte
	off                 int64
	failWrite, failSeek int // fail at the n-th call from now; 0: never
}

func (s *memSeeker) Write(p []byte) (int, error) {
	if s.failWrite--; s.failWrite == 0 {
		return 0, errFull
	}
	if need := int(s.off) + len(p); need > len(s.b) {
		s.b = append(s.b, make([]byte, need-len(s.b))...)
	}
	n := copy(s.b[s.off:], p)
	s.off += int64(n)
	return n, nil
}

func (s *memSeeker) Seek(off int64, whence int) (int64, error) {
	if s.failSeek--; s.failSeek == 0 {
		return 0, errFull
	}
	switch whence {
	case io.SeekStart:
		s.off = off
	case io.SeekCurrent:
		s.off += off
	case io.SeekEnd:
		s.off = int64(len(s.b)) + off
	}
	return s.off, nil
}

func TestWriterFailedAnywhereLeavesNoPayload(t *testing.T) {
	body := patterned(100)
	write := func(dst io.WriteSeeker) error {
		w := NewWriter(dst, ThinkActive, MaxBody)
		for _, p := range [][]byte{body[:60], body[60:]} {
			if _, err := w.Write(p); err != nil {
				if _, ferr := w.Finish(); ferr != err {
					t.Fatalf("Finish after %v: %v", err, ferr)
				}
				return err
			}
		}
		_, err := w.Finish()
		return err
	}
	good := &memSeeker{}
	if err := write(good); err != nil || !bytes.Equal(good.b, payloadOf(t, ThinkActive, body)) {
		t.Fatal("the fault-free run failed", err)
	}
	// Four writes (zeros, two of body, header); the last of three seeks comes
	// after the commit.
	for n := 1; n <= 4; n++ {
		dst := &memSeeker{failWrite: n}
		if err := write(dst); err != errFull {
			t.Fatalf("write %d failed: %v", n, err)
		}
		if _, _, err := Decode(dst.b, Lenient, MaxBody); err == nil {
			t.Fatalf("write %d failed, yet there is a payload", n)
		}
	}
	for n := 1; n <= 2; n++ {
		dst := &memSeeker{failSeek: n}
		if err := write(dst); err != errFull {
			t.Fatalf("seek %d failed: %v", n, err)
		}
		if _, _, err := Decode(dst.b, Lenient, MaxBody); err == nil {
			t.Fatalf("seek %d failed, yet there is a payload", n)
		}
	}
}

func TestWriterKeepsItsLimitAndTier(t *testing.T) {
	dst := &memSeeker{}
	w := NewWriter(dst, ThinkActive, 10)
	if _, err := w.Write(patterned(8)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Write(patterned(3))
	wantError(t, err, &TooLargeError{Got: 11, Limit: 10})
	if len(dst.b) != HeaderLen+8 {
		t.Fatalf("%d bytes in the destination", len(dst.b))
	}
	_, err = w.Finish()
	wantError(t, err, &TooLargeError{Got: 11, Limit: 10})

	dst = &memSeeker{}
	_, err = NewWriter(dst, 3, 10).Finish()
	wantError(t, err, &TierError{Got: 3})
	if len(dst.b) != 0 {
		t.Fatal("a writer with no valid tier wrote")
	}
}
