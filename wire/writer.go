package wire

import (
	"errors"
	"io"
	"sync"

	"meridian/internal/invariants"
)

// streamPiece is how many bytes WritePayload holds at a time.
const streamPiece = 64 << 10

var streamRooms = sync.Pool{New: func() any { return new([streamPiece]byte) }}

// WritePayload writes header and body to w, the body being the first size
// bytes of src. It reads src twice, since the checksum comes first, and holds
// 64 KiB at a time. A source that is shorter is a *TruncatedError; one that
// changed between the passes is a *ChecksumError, and then the last piece of
// the body was not written, so that no reader takes it for whole. The errors
// of Mint come before anything is written; those of src and w are passed on.
func WritePayload(w io.Writer, t Tier, src io.ReaderAt, size int64) (Header, error) {
	if size < 0 {
		return Header{}, &TruncatedError{Need: HeaderLen}
	}
	if err := mintable(t, uint64(size), MaxBody); err != nil {
		return Header{}, err
	}
	h := Header{BodyLen: uint32(size), Tier: t}
	room := streamRooms.Get().(*[streamPiece]byte)
	defer func() { invariants.Overwrite(room[:]); streamRooms.Put(room) }()
	sum := hashers.Get().(*Hasher)
	defer func() { sum.Reset(); hashers.Put(sum) }()

	err := h.pieces(src, room[:], func(p []byte, _ bool) error {
		_, err := sum.Write(p)
		return err
	})
	if err != nil {
		return Header{}, err
	}
	h.Sum = sum.Sum()
	sum.Reset()
	h.Put(room[:])
	if _, err := w.Write(room[:HeaderLen]); err != nil {
		return Header{}, err
	}
	err = h.pieces(src, room[:], func(p []byte, last bool) error {
		_, _ = sum.Write(p)
		if last {
			if got := sum.Sum(); got != h.Sum {
				return &ChecksumError{Want: h.Sum, Got: got}
			}
		}
		_, err := w.Write(p)
		return err
	})
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

// pieces reads the body of h from src into room, piece by piece, and hands
// each to f.
func (h Header) pieces(src io.ReaderAt, room []byte, f func(p []byte, last bool) error) error {
	size := int64(h.BodyLen)
	for off := int64(0); off < size; {
		p := room[:min(size-off, int64(len(room)))]
		n, err := src.ReadAt(p, off)
		if n < len(p) {
			if err == io.EOF {
				return h.truncated(uint64(off) + uint64(n))
			}
			return err
		}
		off += int64(n)
		if err := f(p, off == size); err != nil {
			return err
		}
	}
	return nil
}

// Writer writes one payload to a seekable destination in one pass: zeros in
// the place of the header, the body, and at Finish the header. What was not
// finished begins with zeros and is no payload to any reader.
type Writer struct {
	dst     io.WriteSeeker
	limit   uint32
	head    Header // BodyLen grows with each Write
	start   int64  // offset of the header in dst
	begun   bool
	done    bool
	err     error // sticky
	sum     Hasher
	scratch [HeaderLen]byte
}

// errFinished is what a Write after Finish returns.
var errFinished = errors.New("mrdn: write after Finish")

// NewWriter returns a Writer that starts at dst's current offset and takes a
// body of at most limit bytes.
func NewWriter(dst io.WriteSeeker, t Tier, limit uint32) *Writer {
	return &Writer{dst: dst, limit: limit, head: Header{Tier: t}}
}

// begin notes where the header goes and writes zeros there.
func (w *Writer) begin() error {
	if w.err != nil || w.begun {
		return w.err
	}
	if w.err = mintable(w.head.Tier, 0, uint64(w.limit)); w.err != nil {
		return w.err
	}
	if w.start, w.err = w.dst.Seek(0, io.SeekCurrent); w.err != nil {
		return w.err
	}
	_, w.err = w.dst.Write(w.scratch[:])
	w.begun = w.err == nil
	return w.err
}

// Write adds p to the body. A body that would pass the limit is a
// *TooLargeError and p is not written. After any error the payload cannot be
// finished.
func (w *Writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, errFinished
	}
	if err := w.begin(); err != nil {
		return 0, err
	}
	size := uint64(w.head.BodyLen) + uint64(len(p))
	if w.err = mintable(w.head.Tier, size, uint64(w.limit)); w.err != nil {
		return 0, w.err
	}
	n, err := w.dst.Write(p)
	_, _ = w.sum.Write(p[:n])
	w.head.BodyLen += uint32(n)
	w.err = err
	return n, err
}

// Finish writes the header in front of the body, returns it, and leaves dst
// behind the body. It is the commit: a Writer that is dropped without Finish
// leaves no payload. A second call returns the same.
func (w *Writer) Finish() (Header, error) {
	if w.done {
		return w.head, nil
	}
	if err := w.begin(); err != nil {
		return Header{}, err
	}
	w.head.Sum = w.sum.Sum()
	w.head.Put(w.scratch[:])
	if _, w.err = w.dst.Seek(w.start, io.SeekStart); w.err != nil {
		return Header{}, w.err
	}
	if _, w.err = w.dst.Write(w.scratch[:]); w.err != nil {
		return Header{}, w.err
	}
	if _, w.err = w.dst.Seek(int64(w.head.BodyLen), io.SeekCurrent); w.err != nil {
		return Header{}, w.err
	}
	w.done = true
	return w.head, nil
}
