package link

import (
	"context"
	"fmt"
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
		case x.Tier > wire.OutputCritical:
			return &wire.TierError{Got: uint8(x.Tier)}
		}
		x.Head = h
		return nil
	})
	most := b.granted().BytesInFlight
	b.check(func(x *fabric.Item) error {
		if x.Head.BodyLen > most {
			return b.tooLarge(int(x.Head.BodyLen), "")
		}
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
	l := b.granted()
	ends := cut(len(b.at), func(k int) uint64 { return uint64(len(b.room(&b.it[b.at[k]], l))) }, l)
	switch len(ends) {
	case 0:
		return
	case 1:
		f(b.at)
		return
	}
	b.s.mu.Lock()
	width := max(b.s.core.DataLanes(), 1)
	b.s.mu.Unlock()
	var wg sync.WaitGroup
	next := make(chan []int)
	for range min(width, len(ends)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for at := range next {
				f(at)
			}
		}()
	}
	from := 0
	for _, end := range ends {
		next <- b.at[from:end]
		from = end
	}
	close(next)
	wg.Wait()
}

// granted are the limits that the peer granted.
func (b *batch) granted() proto.Limits {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.s.core.Granted()
}

// cut splits n items into runs that the peer takes as one request each: its items,
// its bytes in flight, and sliceBytes. size is what an item counts for. What is too
// large by itself is a run of its own.
func cut(n int, size func(k int) uint64, l proto.Limits) (ends []int) {
	most := min(sliceBytes, uint64(l.BytesInFlight))
	sum, from := uint64(0), 0
	for k := range n {
		m := size(k)
		if k > from && (sum+m > most || k-from == int(l.Items)) {
			ends = append(ends, k)
			sum, from = 0, k
		}
		sum += m
	}
	if from < n {
		ends = append(ends, n)
	}
	return ends
}

// room is where the body of an item goes: no longer than what the peer will have
// in flight, since it would not begin with more.
func (b *batch) room(x *fabric.Item, l proto.Limits) []byte {
	room := x.M.B[min(wire.HeaderLen, len(x.M.B)):]
	return room[:min(len(room), int(l.BytesInFlight))]
}

// pull makes the items of a call.
func (b *batch) pull(at []int) []core.Item {
	l := b.granted()
	items := make([]core.Item, len(at))
	for n, i := range at {
		items[n] = b.want(i)
		items[n].Room = b.room(&b.it[i], l)
	}
	return items
}

func (b *batch) pullSlice(ctx context.Context, at []int) { b.pullItems(ctx, at, b.pull(at), 0) }

// pullItems runs one request, and goes on with what a lost lane left over. try
// counts the requests before it.
func (b *batch) pullItems(ctx context.Context, at []int, items []core.Item, try int) {
	c := &core.Call{Type: proto.TypePull, Class: b.class, Items: items}
	start := b.s.now()
	b.s.retryBusy(ctx, c)
	b.found(c, at)
	bytes, good := 0, 0
	for n, i := range at {
		switch c.Items[n].Code {
		case wire.CodeOK:
			copy(b.it[i].M.B, c.Items[n].Head[:])
			b.it[i].Proof = c.Items[n].Proof
			bytes += int(c.Items[n].Len)
			good++
		case wire.CodeTooLarge:
			b.it[i].Err = b.tooLarge(len(b.it[i].M.B)-wire.HeaderLen, c.Text)
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
	to := b.move(ctx, left, next)
	if to == nil {
		return
	}
	from := 0
	for _, end := range cut(len(left), func(k int) uint64 { return uint64(len(next[k].Room)) - uint64(next[k].Off) }, to.granted()) {
		to.pullItems(ctx, left[from:end], next[from:end], try+1)
		from = end
	}
}

// tooLarge says which limit a body of n bytes, or one for which there are n bytes
// of room, was above.
func (b *batch) tooLarge(n int, text string) error {
	if most := uint64(b.granted().BytesInFlight); uint64(n) > most {
		return &fabric.Error{Code: wire.CodeTooLarge, Fabric: label, Have: most, Need: uint64(n),
			Text: fmt.Sprintf("peer %s takes at most %d bytes in flight", b.p.cfg.Name, most)}
	}
	return codeError(wire.CodeTooLarge, text)
}

// rest is what a lost lane left to do, and what a resumed item has to begin
// anew for, because its generation went meanwhile.
func (b *batch) rest(at []int, old *core.Call) (left []int, items []core.Item) {
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
			w.Off, w.Slot, w.Gen, w.Head = o.Got, o.Slot, o.Gen, o.Head
		}
		left, items = append(left, i), append(items, w)
	}
	return left, items
}

// move finds a session to go on with: the same where a lane of it is up, else
// one that comes up within resumeWait, or is up where the peer had said that it
// leaves. It is nil where none does. A session with
// another incarnation knows neither references nor beginnings of the old one, and
// may have granted other limits.
func (b *batch) move(ctx context.Context, at []int, items []core.Item) *batch {
	if b.s.ready() {
		return b
	}
	if !b.s.leaving() {
		wait, cancel := context.WithTimeout(ctx, resumeWait)
		defer cancel()
		if b.p.Ready(wait) != nil {
			return nil
		}
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
	l := to.granted()
	for n, i := range at {
		num, err := s.open(ctx, b.it[i].NS)
		if err != nil {
			return nil
		}
		w := &items[n]
		to.num[i], w.NS, w.Room = num, num, b.room(&b.it[i], l)
		if s.peer.same(&b.s.peer) && s.peer.inc == b.s.peer.inc && int(w.Off) <= len(w.Room) {
			continue
		}
		if b.ref[i] {
			return nil
		}
		w.Off, w.Slot, w.Gen, w.Head = 0, 0, 0, [wire.HeaderLen]byte{}
	}
	return &to
}

func (b *batch) pushSlice(ctx context.Context, at []int) {
	c := &core.Call{Type: proto.TypePush, Class: b.class, Hops: b.hops, Items: make([]core.Item, len(at))}
	for n, i := range at {
		x := &b.it[i]
		c.Items[n] = core.Item{
			NS: b.num[i], Key: x.Key, Tier: x.Head.Tier, Att: x.Att, Room: x.M.B[wire.HeaderLen:],
			Head: [wire.HeaderLen]byte(x.M.B),
		}
	}
	start := b.s.now()
	b.s.retryBusy(ctx, c)
	if again, homeless := c.Homeless(); again != nil {
		b.s.retryBusy(ctx, again)
		c.Merge(again, homeless)
	}
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
