package core

import (
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A standing grant, at the side that takes pushes:
//
//	1 A small push of the peer is over: restock has a job reserve homes for the
//	  next ones in its namespace, and STANDING tells of those that are there.
//	2 Homes that a job brought lie in the namespace's stock (stocked).
//	3 DELIVER takes homes out of it: they are the push's, as if GRANT had
//	  reserved them. An item for which none is left is FULL, and its body dropped.
//	4 A home that nobody took in homeLife goes back to the store (tickStock), and
//	  all do when this side leaves or the session ends.
//
// Homes are reservations of the peer: they count for its share of the arena. They
// are made in the tier of the push that they follow and take nothing of a lower one,
// so a peer evicts no block of a higher tier than what it brings.

// stock is the homes of one namespace.
type stock struct {
	homes  []home    // the oldest first
	tier   wire.Tier // of all of them: the lowest that they take
	told   int       // that the peer counts on: of the last STANDING, less what came since
	making int       // that a job is reserving
	rest   time.Duration
}

// home is a reserved slot for a body of the namespace's longest.
type home struct {
	block Block
	until time.Duration
}

// fitsHome reports whether a home of size bytes takes a body of n. A body of half
// of it or less would waste more than the store allows for others.
func fitsHome(n, size uint32) bool { return n <= size && n > size/2 }

// house gives b a home in namespace num, if there is one.
func (s *Session) house(num uint16, b *Block) bool {
	ns := &s.nsIn[num-1]
	st := &ns.stock
	if len(st.homes) == 0 || b.Tier < st.tier || !fitsHome(b.Head.BodyLen, ns.blockBytes) {
		return false
	}
	h := &st.homes[0].block
	b.Slot, b.Gen, b.Body = h.Slot, h.Gen, h.Body[:b.Head.BodyLen]
	s.takeHomes(ns, 1)
	return true
}

// takeHomes takes the n oldest homes out of a stock.
func (s *Session) takeHomes(ns *openNS, n int) {
	ns.stock.homes = slices.Delete(ns.stock.homes, 0, n)
	s.homes -= n
	s.homeBytes -= uint64(n) * uint64(ns.blockBytes)
}

// SetHomeBytes changes Config.HomeBytes. Homes above it stay until they are used or
// their time is over.
func (s *Session) SetHomeBytes(n uint64) { s.cfg.HomeBytes = n }

// restock tells the peer of the homes that it does not know of, after a push of
// blocks, and has more made where half of them are gone.
func (s *Session) restock(now time.Duration, l *Lane, blocks []Block) {
	if !s.cfg.OneFlight || s.draining || s.dead {
		return
	}
	for i := 0; i < len(blocks); {
		ns, tier, from := blocks[i].NS, wire.OutputCritical, i
		for ; i < len(blocks) && blocks[i].NS == ns; i++ {
			tier = min(tier, blocks[i].Tier)
		}
		num := s.nsNum[ns]
		if num == 0 {
			continue
		}
		if st := &s.nsIn[num-1].stock; len(st.homes) > st.told {
			s.tellStock(l, num)
		}
		s.makeHomes(now, l, num, i-from, tier)
	}
}

// makeHomes begins a job that reserves homes, as many as the limits leave, where a
// push of that many items of a tier could use them.
func (s *Session) makeHomes(now time.Duration, l *Lane, num uint16, items int, tier wire.Tier) {
	ns := &s.nsIn[num-1]
	st, each := &ns.stock, uint64(max(ns.blockBytes, 1))
	if st.making == 0 && (tier < st.tier || len(st.homes) == 0) {
		s.giveHomes(ns, len(st.homes)) // they are too good for what comes
		st.tier = tier
	}
	most := int(min(uint64(s.cfg.Homes), s.cfg.HomeBytes/each))
	left := s.cfg.HomeBytes - min(s.homeBytes, s.cfg.HomeBytes)
	n := int(min(uint64(s.cfg.Homes-s.homes), left/each))
	if st.making > 0 || now < st.rest || n == 0 || 2*len(st.homes) > most || items > most {
		return
	}
	b := make([]Block, n)
	for i := range b {
		b[i] = Block{NS: ns.ns, Tier: st.tier, Head: wire.Header{BodyLen: ns.blockBytes}}
	}
	st.making = n
	s.making++
	s.homes += n
	s.homeBytes += uint64(n) * uint64(ns.blockBytes)
	l.rx.jobs = append(l.rx.jobs, Job{lane: l, stock: num, room: &roomJob{s.cfg.Store, b, homeLife + homeSlack}})
}

// stocked takes the homes that a job made, if they are wanted still.
func (s *Session) stocked(now time.Duration, j *Job) {
	ns := &s.nsIn[j.stock-1]
	st := &ns.stock
	s.making--
	for i := range j.room.blocks {
		if b := &j.room.blocks[i]; b.Code == wire.CodeOK && !s.dead && !s.draining {
			st.homes = append(st.homes, home{*b, now + homeLife})
			st.making--
		}
	}
	if st.making > 0 {
		s.homes -= st.making
		s.homeBytes -= uint64(st.making) * uint64(ns.blockBytes)
		st.making, st.rest = 0, now+stockRest
		if s.dead || s.draining {
			s.cfg.Store.Abort(j.room.blocks)
		}
	}
	if st.told == 0 && len(st.homes) > 0 {
		s.tellStock(j.lane, j.stock)
	}
	s.release()
}

// tellStock sends STANDING, if the lane is up.
func (s *Session) tellStock(l *Lane, num uint16) {
	if !l.open() {
		return
	}
	ns := &s.nsIn[num-1]
	ns.stock.told = len(ns.stock.homes)
	l.send(proto.Frame{Type: proto.TypeStanding}, proto.Standing{NS: num, Tier: ns.stock.tier, N: uint32(ns.stock.told), Len: ns.blockBytes})
}

// tickStock gives back the homes that nobody took in time, and says so.
func (s *Session) tickStock(now time.Duration) {
	for i := range s.nsIn {
		st := &s.nsIn[i].stock
		n := 0
		for n < len(st.homes) && now >= st.homes[n].until {
			n++
		}
		if n == 0 {
			continue
		}
		s.giveHomes(&s.nsIn[i], n)
		if len(st.homes) < st.told {
			s.tellStock(s.lanes[0], uint16(i+1))
		}
	}
}

// giveHomes gives the n oldest homes of a stock back to the store.
func (s *Session) giveHomes(ns *openNS, n int) {
	if n == 0 {
		return
	}
	b := make([]Block, n)
	for i := range b {
		b[i] = ns.stock.homes[i].block
	}
	s.cfg.Store.Abort(b)
	s.takeHomes(ns, n)
}

// giveAllHomes is for a side that leaves and a session that ends.
func (s *Session) giveAllHomes() {
	for i := range s.nsIn {
		s.giveHomes(&s.nsIn[i], len(s.nsIn[i].stock.homes))
	}
}

// serveDeliver begins a push whose bodies follow at once. What may not be stored is
// dropped as it comes; so are all of them where the request is turned away, until
// COMMIT or ABORT says that nothing more comes.
func (l *Lane) serveDeliver(now time.Duration, f proto.Frame, m *proto.Push) error {
	s := l.s
	var total uint64
	for i := range m.Items {
		total += uint64(m.Items[i].Have.Len)
	}
	code, err := l.judge(f, m.DeadlineMS, len(m.Items), total)
	if err != nil {
		return err
	}
	r := l.admitted(now, f, m.DeadlineMS, total)
	r.typ, r.serve.state = proto.TypePush, serveMoving
	b := make([]Block, len(m.Items))
	r.in = inflow{items: make([]inItem, len(b)), left: total, active: true}
	if code != wire.CodeOK {
		for i := range m.Items {
			r.in.items[i] = inItem{drop: true, size: int(m.Items[i].Have.Len)}
		}
		r.in.settleCursor()
		r.dead, r.code, r.endSent, r.freed = true, code, true, true
		l.send(proto.Frame{Type: proto.TypeEnd, Req: r.id}, l.turnAway(code)) // the request itself counts on
		return nil
	}
	for i := range m.Items {
		b[i] = s.offered(&m.Items[i])
		if f.Class == proto.ClassBulk {
			b[i].Tier = wire.ThinkComplete
		}
		b[i].Hops = f.Arg
	}
	r.blocks, r.twin = b, twins(b)
	s.refuseKnown(b)
	for i := range b {
		num := m.Items[i].NS
		if b[i].Code == wire.CodeOK && !s.house(num, &b[i]) {
			b[i].Code = wire.CodeFull
		}
		if b[i].Code == wire.CodeOK && b[i].Head.BodyLen >= growStep { // smaller ones are here at once
			s.cfg.Store.Housed(b[i : i+1])
		}
		if int(num) <= len(s.nsIn) && num > 0 {
			s.nsIn[num-1].stock.told = max(s.nsIn[num-1].stock.told-1, 0)
		}
		r.in.items[i] = inItem{
			drop: b[i].Code != wire.CodeOK, size: int(m.Items[i].Have.Len), body: b[i].Body, code: b[i].Code, sum: b[i].Head.Sum, came: b[i].Came,
		}
	}
	r.follow()
	r.in.settleCursor()
	r.tellNext()
	return nil
}

// refuseKnown marks what is here already.
func (s *Session) refuseKnown(b []Block) {
	seen := s.scratch.seen[:0]
	for i := range b {
		seen = append(seen, Block{NS: b[i].NS, Key: b[i].Key, Code: b[i].Code})
	}
	s.scratch.seen = seen
	s.cfg.Store.Stat(seen)
	for i := range b {
		if b[i].Code == wire.CodeOK && seen[i].Code == wire.CodeOK {
			b[i].Code, b[i].Slot, b[i].Gen = wire.CodeExists, seen[i].Slot, seen[i].Gen
		}
	}
}
