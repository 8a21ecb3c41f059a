package client

import (
	"context"
	"time"

	"meridian/wire"
	"meridian/wire/link"
)

// Reservation is room in the daemon for blocks whose bodies the engine writes into the
// staging ring in place: without a buffer that Put copies, and without a byte for a key
// that is stored already. Room, Fill and Wait are called by one goroutine:
//
//	r, err := e.Reserve(ctx, blocks, 0)
//	for i := range blocks {
//		b, err := r.Room(ctx, i) // where r.Errs[i] is nil
//		...                      // write the body to b
//		r.Fill(ctx, i, b)        // the daemon hashes it while the next is written
//	}
//	errs := r.Wait(ctx)
//
// Engine.PutInPlace does that.
type Reservation struct {
	// Errs has an entry for each block: nil where there is room. EXISTS: the key is
	// stored already, which is no loss. FULL: no room. After Wait it is what became of
	// each.
	Errs []error

	e     *Engine
	num   uint64
	size  []int
	rooms []stagedPiece // by block; id is valid where written
	state []roomState
	sent  []filling
	ended bool
}

type roomState uint8

const (
	notWritten roomState = iota
	writing              // Room was called
	sent                 // Fill was called
	skipped
)

// filling is one FILL under way.
type filling struct {
	c *call
	i int
}

// Reserve asks the daemon for room for blocks: NS, Key, Tier, Auto, Pos, Req, Pin and
// Len of each are read. Each block's outcome is in the result's Errs; the error is of
// the request as a whole, and nothing is reserved then. The room is the reservation's for ttl (0
// and above link.MaxLease: that), or until Wait, which must be called. It needs a group.
func (e *Engine) Reserve(ctx context.Context, blocks []Block, ttl time.Duration) (*Reservation, error) {
	if err := e.needGroup("reserve"); err != nil {
		return nil, err
	}
	if err := e.tooMany("reserve", len(blocks)); err != nil {
		return nil, err
	}
	if !e.maps.get() {
		return nil, e.Err()
	}
	r, err := e.reserve(ctx, blocks, ttl)
	if err != nil {
		e.maps.put()
		return nil, err
	}
	return r, nil
}

func (e *Engine) reserve(ctx context.Context, blocks []Block, ttl time.Duration) (*Reservation, error) {
	c, err := e.take(ctx, "reserve")
	if err != nil {
		return nil, err
	}
	n := len(blocks)
	r := &Reservation{e: e, Errs: make([]error, n), size: make([]int, n), rooms: make([]stagedPiece, n), state: make([]roomState, n)}
	c.store = c.store[:0]
	for i := range blocks {
		r.size[i] = blocks[i].Len
		it := blocks[i].item()
		it.Len = uint32(blocks[i].Len)
		c.store = append(c.store, it)
	}
	err = send(e, c, link.TypeReserve, link.Reserve{DeadlineMS: deadlineMS(ctx, 0), TTLms: milliseconds(ttl), Items: c.store})
	if err != nil {
		e.putBack(c)
		return nil, err
	}
	if err := e.wait(ctx, c); err != nil {
		return nil, err
	}
	defer e.putBack(c)
	if err := ended("reserve", &c.end); err != nil {
		return nil, err
	}
	if c.got != link.TypeReserved || len(c.reserved.Status) != n {
		return nil, protocolError(wire.CodeState, "RESERVE of %d items was answered with %d statuses", n, len(c.reserved.Status))
	}
	r.num = c.reserved.Rsv
	for i, code := range c.reserved.Status {
		r.Errs[i] = storeError("reserve", i, code, c.end.Text)
	}
	return r, nil
}

// Room returns the bytes of the staging ring that block i is to be written to. It waits
// until there are as many: those of blocks that were filled come free as the daemon has
// hashed them, in the order in which Room gave them out. So a caller that holds bytes that it
// neither fills nor skips can wait for itself. Bytes of Room are Fill's, or Wait's.
func (r *Reservation) Room(ctx context.Context, i int) ([]byte, error) {
	if r.Errs[i] != nil || r.ended || r.state[i] != notWritten {
		return nil, &RequestError{Op: "reserve", Code: wire.CodeState, Text: "this block has no room to be written to"}
	}
	if err := r.e.needRing(ctx, r.size[i]); err != nil {
		return nil, err
	}
	b, off, id, err := r.e.room(ctx, r.size[i])
	if err != nil {
		return nil, err
	}
	r.rooms[i], r.state[i] = stagedPiece{off, id}, writing
	return b, nil
}

// Skip says that block i will not be filled. Bytes of Room come free, which others may
// wait for; the daemon's room comes back with Wait.
func (r *Reservation) Skip(i int) {
	if r.state[i] == writing && !r.ended {
		r.e.ring.release(r.rooms[i].id)
		r.state[i] = skipped
	}
}

// Fill sends block i to be hashed and published, and does not wait for it. b is what
// Room returned, from its first byte on; it may be shortened.
func (r *Reservation) Fill(ctx context.Context, i int, b []byte) error {
	if r.state[i] != writing || r.ended || len(b) > r.size[i] {
		return &RequestError{Op: "fill", Code: wire.CodeState, Text: "these are no bytes of Room"}
	}
	c, err := r.e.take(ctx, "fill")
	if err != nil {
		return err
	}
	c.fill.Rsv, c.fill.Last = r.num, false
	c.fill.Items = append(c.fill.Items[:0], link.FillItem{Item: uint32(i), Len: uint32(len(b)), Off: r.rooms[i].off})
	c.spans = append(c.spans, r.rooms[i].id)
	if err := send(r.e, c, link.TypeFill, c.fill); err != nil {
		c.spans = c.spans[:0]
		r.e.putBack(c)
		return err
	}
	r.state[i] = sent
	r.sent = append(r.sent, filling{c, i})
	return nil
}

// errNotFilled is the outcome of a block that had room and was not filled.
var errNotFilled = &RequestError{Op: "fill", Code: wire.CodeCancelled, Text: "there was room for the block, and it was not filled"}

// Wait waits for what was filled, gives back the rest, and returns Errs. LEASE_LOST:
// the room was taken back because its time was over. It may be called again.
func (r *Reservation) Wait(ctx context.Context) []error {
	if r.ended {
		return r.Errs
	}
	r.ended = true
	defer r.e.maps.put()
	left := false
	for i := range r.state {
		switch {
		case r.Errs[i] != nil || r.state[i] == sent:
			continue
		case r.state[i] == writing:
			r.e.ring.release(r.rooms[i].id)
		}
		left = true
		r.Errs[i] = errNotFilled
	}
	for _, f := range r.sent {
		r.Errs[f.i] = r.e.filled(ctx, f.c)
		left = left || r.Errs[f.i] != nil
	}
	if left && r.num != 0 {
		r.e.giveRoom(r.num)
	}
	r.sent = nil
	return r.Errs
}

// filled waits for one FILL.
func (e *Engine) filled(ctx context.Context, c *call) error {
	if err := e.wait(ctx, c); err != nil {
		return err
	}
	defer e.putBack(c)
	if len(c.end.Status) == 1 {
		return storeError("fill", 0, c.end.Status[0], c.end.Text)
	}
	if err := ended("fill", &c.end); err != nil {
		return err
	}
	return protocolError(wire.CodeState, "FILL of 1 item ended with %d statuses", len(c.end.Status))
}

// giveRoom ends a reservation without waiting. Where the daemon takes no more requests
// now, its time ends it.
func (e *Engine) giveRoom(num uint64) {
	_, _ = async(e, "fill", link.TypeFill, link.Fill{Rsv: num, Last: true})
}

// PutInPlace stores blocks whose bodies write writes: it is called, in order, for each
// that is not stored already, with Len bytes of the staging ring. An error of it is that
// block's outcome. The result has an entry for each block, as Put's. It needs a group.
func (e *Engine) PutInPlace(ctx context.Context, blocks []Block, write func(i int, dst []byte) error) []error {
	errs := make([]error, 0, len(blocks))
	for at := 0; at < len(blocks); {
		part := blocks[at:min(at+e.items, len(blocks))]
		r, err := e.Reserve(ctx, part, 0)
		if err != nil {
			for range part {
				errs = append(errs, err)
			}
		} else {
			errs = append(errs, r.writeAll(ctx, func(i int, dst []byte) error { return write(at+i, dst) })...)
		}
		at += len(part)
	}
	return errs
}

func (r *Reservation) writeAll(ctx context.Context, write func(i int, dst []byte) error) []error {
	why := map[int]error{}
	for i := range r.Errs {
		if r.Errs[i] != nil {
			continue
		}
		b, err := r.Room(ctx, i)
		if err == nil {
			err = write(i, b)
		}
		if err == nil {
			err = r.Fill(ctx, i, b)
		}
		if err != nil {
			r.Skip(i)
			why[i] = err
		}
	}
	errs := r.Wait(ctx)
	for i, err := range why {
		errs[i] = err
	}
	return errs
}
