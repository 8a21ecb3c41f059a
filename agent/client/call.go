package client

import (
	"context"
	"sync/atomic"
	"time"

	"meridian/internal/invariants"
	"meridian/wire"
	"meridian/wire/link"
)

// States of a call between send and END.
const (
	waiting   uint32 = iota
	done             // END came, or the connection is over: the caller has it
	abandoned        // the caller gave up: the reader cleans up
)

// call is a request's place; calls are used again and again.
type call struct {
	life  invariants.Life
	slot  int
	op    string
	req   atomic.Uint64 // 0: not in flight
	state atomic.Uint32
	done  chan struct{}
	lost  bool         // the connection ended first
	told  chan<- error // of async: gets how it ended

	got      link.Type // the answer before END
	end      link.End
	acquired link.Acquired
	table    link.Table
	opened   link.Opened
	reserved link.Reserved

	wants []link.Want // memory of what is sent
	put   link.Put
	store []link.StoreItem
	fill  link.Fill
	spans []uint64 // of the staging ring; free at END
}

// take waits for a free call.
func (e *Engine) take(ctx context.Context, op string) (*call, error) {
	var c *call
	select {
	case c = <-e.free:
	default:
		select {
		case c = <-e.free:
		case <-e.gone:
			return nil, e.Err()
		case <-ctx.Done():
			return nil, contextError(op, ctx.Err())
		}
	}
	c.begin(op)
	return c, nil
}

// begin makes a free call ready for a request.
func (c *call) begin(op string) {
	invariants.Begin(&c.life, "call")
	c.op, c.got, c.lost, c.told, c.spans = op, 0, false, nil, c.spans[:0]
}

// putBack makes a call free.
func (e *Engine) putBack(c *call) {
	c.req.Store(0)
	invariants.End(&c.life, "call")
	invariants.OverwriteItems(c.acquired.Items)
	invariants.OverwriteItems(c.table.Items)
	invariants.OverwriteItems(c.wants)
	invariants.OverwriteItems(c.put.Items)
	invariants.OverwriteItems(c.store)
	invariants.OverwriteItems(c.fill.Items)
	e.free <- c
}

// send writes a request. After an error the call is the caller's as before.
func send[M link.Message](e *Engine, c *call, t link.Type, m M) error {
	if err := e.lockForRequest(); err != nil {
		return err
	}
	defer e.wmu.Unlock()
	sendLocked(e, c, waiting, t, m)
	e.due.wait(len(e.out))
	return nil
}

// sendLocked writes a request whose call is in a state from then on. wmu is held.
func sendLocked[M link.Message](e *Engine, c *call, state uint32, t link.Type, m M) {
	e.appendReleases()
	c.state.Store(state)
	c.req.Store(e.nextReq(c.slot))
	e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: t, Req: c.req.Load()}, m)
	// A write that fails breaks the connection, and the reader ends the call like
	// any other then.
	e.flush()
}

// nextReq is a number that finds its slot again and is never used twice. wmu is
// held.
func (e *Engine) nextReq(slot int) uint64 {
	e.seq++
	return (e.seq*uint64(len(e.calls)+2)+uint64(slot))<<1 | 1
}

// wait returns when END came: nil, and the call is the caller's again. Otherwise
// the call is gone.
func (e *Engine) wait(ctx context.Context, c *call) error {
	stop := ctx.Done()
	req := c.req.Load() // before the call may become another's
	token := e.token
	for waits := true; waits; {
		select {
		case <-c.done:
			waits = false
		case <-token:
			waits = !e.lead(stop, c)
			e.token <- struct{}{}
			token = nil
		case <-stop:
			if c.state.CompareAndSwap(waiting, abandoned) {
				e.sendCancel(req)
				return contextError(c.op, ctx.Err())
			}
			<-c.done // the answer was faster
			waits = false
		}
	}
	if c.lost {
		e.putBack(c)
		return e.Err()
	}
	return nil
}

// sendCancel asks the daemon to stop working on req. By now req may have ended:
// then it names nothing that runs.
func (e *Engine) sendCancel(req uint64) {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	if e.err == nil {
		e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: link.TypeCancel, Req: req}, link.Empty{})
		e.flush()
	}
}

// complete ends a call whose END came; the result says whether a caller wakes.
func (e *Engine) complete(c *call) bool {
	for _, id := range c.spans {
		e.ring.release(id)
	}
	c.spans = c.spans[:0]
	if c.state.CompareAndSwap(waiting, done) {
		c.done <- struct{}{}
		return true
	}
	c.settled(ended(c.op, &c.end))
	if c.got == link.TypeAcquired && c.acquired.Lease != ([16]byte{}) {
		e.queueRelease(c.acquired.Lease)
	}
	unwanted := uint64(0)
	if c.got == link.TypeReserved {
		unwanted = c.reserved.Rsv
	}
	e.putBack(c)
	if unwanted != 0 {
		e.giveRoom(unwanted)
	}
	return false
}

// lost ends a call when the connection is over.
func (e *Engine) lost(c *call) {
	if c.req.Load() == 0 {
		return
	}
	if c.state.CompareAndSwap(waiting, done) {
		c.lost = true
		c.done <- struct{}{}
		return
	}
	if c.state.Load() == abandoned {
		c.settled(e.Err())
		e.putBack(c)
	}
}

// simple sends a request that is answered by END alone.
func simple[M link.Message](ctx context.Context, e *Engine, c *call, t link.Type, m M) error {
	if err := send(e, c, t, m); err != nil {
		e.putBack(c)
		return err
	}
	if err := e.wait(ctx, c); err != nil {
		return err
	}
	err := ended(c.op, &c.end)
	e.putBack(c)
	return err
}

// appendReleases puts released leases in front of a request. wmu is held.
func (e *Engine) appendReleases() {
	if len(e.pending.Leases) > 0 {
		e.out = link.AppendLocal(e.out, e.plain, link.Frame{Type: link.TypeRelease, Req: e.nextReq(e.releaseSlot())}, e.pending)
		e.pending.Leases = e.pending.Leases[:0]
	}
}

// queueRelease gives a lease back soon: with the next request, or after
// releaseDelay. It never blocks, so the reader may call it.
func (e *Engine) queueRelease(id [16]byte) {
	e.wmu.Lock()
	e.queueLocked(id)
	e.wmu.Unlock()
}

func (e *Engine) queueLocked(id [16]byte) {
	if e.err != nil {
		return // the daemon has taken all leases back
	}
	e.pending.Leases = append(e.pending.Leases, id)
	if e.armed {
		return
	}
	e.armed = true
	if e.releases == nil {
		e.releases = time.AfterFunc(releaseDelay, e.flushReleases)
	} else {
		e.releases.Reset(releaseDelay)
	}
}

// giveBack is queueRelease, but that what has gathered goes out when it is much.
func (e *Engine) giveBack(id [16]byte) {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	e.queueLocked(id)
	if e.err == nil && len(e.pending.Leases) >= releaseAtOnce {
		e.appendReleases()
		e.flush()
	}
}

func (e *Engine) flushReleases() {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	e.armed = false
	if e.err == nil && len(e.pending.Leases) > 0 {
		e.appendReleases()
		e.flush()
	}
}

// deadlineMS is how long the daemon may work: d, DefaultDeadline if that is 0,
// and never longer than ctx.
func deadlineMS(ctx context.Context, d time.Duration) uint32 {
	if d <= 0 {
		d = DefaultDeadline
	}
	if t, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(t))
	}
	return uint32(max(min(d, link.MaxDeadline), link.MinDeadline).Milliseconds())
}

// DefaultDeadline is the time that the daemon gets for a request that states none.
const DefaultDeadline = 30 * time.Second

// tooMany refuses a batch before it is sent.
func (e *Engine) tooMany(op string, n int) error {
	if n > e.items {
		return &RequestError{Op: op, Code: wire.CodeTooLarge, Text: "more items than the daemon takes in one batch"}
	}
	return nil
}
