package client

import (
	"context"
	"sync"
	"unsafe"

	"meridian/internal/invariants"
	"meridian/wire"
)

// ringAlign keeps bodies apart from one another's cache lines.
const ringAlign = 64

// ring hands out pieces of the staging ring, front to back; a piece is used again
// when all in front of it are free as well. Only this side decides where bodies
// lie: the daemon checks that they are inside.
type ring struct {
	mu     sync.Mutex
	b      []byte
	head   uint64 // of the next piece, never wrapped
	tail   uint64 // of the oldest piece in use
	pieces []piece
	first  uint64            // id of pieces[0]
	staged map[uint64]uint64 // offset of a body that Stage returned -> id
	wake   chan struct{}     // closed when room came free
}

// piece is a run of the ring, with the unused bytes at the ring's end that it
// skipped.
type piece struct {
	size uint64
	free bool
}

func (r *ring) init() {
	r.staged = map[uint64]uint64{}
	r.wake = make(chan struct{})
}

func (r *ring) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b != nil
}

func (r *ring) set(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = b
}

// take finds n bytes, at least one. ok is false when there is no room now; wake
// is closed when that may have changed.
func (r *ring) take(n int) (b []byte, off, id uint64, ok bool, wake <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(len(r.b))
	if size == 0 {
		return nil, 0, 0, false, r.wake
	}
	need := (uint64(n) + ringAlign - 1) &^ (ringAlign - 1)
	off = r.head % size
	skip := uint64(0)
	if off+need > size {
		off, skip = 0, size-off
	}
	if len(r.pieces) == 0 {
		off, skip, r.head, r.tail = 0, 0, 0, 0 // an empty ring has no seam
	}
	if need > size || r.head+skip+need-r.tail > size {
		return nil, 0, 0, false, r.wake
	}
	r.head += skip + need
	r.pieces = append(r.pieces, piece{size: skip + need})
	return r.b[off : off+uint64(n) : off+uint64(n)], off, r.first + uint64(len(r.pieces)) - 1, true, nil
}

// release frees a piece.
func (r *ring) release(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if invariants.Enabled && (id < r.first || r.pieces[id-r.first].free) {
		panic("client: a piece of the staging ring is released twice")
	}
	r.pieces[id-r.first].free = true
	n := 0
	for n < len(r.pieces) && r.pieces[n].free {
		r.tail += r.pieces[n].size
		n++
	}
	if n == 0 {
		return
	}
	r.first += uint64(n)
	r.pieces = append(r.pieces[:0], r.pieces[n:]...)
	close(r.wake)
	r.wake = make(chan struct{})
}

// unstage tells whether b is what Stage returned, and takes it out.
func (r *ring) unstage(b []byte) (off, id uint64, ok bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.b) == 0 {
		return 0, 0, false
	}
	at, start := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&r.b[0]))
	if at < start || at-start >= uintptr(len(r.b)) {
		return 0, 0, false
	}
	off = uint64(at - start)
	if id, ok = r.staged[off]; ok {
		delete(r.staged, off)
	}
	return off, id, ok
}

// Stage returns n bytes of the staging ring, at least one, to be filled and then
// put as a Body from their first byte on (it may be shortened): Put does not copy
// such a body, and takes the bytes back whatever happens. Stage waits for room. It
// needs an open namespace; TOO_LARGE: the ring is smaller.
func (e *Engine) Stage(ctx context.Context, n int) ([]byte, error) {
	if n <= 0 {
		return nil, &RequestError{Op: "stage", Code: wire.CodeInvalid, Text: "less than one byte"}
	}
	if !e.maps.get() {
		return nil, e.Err()
	}
	b, off, id, err := e.room(ctx, n)
	if err != nil {
		e.maps.put()
		return nil, err
	}
	e.ring.mu.Lock()
	e.ring.staged[off] = id
	e.ring.mu.Unlock()
	return b, nil
}

// Unstage gives back bytes of Stage that will not be put.
func (e *Engine) Unstage(b []byte) {
	if _, id, ok := e.ring.unstage(b); ok {
		e.ring.release(id)
		e.maps.put()
	}
}

// room waits for n bytes of the ring.
func (e *Engine) room(ctx context.Context, n int) (b []byte, off, id uint64, err error) {
	for {
		b, off, id, ok, wake := e.ring.take(n)
		if ok {
			return b, off, id, nil
		}
		if err := e.fits(n); err != nil {
			return nil, 0, 0, err
		}
		select {
		case <-wake:
		case <-e.gone:
			return nil, 0, 0, e.Err()
		case <-ctx.Done():
			return nil, 0, 0, contextError("stage", ctx.Err())
		}
	}
}

// fits tells whether n bytes can ever be had.
func (e *Engine) fits(n int) error {
	e.ring.mu.Lock()
	defer e.ring.mu.Unlock()
	switch {
	case e.ring.b == nil:
		return &RequestError{Op: "stage", Code: wire.CodeState, Text: "no namespace is open, so there is no staging ring"}
	case uint64(n) > uint64(len(e.ring.b)):
		return &RequestError{Op: "stage", Code: wire.CodeTooLarge, Text: "larger than the staging ring"}
	}
	return nil
}
