package client

import (
	"context"
	"fmt"
	"sync"

	"meridian/internal/invariants"
	"meridian/wire"
	"meridian/wire/link"
)

// ringAlign keeps bodies apart from one another's cache lines.
const ringAlign = 64

// ring hands out pieces of the staging ring, front to back; a piece is used again
// when all in front of it are free as well. Only this side decides where bodies
// lie: the daemon checks that they are inside. A ring grows at its end, so that
// what is in use stays where it is.
type ring struct {
	mu     sync.Mutex
	b      []byte
	pieces []piece               // in use, oldest first; free ones wait for those before them
	first  uint64                // id of pieces[0]
	staged map[*byte]stagedPiece // first byte of a body that Stage returned
	wake   chan struct{}         // closed when room came free
}

type piece struct {
	off, end uint64
	free     bool
}

type stagedPiece struct{ off, id uint64 }

func (r *ring) init() {
	r.staged = map[*byte]stagedPiece{}
	r.wake = make(chan struct{})
}

func (r *ring) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.b)
}

// set takes a map of the whole ring: the first, or a larger one of the same memory.
func (r *ring) set(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = b
	r.wakeAll()
}

func (r *ring) wakeAll() {
	close(r.wake)
	r.wake = make(chan struct{})
}

// take finds n bytes, at least one. ok is false when there is no room now; wake
// is closed when that may have changed.
func (r *ring) take(n int) (b []byte, off, id uint64, ok bool, wake <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := (uint64(n) + ringAlign - 1) &^ (ringAlign - 1)
	off, limit := uint64(0), uint64(len(r.b))
	if len(r.pieces) > 0 {
		oldest := r.pieces[0].off
		if off = r.pieces[len(r.pieces)-1].end; off <= oldest { // came round
			limit = oldest
		} else if off+need > limit {
			off, limit = 0, oldest
		}
	}
	if off+need > limit {
		return nil, 0, 0, false, r.wake
	}
	r.pieces = append(r.pieces, piece{off: off, end: off + need})
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
		n++
	}
	if n == 0 {
		return
	}
	r.first += uint64(n)
	r.pieces = append(r.pieces[:0], r.pieces[n:]...)
	r.wakeAll()
}

// unstage tells whether b is what Stage returned, and takes it out.
func (r *ring) unstage(b []byte) (off, id uint64, ok bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.staged[&b[0]]
	delete(r.staged, &b[0])
	return p.off, p.id, ok
}

// Stage returns n bytes of the staging ring, at least one, to be filled and then
// put as a Body from their first byte on (it may be shortened): Put does not copy
// such a body, and takes the bytes back whatever happens. Stage waits for room in
// the ring. It needs an open namespace. A *RequestError where the daemon has no
// ring that holds n bytes: BUSY for as long as others have too much, TOO_LARGE above
// its limit.
func (e *Engine) Stage(ctx context.Context, n int) ([]byte, error) {
	if n <= 0 {
		return nil, &RequestError{Op: "stage", Code: wire.CodeInvalid, Text: "less than one byte"}
	}
	if !e.maps.get() {
		return nil, e.Err()
	}
	err := e.needRing(ctx, n)
	var b []byte
	var off, id uint64
	if err == nil {
		b, off, id, err = e.room(ctx, n)
	}
	if err != nil {
		e.maps.put()
		return nil, err
	}
	e.ring.mu.Lock()
	e.ring.staged[&b[0]] = stagedPiece{off, id}
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

// room waits for n bytes of a ring that has as many.
func (e *Engine) room(ctx context.Context, n int) (b []byte, off, id uint64, err error) {
	for {
		b, off, id, ok, wake := e.ring.take(n)
		if ok {
			return b, off, id, nil
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

// needRing asks for a ring that holds n bytes, unless there is one. It needs a call,
// so nobody may hold one who waits here. A daemon without FeatureRing gave the ring
// with the first namespace, for good.
func (e *Engine) needRing(ctx context.Context, n int) error {
	size := e.ring.size()
	switch {
	case n <= size:
		return nil
	case e.features&link.FeatureRing == 0 && size == 0:
		return &RequestError{Op: "stage", Code: wire.CodeState, Text: "no namespace is open, so there is no staging ring"}
	case e.features&link.FeatureRing == 0:
		return &RequestError{Op: "stage", Code: wire.CodeTooLarge, Text: fmt.Sprintf("%d bytes, the staging ring has %d", n, size)}
	}
	c, err := e.take(ctx, "stage")
	if err != nil {
		return err
	}
	if err := simple(ctx, e, c, link.TypeMap, link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: uint64(n)}}}); err != nil {
		return err
	}
	if size := e.ring.size(); size < n {
		return protocolError(wire.CodeState, "a staging ring of %d bytes was granted, and there is one of %d", n, size)
	}
	return nil
}
