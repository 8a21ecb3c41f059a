package client

import (
	"context"
	"errors"

	"meridian/wire"
	"meridian/wire/link"
)

// ringParts is into how many requests at least a Put is cut that would fill the
// ring: the next part is copied in while the daemon works on the one before.
const ringParts = 4

// Put stores blocks: NS, Key, Tier, Body and Req of each are read, in a group Auto, Pos
// and Pin too (UNSUPPORTED without one). The result has
// an entry for each block. EXISTS: the key is stored already, which is no loss.
// FULL: no room. A body that Stage returned is not copied. Bodies may be
// reused as soon as Put returns, also when ctx ended it.
func (e *Engine) Put(ctx context.Context, blocks []Block) []error {
	errs := make([]error, len(blocks))
	if !e.maps.get() {
		err := e.Err()
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer e.maps.put()
	var sent []batch
	for at := 0; at < len(blocks); {
		b, next, err := e.putSome(ctx, blocks, at, errs)
		if b.c != nil {
			sent = append(sent, b)
		}
		if err != nil {
			for i := next; i < len(blocks); i++ {
				errs[i] = err
				e.Unstage(blocks[i].Body)
			}
			break
		}
		at = next
	}
	for _, b := range sent {
		e.finishPut(ctx, b, errs)
	}
	return errs
}

// batch is one PUT under way: of the blocks from on, those without an error yet.
type batch struct {
	c    *call
	from int
	to   int
}

// putSome stages blocks from at on and sends them. It waits for a ring, and for room
// in it, for the first block only. next is the first block that is not dealt with.
func (e *Engine) putSome(ctx context.Context, blocks []Block, at int, errs []error) (b batch, next int, err error) {
	if blocks[at].placed() && !e.grouped {
		errs[at] = e.needGroup("put")
		e.Unstage(blocks[at].Body)
		return batch{}, at + 1, nil
	}
	if err := e.needRing(ctx, len(blocks[at].Body)); errors.Is(err, wire.CodeTooLarge) {
		errs[at] = err
		return batch{}, at + 1, nil
	} else if err != nil {
		return batch{}, at, err
	}
	c, err := e.take(ctx, "put")
	if err != nil {
		return batch{}, at, err
	}
	c.put.Items, c.store = c.put.Items[:0], c.store[:0]
	part, bytes := e.ring.size()/ringParts, 0
	next = at
	placed := blocks[at].placed() // by PUTAT, which has 60 bytes an item
	for ; next < len(blocks) && len(c.put.Items)+len(c.store) < e.items; next++ {
		k := &blocks[next]
		if k.placed() != placed {
			break
		}
		if bytes > 0 && bytes+len(k.Body) > part || next > at && len(k.Body) > e.ring.size() {
			break
		}
		off, id, err := e.place(ctx, k.Body, len(c.spans) == 0)
		if err == errNoRoom {
			break
		}
		if err != nil {
			errs[next] = err
			continue
		}
		if len(k.Body) > 0 {
			c.spans = append(c.spans, id)
		}
		bytes += len(k.Body)
		if placed {
			it := k.item()
			it.Len, it.Off = uint32(len(k.Body)), off
			c.store = append(c.store, it)
			continue
		}
		c.put.Items = append(c.put.Items, link.PutItem{NS: uint16(k.NS), Tier: k.Tier, Len: uint32(len(k.Body)), Off: off, Key: k.Key, Req: k.Req})
	}
	if len(c.put.Items)+len(c.store) == 0 {
		e.putBack(c)
		return batch{}, next, nil
	}
	c.put.DeadlineMS = deadlineMS(ctx, 0)
	if placed {
		err = send(e, c, link.TypePutAt, link.PutAt{DeadlineMS: c.put.DeadlineMS, Items: c.store})
	} else {
		err = send(e, c, link.TypePut, c.put)
	}
	if err != nil {
		for _, id := range c.spans {
			e.ring.release(id)
		}
		e.putBack(c)
		return batch{}, at, err
	}
	return batch{c, at, next}, next, nil
}

// placed says whether a block needs PUTAT.
func (b *Block) placed() bool { return b.Auto || b.Pin > 0 }

// item is a block as RESERVE and PUTAT say it, without its bytes.
func (b *Block) item() link.StoreItem {
	it := link.StoreItem{NS: uint16(b.NS), Tier: b.Tier, Key: b.Key, Req: b.Req, Pos: b.Pos}
	if b.Auto {
		it.Tier = link.TierAuto
	}
	if b.Pin > 0 {
		it.Flags, it.PinMS = link.StorePin, max(milliseconds(b.Pin), 1)
	}
	return it
}

// errNoRoom stays inside: the rest goes with a later request.
var errNoRoom error = wire.CodeBusy

// place finds a body's bytes in the ring, or copies them there.
func (e *Engine) place(ctx context.Context, body []byte, wait bool) (off, id uint64, err error) {
	if len(body) == 0 {
		return 0, 0, nil
	}
	if off, id, ok := e.ring.unstage(body); ok {
		e.maps.put() // Put's own use goes on
		return off, id, nil
	}
	if !wait {
		b, off, id, ok, _ := e.ring.take(len(body))
		if !ok {
			return 0, 0, errNoRoom
		}
		copy(b, body)
		return off, id, nil
	}
	b, off, id, err := e.room(ctx, len(body))
	if err == nil {
		copy(b, body)
	}
	return off, id, err
}

// finishPut waits for one PUT.
func (e *Engine) finishPut(ctx context.Context, b batch, errs []error) {
	c := b.c
	sent := len(c.put.Items) + len(c.store)
	err := e.wait(ctx, c)
	if err == nil {
		defer e.putBack(c)
		if len(c.end.Status) != sent {
			err = ended("put", &c.end)
			if err == nil {
				err = protocolError(wire.CodeState, "PUT of %d items ended with %d statuses", sent, len(c.end.Status))
			}
		}
	}
	n := 0
	for i := b.from; i < b.to; i++ {
		switch {
		case errs[i] != nil: // was not sent
			continue
		case err != nil:
			errs[i] = err
		default:
			errs[i] = storeError("put", n, c.end.Status[n], c.end.Text)
		}
		n++
	}
}
