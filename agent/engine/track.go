package engine

import (
	"slices"
	"time"

	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// blockID names a block of any namespace.
type blockID struct {
	ns  wire.Namespace
	key wire.Key
}

// request is what a group knows of a generation request's blocks.
type request struct {
	pins   uint64       // number of its set of pins, used once
	think  []thinkBlock // not yet offloaded, oldest first
	rest   []blockID    // prompt and output
	exited bool         // thinking is over: its blocks are ThinkComplete
	over   bool         // completed: all blocks are ThinkComplete
}

// thinkBlock is a block of thinking.
type thinkBlock struct {
	blockID
	end uint64 // position after its last token; 0: the engine said that it is of thinking
}

// use is who of a group's running requests has a block.
type use struct {
	rest int      // how many as prompt or output, each as often as it was put
	req  uint32   // one of them; 0: none
	more []uint32 // the others
}

func (u *use) add(req uint32) {
	switch {
	case u.req == 0:
		u.req = req
	case u.req != req && !slices.Contains(u.more, req):
		u.more = append(u.more, req)
	}
}

func (u *use) drop(req uint32) {
	switch {
	case u.req != req:
		u.more = slices.DeleteFunc(u.more, func(r uint32) bool { return r == req })
	case len(u.more) > 0:
		u.req, u.more = u.more[0], u.more[1:]
	default:
		u.req = 0
	}
}

func (u *use) none() bool { return u.rest <= 0 && u.req == 0 }

// placing is where a block goes.
type placing struct {
	tier wire.Tier
	live bool   // its request runs
	pins uint64 // the set of its pin; 0: that of no request
}

// place says where an item goes by now. tokens are those of a block.
func (l *life) place(it *link.StoreItem, tokens uint32) placing {
	if it.Req == 0 {
		if it.Tier == link.TierAuto {
			return placing{tier: wire.ThinkComplete}
		}
		return placing{tier: it.Tier}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reqs[it.Req]
	switch {
	case r == nil || l.blocks >= l.g.srv.cfg.Limits.Blocks:
		return placing{tier: wire.ThinkComplete}
	case r.over:
		return placing{tier: wire.ThinkComplete, pins: r.pins}
	}
	p := placing{l.tier(it, tokens), true, r.pins}
	if p.tier == wire.ThinkActive && r.exited {
		p.tier = wire.ThinkComplete
	}
	return p
}

// tier is what an item of a running request has, or by its position gets.
func (l *life) tier(it *link.StoreItem, tokens uint32) wire.Tier {
	if it.Tier != link.TierAuto {
		return it.Tier
	}
	switch part, _ := l.core.Load().PartOf(scheduler.ID(it.Req), it.Pos, tokens); part {
	case scheduler.Thinking:
		return wire.ThinkActive
	case scheduler.Thought:
		return wire.ThinkComplete
	}
	return wire.OutputCritical
}

// track gives the items that are in the store now, new or not, to their requests.
// A request may have gone on since place was asked: what it no longer needs is
// lowered here. Blocks that were evicted in between are told as any others.
func (l *life) track(j *copyJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = l.fresh[:0]
	for i := range j.items {
		it := &j.items[i]
		if it.Req == 0 || it.Tier == wire.ThinkComplete || j.status[i] != wire.CodeOK && j.status[i] != wire.CodeExists {
			continue
		}
		sp := &j.spaces[it.NS]
		id := blockID{sp.ns, it.Key}
		r := l.reqs[it.Req]
		if r == nil || r.over || l.blocks >= l.g.srv.cfg.Limits.Blocks {
			l.late(j, i, r, id)
			continue
		}
		l.blocks++
		l.fresh = append(l.fresh, id)
		u := l.used[id]
		u.add(it.Req)
		l.keep(r, it, sp.tokens, id, &u)
		l.used[id] = u
	}
	if l.core.Load() != nil {
		_ = l.events() // a block cannot be refused
	}
	l.follow()
	l.flushLower()
}

// late sees to a block of a request that has completed. It may still be handed off.
func (l *life) late(j *copyJob, i int, r *request, id blockID) {
	if u := l.used[id]; u.rest == 0 && j.status[i] == wire.CodeOK {
		l.lower = append(l.lower, id)
	}
	switch {
	case r == nil && j.places[i].pins != 0: // its request ended while it was stored: nobody unpins it any more
		l.g.srv.cfg.Store.Detach(l.g.owner, j.places[i].pins)
	case r != nil && r.over && l.blocks < l.g.srv.cfg.Limits.Blocks && l.tier(&j.items[i], j.spaces[j.items[i].NS].tokens) == wire.OutputCritical:
		l.blocks++
		r.rest = append(r.rest, id)
	}
}

// keep adds a block to its request.
func (l *life) keep(r *request, it *link.StoreItem, tokens uint32, id blockID, u *use) {
	if l.tier(it, tokens) == wire.OutputCritical {
		r.rest = append(r.rest, id)
		u.rest++
		return
	}
	b := thinkBlock{blockID: id}
	if it.Tier == link.TierAuto {
		b.end = uint64(it.Pos) + uint64(max(tokens, 1))
	}
	r.think = append(r.think, b)
	if r.exited {
		l.lower = append(l.lower, id)
	}
	l.step(scheduler.Input{Kind: scheduler.KV, ID: scheduler.ID(it.Req), Blocks: 1, Think: true})
}

// follow asks the store to tell when the blocks of fresh are evicted. Those that have
// been are told now.
func (l *life) follow() {
	l.runs(l.fresh, func(ns wire.Namespace, keys []wire.Key) {
		l.gone = l.gone[:0]
		l.g.srv.cfg.Store.Follow(l.g.owner, ns, keys, func(i int) { l.gone = append(l.gone, blockID{ns, keys[i]}) })
		for _, id := range l.gone {
			l.tell(id)
		}
	})
	l.sendTold()
}

// evicted tells the group which of its requests' blocks went. Notices of other groups,
// and of blocks that no request needs any more, are left alone.
func (l *life) evicted(notices []blocks.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range notices {
		if n := &notices[i]; n.Owner == l.g.owner {
			l.tell(blockID{n.NS, n.Key})
		}
	}
	l.sendTold()
}

// tell notes for each request that has a block that it went.
func (l *life) tell(id blockID) {
	u, ok := l.used[id]
	if !ok || u.req == 0 {
		return
	}
	num := slices.IndexFunc(l.g.spaces(), func(sp space) bool { return sp.ns == id.ns })
	l.told = append(l.told, link.EvictedItem{Req: u.req, NS: uint16(num), Key: id.key})
	for _, req := range u.more {
		l.told = append(l.told, link.EvictedItem{Req: req, NS: uint16(num), Key: id.key})
	}
	if u.req, u.more = 0, nil; u.none() {
		delete(l.used, id)
	} else {
		l.used[id] = u
	}
}

// sendTold sends what tell has noted.
func (l *life) sendTold() {
	if len(l.told) == 0 {
		return
	}
	l.g.srv.evicted.Add(uint64(len(l.told)))
	for at := 0; at < len(l.told); at += link.MaxItems {
		l.g.tellEvicted(l.told[at:min(at+link.MaxItems, len(l.told))])
	}
	l.told = l.told[:0]
}

// complete marks a request's blocks for ThinkComplete, except those that another
// running request of the group uses as well.
func (l *life) complete(id uint32, r *request) {
	if r.over {
		return
	}
	l.exit(r, 0)
	r.over = true
	for _, b := range r.rest {
		u := l.used[b]
		u.rest--
		l.drop(b, u, id)
	}
	for i := range r.think {
		b := r.think[i].blockID
		l.drop(b, l.used[b], id)
	}
}

// drop takes a block from a request.
func (l *life) drop(b blockID, u use, req uint32) {
	u.drop(req)
	switch {
	case u.none():
		delete(l.used, b)
		l.settled = append(l.settled, b)
		return
	case u.rest <= 0:
		l.lower = append(l.lower, b)
	}
	l.used[b] = u
}

// exit is the end of thinking; the answer begins at position answer, 0 where there is
// none. A block that was taken for one of thinking and has a token of the answer is an
// output block after all.
func (l *life) exit(r *request, answer uint32) {
	if r.exited {
		return
	}
	r.exited = true
	think := r.think[:0]
	for _, b := range r.think {
		if answer > 0 && b.end > uint64(answer) {
			u := l.used[b.blockID]
			u.rest++
			l.used[b.blockID] = u
			r.rest = append(r.rest, b.blockID)
			continue
		}
		think = append(think, b)
		l.lower = append(l.lower, b.blockID)
	}
	r.think = think
}

// offload names the next n think blocks to the host.
func (l *life) offload(id uint32, r *request, n int) {
	if r == nil {
		return
	}
	n = min(n, len(r.think))
	l.cold = l.cold[:0]
	for _, b := range r.think[:n] {
		l.cold = append(l.cold, b.blockID)
		l.drop(b.blockID, l.used[b.blockID], id)
	}
	l.runs(l.cold, l.g.srv.cfg.Host.Offload)
	r.think = slices.Delete(r.think, 0, n)
	l.blocks -= n
}

// pinOf is the pin that an item asks for.
func (s *session) pinOf(it *link.StoreItem, p placing) blocks.Pin {
	if it.Flags&link.StorePin == 0 {
		return blocks.Pin{}
	}
	d := min(time.Duration(it.PinMS)*time.Millisecond, s.srv.cfg.Limits.MaxPin)
	return blocks.Pin{Owner: s.group.owner, Set: p.pins, For: d}
}

// kind is what a block is: as its item says, or by its position.
func (p placing) kind(it *link.StoreItem) wire.Tier {
	if it.Tier == link.TierAuto {
		return p.tier
	}
	return it.Tier
}
