package link

import (
	"context"
	"sync"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// Pull implements fabric.Fabric. A batch goes out in requests of sliceBytes or
// less, which travel side by side over the lanes. What LANE_LOST took is asked
// for again over another lane, from the byte that it had come to.
func (p *Peer) Pull(ctx context.Context, it []fabric.Item) {
	s, err := p.usable(ctx)
	if err != nil {
		failAll(it, err)
		return
	}
	b := p.batch(ctx, s, it)
	b.check(func(x *fabric.Item) error {
		if len(x.M.B) < wire.HeaderLen {
			return &fabric.Error{Code: wire.CodeTooLarge, Fabric: label, Have: uint64(len(x.M.B)), Need: wire.HeaderLen, Text: "no room for a header"}
		}
		return nil
	})
	b.each(func(at []int) { b.pullSlice(ctx, at) })
}

// Push implements fabric.Fabric. What the peer has already is answered EXISTS,
// with its handle.
func (p *Peer) Push(ctx context.Context, it []fabric.Item) {
	s, err := p.usable(ctx)
	if err != nil {
		failAll(it, err)
		return
	}
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	b := p.batch(ctx, s, it)
	b.check(func(x *fabric.Item) error {
		h, err := wire.ParseHeader(x.M.B, wire.Strict, wire.MaxBody)
		have, need := uint64(len(x.M.B)), wire.HeaderLen+uint64(h.BodyLen)
		switch {
		case err != nil:
			return err
		case have < need:
			return &wire.TruncatedError{Have: have, Need: need}
		case have > need:
			return &wire.TrailingError{N: have - need}
		case h.BodyLen > proto.MaxBytesInFlight:
			return &wire.TooLargeError{Got: uint64(h.BodyLen), Limit: proto.MaxBytesInFlight}
		case x.Tier > wire.OutputCritical:
			return &wire.TierError{Got: uint8(x.Tier)}
		}
		x.Head = h
		return nil
	})
	b.each(func(at []int) { b.pushSlice(ctx, at) })
}

// check drops the items that f refuses.
func (b *batch) check(f func(*fabric.Item) error) {
	keep := b.at[:0]
	for _, i := range b.at {
		if err := f(&b.it[i]); err != nil {
			b.it[i].Err = err
			continue
		}
		keep = append(keep, i)
	}
	b.at = keep
}

// each cuts the batch into requests and runs them at the same time: at most as
// many goroutines as there are lanes, and none where one request is enough.
func (b *batch) each(f func(at []int)) {
	slices := b.cut()
	if len(slices) <= 1 {
		for _, at := range slices {
			f(at)
		}
		return
	}
	b.s.mu.Lock()
	width := max(b.s.core.DataLanes(), 1)
	b.s.mu.Unlock()
	var wg sync.WaitGroup
	next := make(chan []int)
	for range min(width, len(slices)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for at := range next {
				f(at)
			}
		}()
	}
	for _, at := range slices {
		next <- at
	}
	close(next)
	wg.Wait()
}

func (b *batch) cut() [][]int {
	var out [][]int
	size, from := 0, 0
	for n, i := range b.at {
		m := len(b.it[i].M.B)
		if n > from && (size+m > sliceBytes || n-from == proto.MaxItems) {
			out = append(out, b.at[from:n])
			size, from = 0, n
		}
		size += m
	}
	if from < len(b.at) {
		out = append(out, b.at[from:])
	}
	return out
}

// pull makes the call for some items.
func (b *batch) pull(at []int) *core.Call {
	c := &core.Call{Type: proto.TypePull, Class: b.class, Items: make([]core.Item, len(at))}
	for n, i := range at {
		c.Items[n] = b.want(i)
		if m := b.it[i].M.B; len(m) > wire.HeaderLen {
			room := m[wire.HeaderLen:]
			c.Items[n].Room = room[:min(len(room), proto.MaxBytesInFlight)]
		}
	}
	return c
}

// pullSlice runs one request, and goes on with what a lost lane left over.
func (b *batch) pullSlice(ctx context.Context, at []int) {
	c := b.pull(at)
	for try := 0; ; try++ {
		start := b.s.now()
		b.s.retryBusy(ctx, c)
		b.found(c, at)
		bytes, good := 0, 0
		for n, i := range at {
			if c.Items[n].Code == wire.CodeOK {
				copy(b.it[i].M.B, c.Items[n].Head[:])
				b.it[i].Proof = c.Items[n].Proof
				bytes += int(c.Items[n].Len)
				good++
			}
		}
		b.p.node.cfg.Observer.Transfer(Transfer{
			Peer: b.p.cfg.Name, In: true, Class: b.class, Via: b.s.via, Items: good, Bytes: uint64(bytes), Took: b.s.now() - start, Code: c.Code,
		})
		if try == resumeTries || ctx.Err() != nil {
			return
		}
		left, next := b.rest(at, c)
		if len(left) == 0 {
			return
		}
		if b = b.move(ctx, left, next); b == nil {
			return
		}
		at, c = left, next
	}
}

// rest is what a lost lane left to do, and what a resumed item has to begin
// anew for, because its generation went meanwhile.
func (b *batch) rest(at []int, old *core.Call) ([]int, *core.Call) {
	var left []int
	var items []core.Item
	for n, i := range at {
		o := &old.Items[n]
		lost := o.Code == wire.CodeLaneLost
		again := o.Code == wire.CodeStale && o.Off > 0 && !b.ref[i]
		if !lost && !again {
			continue
		}
		w := b.want(i)
		w.Room = o.Room
		if lost && o.Seen && o.Got > 0 && o.Got < o.Len {
			w.Off, w.Slot, w.Gen = o.Got, o.Slot, o.Gen
		}
		left, items = append(left, i), append(items, w)
	}
	return left, &core.Call{Type: proto.TypePull, Class: b.class, Items: items}
}

// move finds a session to go on with: the same where a lane of it is up, else
// one that comes up within resumeWait. It is nil where none does. A session with
// another incarnation knows neither references nor beginnings of the old one.
func (b *batch) move(ctx context.Context, at []int, c *core.Call) *batch {
	if b.s.ready() {
		return b
	}
	wait, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	if b.p.Ready(wait) != nil {
		return nil
	}
	s, err := b.p.session()
	if err != nil {
		return nil
	}
	if s == b.s {
		return b
	}
	to := *b
	to.s, to.num = s, make([]uint16, len(b.num))
	for n, i := range at {
		num, err := s.open(ctx, b.it[i].NS)
		if err != nil {
			return nil
		}
		to.num[i], c.Items[n].NS = num, num
		if s.peer.inc == b.s.peer.inc && s.peer.agent == b.s.peer.agent {
			continue
		}
		if b.ref[i] {
			return nil
		}
		c.Items[n].Off, c.Items[n].Slot, c.Items[n].Gen = 0, 0, 0
	}
	return &to
}

func (b *batch) pushSlice(ctx context.Context, at []int) {
	c := &core.Call{Type: proto.TypePush, Class: b.class, Items: make([]core.Item, len(at))}
	for n, i := range at {
		x := &b.it[i]
		c.Items[n] = core.Item{
			NS: b.num[i], Key: x.Key, Tier: x.Head.Tier, Att: x.Att, Room: x.M.B[wire.HeaderLen:],
			Head: [wire.HeaderLen]byte(x.M.B),
		}
	}
	start := b.s.now()
	b.s.retryBusy(ctx, c)
	b.found(c, at)
	bytes, good := 0, 0
	for n := range at {
		if c.Items[n].Code == wire.CodeOK {
			bytes += len(c.Items[n].Room)
			good++
		}
	}
	b.p.node.cfg.Observer.Transfer(Transfer{
		Peer: b.p.cfg.Name, Class: b.class, Via: b.s.via, Items: good, Bytes: uint64(bytes), Took: b.s.now() - start, Code: c.Code,
	})
}

// retryBusy runs a call, and again after the pause that the peer asks for while
// it is BUSY and ctx lives.
func (s *session) retryBusy(ctx context.Context, c *core.Call) {
	for {
		s.call(ctx, c)
		pause := c.Retry
		if !c.Again() {
			return
		}
		select {
		case <-ctx.Done():
			c.Fail(wire.CodeBusy)
			return
		case <-time.After(pause):
		}
	}
}
