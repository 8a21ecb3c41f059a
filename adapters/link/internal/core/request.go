package core

import (
	"slices"
	"time"

	"meridian/internal/invariants"
	"meridian/wire"
	proto "meridian/wire/link"
)

// request is one request of either side, from its first frame until nothing
// of it is left: END was seen, and no memory of it is in use. Exactly one of
// ask and serve is set. Each says by its state how far the exchange came; dead,
// ended and laneGone are the ways in which it stops, which may come at any state.
type request struct {
	id       uint64
	typ      proto.Type
	class    proto.Class
	lane     *Lane
	began    time.Duration
	deadline time.Duration
	bytes    uint64 // counted against BytesInFlight
	pace     pace

	refs     int  // reads, writes and hashes under way in its memory
	dead     bool // its memory must get no further byte: discard, or fill
	laneGone bool
	code     wire.Code // how it ended
	text     string
	retry    time.Duration

	in  inflow
	out outflow

	*ask
	*serve
}

// ask is what a request of this side has besides.
type ask struct {
	state   askState
	call    *Call
	counted bool       // counts against Reqs
	items   int        // of the batch
	room    []wantRoom // PULL: what each item asked for
	ended   bool       // END was received
	flight  *allowance // PUSH that went without a GRANT
}

// askState is how far a request of this side came. docs/spec/link-v1.md has the
// table of what may come in each state.
type askState uint8

const (
	askSent      askState = iota // nothing was answered
	askTabled                    // HAS, STAT: TABLE came. PULL: DATA comes
	askGranted                   // PUSH: GRANT came, or none is needed, and DATA goes
	askHanding                   // PUSH: COMMIT is with the writer, and may be out
	askCommitted                 // PUSH: COMMIT is out
	askConfirmed                 // PUSH: the TABLE after COMMIT came
)

// serve is what a request of the peer has besides.
type serve struct {
	state   serveState
	blocks  []Block
	twin    []int32 // PUSH: the item with the same key before this one, or -1; nil where no key comes twice
	lease   Lease
	keep    time.Duration // lease that outlives END
	counts  bool          // against Reqs and BytesInFlight
	endSent bool
	quit    bool // the peer will send no more for it
	freed   bool // the store has back what it gave
}

// serveState is how far a request of the peer came.
type serveState uint8

const (
	serveBegun     serveState = iota // nothing was answered; PUSH: room is being made
	serveMoving                      // PULL: TABLE is out, DATA goes. PUSH: GRANT is out, or none is needed, and DATA comes
	serveCommitted                   // PUSH: COMMIT came
)

// wantRoom is what a pull asked for; it outlives the call, so that what comes
// after a cancel is still counted right.
type wantRoom struct {
	room, off uint32
	lease     bool // no bytes, only the lease
}

// inItem is one body that comes in.
type inItem struct {
	body  []byte // size bytes; what is there from an earlier try included. Nil when only discarded
	size  int
	got   int // bytes that are in place, from the front
	given int // bytes given to the hasher
	sum   wire.Sum
	skip  bool // nothing comes
	drop  bool // it comes, and is not kept
	code  wire.Code
	came  func(n int)   // Block.Came; nil: none
	told  int           // bytes that came was last told of
	begun bool          // came knows that it is next
	proof wire.Verified // of body, once all of it was hashed and matched sum
}

// inflow is the receiving side of a PULL of mine or a PUSH of the peer's.
type inflow struct {
	items  []inItem
	cur    int    // the item that the next byte belongs to
	left   uint64 // bytes still to come
	hasher *wire.Hasher
	active bool
}

// settleCursor moves cur to the next item that lacks bytes.
func (in *inflow) settleCursor() {
	for in.cur < len(in.items) {
		it := &in.items[in.cur]
		if !it.skip && it.got < it.size {
			return
		}
		in.cur++
	}
}

// outItem is one body that goes out, from off on.
type outItem struct {
	body []byte
	off  int
	skip bool
}

// outflow is the sending side of a PULL of the peer's or a PUSH of mine.
type outflow struct {
	items []outItem
	cur   int
	left  uint64
	queue bool // in its lane's class queue

	// Of a push whose one body is still coming in; see grow.go.
	grows  bool
	ready  int  // bytes of the body that are there, from the front
	agreed bool // COMMIT may go out
}

func (o *outflow) settleCursor() {
	for o.cur < len(o.items) {
		it := &o.items[o.cur]
		if !it.skip && it.off < len(it.body) {
			return
		}
		o.cur++
	}
}

// Job is work that takes too long for the session's lock: the hash of one piece
// of a body, or room for a push or for later ones, which may have to be made first. Jobs of a lane
// are done in order; Run does one, and Session.Finish takes the finished ones
// back.
type Job struct {
	lane        *Lane
	r           *request
	item        int32
	first, last bool
	body        []byte
	proof       wire.Verified // of the whole body, after the last piece
	room        *roomJob      // not nil: this instead
	look        *lookJob      // not nil: this instead
	stock       uint16        // the namespace for whose stock room is; 0: room is of r
}

// roomJob is the room that a push needs.
type roomJob struct {
	store  Store
	blocks []Block
	ttl    time.Duration
}

// Run does the work. It touches nothing that the session's lock is for.
func (j *Job) Run() {
	if j.look != nil {
		j.look.looker.Look(j.look.blocks)
		return
	}
	if m := j.room; m != nil {
		if j.stock != 0 {
			m.store.Stock(m.blocks, m.ttl)
		} else {
			m.store.Reserve(m.blocks, m.ttl)
		}
		return
	}
	if j.first && j.last {
		j.proof = wire.Hash(j.body)
		return
	}
	h := j.r.in.hasher
	if j.first {
		h.Reset()
	}
	_, _ = h.Write(j.body)
	if j.last {
		j.proof = h.Verified()
	}
}

// OnlyHashes reports whether all jobs are hashes, which never wait.
func OnlyHashes(jobs []Job) bool {
	return !slices.ContainsFunc(jobs, func(j Job) bool { return j.room != nil || j.look != nil })
}

// Waits reports whether the job waits for others, so that it holds up what comes after
// it.
func (j *Job) Waits() bool { return j.look != nil }

// Bytes is how many bytes a hash is of.
func (j *Job) Bytes() int { return len(j.body) }

// giveHash makes jobs of what has come in of item i and is worth hashing.
func (l *Lane) giveHash(r *request, i int) {
	it := &r.in.items[i]
	last := it.got == it.size
	n := it.got - it.given
	if !last {
		n -= n % hashStep
		if n == 0 {
			return
		}
	}
	if (it.given > 0 || !last) && r.in.hasher == nil {
		r.in.hasher = new(wire.Hasher)
	}
	l.rx.jobs = append(l.rx.jobs, Job{
		lane: l, r: r, item: int32(i), body: it.body[it.given : it.given+n], first: it.given == 0, last: last,
	})
	it.given += n
	r.refs++
}

// Finish takes back jobs that were run, and their memory. It may make new ones.
func (s *Session) Finish(now time.Duration, jobs []Job) {
	x := &jobs[0].lane.rx
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.stock != 0:
			s.stocked(now, j)
			continue
		case j.look != nil:
			j.lane.looked(now, j)
			continue
		case j.room != nil:
			j.lane.granted(now, j)
			continue
		}
		it := &j.r.in.items[j.item]
		if j.last {
			if j.proof.Of(it.body) && j.proof.Sum() == it.sum {
				it.proof = j.proof
			} else {
				it.code = wire.CodeChecksum
			}
		}
		s.unref(now, j.r)
	}
	clear(jobs)
	if len(x.spare) < maxSpare {
		x.spare = append(x.spare, jobs[:0])
	}
}

// unref gives back one use of a request's memory.
func (s *Session) unref(now time.Duration, r *request) {
	if r.refs--; invariants.Enabled && r.refs < 0 {
		panic("link: the memory of a request is given back twice")
	}
	s.settle(now, r)
}

// settle does what had to wait until no memory of r was in use.
func (s *Session) settle(now time.Duration, r *request) {
	switch {
	case r.refs > 0:
	case r.ask != nil:
		s.settleCall(now, r)
	default:
		s.settleServed(now, r)
	}
}
