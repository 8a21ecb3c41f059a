package wire

import "io"

// Reader reads one payload from a stream and hashes it on the way, so that the
// body is never needed in one slice.
//
// Bytes that Read returned are not verified until io.EOF came, except for a
// caller that asked for the whole body: the last piece is held back until the
// checksum matched, so io.ReadFull over Header().BodyLen bytes never succeeds
// with a body that does not match.
//
// A strict Reader looks one byte ahead after the body and so waits for the
// stream's end; give it an io.LimitReader where more follows. A lenient Reader
// takes not one byte beyond the body.
type Reader struct {
	src   io.Reader
	mode  Mode
	limit uint32

	head   Header
	parsed bool
	left   uint32 // bytes of body not yet read from src
	err    error  // sticky; io.EOF after a match
	sum    Hasher
	room   [HeaderLen]byte
}

// NewReader returns a Reader that takes a body of at most limit bytes.
func NewReader(src io.Reader, m Mode, limit uint32) *Reader {
	return &Reader{src: src, mode: m, limit: limit}
}

// Reset makes r read the next payload, from src, with the same mode and limit.
func (r *Reader) Reset(src io.Reader) {
	r.sum.Reset()
	*r = Reader{src: src, mode: r.mode, limit: r.limit, sum: r.sum}
}

// Header reads the header, unless that was done before, and returns it. The
// errors are those of ParseHeader and of the stream; an empty body is checked
// at once, with the errors of Header.Check.
func (r *Reader) Header() (Header, error) {
	if !r.parsed && r.err == nil {
		r.err = r.parse()
	}
	if r.err != nil && r.err != io.EOF {
		return Header{}, r.err
	}
	return r.head, nil
}

func (r *Reader) parse() error {
	n, err := io.ReadFull(r.src, r.room[:])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &TruncatedError{Have: uint64(n), Need: HeaderLen}
	}
	if err != nil {
		return err
	}
	r.head, err = ParseHeader(r.room[:], r.mode, r.limit)
	if err != nil {
		return err
	}
	r.parsed, r.left = true, r.head.BodyLen
	if r.left == 0 {
		return r.finish(nil)
	}
	return nil
}

// Read reads body bytes into p. It returns io.EOF only after the whole body
// was read and its checksum matched; the other errors are those of Decode and
// of the stream, and stay.
func (r *Reader) Read(p []byte) (int, error) {
	if _, err := r.Header(); err != nil {
		return 0, err
	}
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if uint64(len(p)) > uint64(r.left) {
		p = p[:r.left]
	}
	n, err := r.src.Read(p)
	_, _ = r.sum.Write(p[:n])
	r.left -= uint32(n)
	switch {
	case r.left == 0:
		if r.err = r.finish(err); r.err != io.EOF {
			return 0, r.err
		}
		return n, nil
	case err == io.EOF:
		r.err = r.head.truncated(uint64(r.head.BodyLen - r.left))
	case err != nil:
		r.err = err
	}
	return n, r.err
}

// finish checks what can be checked only when the body is complete. readErr is
// what the stream returned with the last bytes.
func (r *Reader) finish(readErr error) error {
	if got := r.sum.Sum(); got != r.head.Sum {
		return &ChecksumError{Want: r.head.Sum, Got: got}
	}
	if r.mode == Lenient {
		return io.EOF
	}
	if readErr == nil {
		_, readErr = io.ReadFull(r.src, r.room[:1])
	}
	if readErr == nil {
		return &TrailingError{N: 1}
	}
	return readErr
}
