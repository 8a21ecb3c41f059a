package llama

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// ErrBusy is the answer to a request for which every slot is taken and enough
// others wait already.
var ErrBusy = errors.New("every slot is in use and the queue is full")

// errLeave says that a request is to give its slot up for a time.
var errLeave = errors.New("the slot is another request's for a time")

// Scheduling says who of the requests goes first, and how far one may go before the
// next decision.
type Scheduling struct {
	// Queue has the policy, its service levels and times; the node fills in the rest.
	Queue queue.Config
	Tick  time.Duration // what a quantum, or a piece of a prompt, should take beside others; 0: DefaultTick
	Hold  time.Duration // how often one of the turns that the latency guard holds is granted all the same; 0: DefaultHold
}

func (c *Config) policy() queue.Policy { return cmp.Or(c.Scheduling.Queue.Policy, queue.OutputFirst) }

// Defaults of Scheduling.
const (
	DefaultTick = 100 * time.Millisecond
	DefaultHold = 10 * time.Second
)

// lookAgain is how often a request that waits has the queue look at the time: for
// aging, residency and answers that are due.
const lookAgain = 50 * time.Millisecond

// turns decides which requests have a slot, and whose turn it is to compute.
//
// A request enters, and waits until the queue admits it (pump) and a slot is free.
// From then on it asks for a turn before each quantum and each piece of its prompt,
// and tells what came of it. Between two turns it may be told to leave: it then saves
// what it has, gives its slot up, and waits to be admitted again.
//
// llama-server batches what its slots do, so a turn of one is no turn of another less:
// it makes the batch that they share slower. The latency guard (deal) holds those back
// for whom nobody waits while an interactive stream is late, and lets one piece of a
// prompt at a time into the batch.
type turns struct {
	slots   *slots
	cfg     Scheduling
	fcfs    bool
	quantum int
	pace    func() time.Duration // of a prompt token
	n       *turnCounts

	mu     sync.Mutex // of all that follows, and of what is said so of a turn
	began  time.Time
	q      *queue.Queue
	plan   queue.Step
	next   queue.ID
	known  map[queue.ID]*turn
	step   time.Duration // of a decoded token, by an exponential average; 0: none yet
	piece  time.Time     // when the last piece of a prompt ended
	pieces uint64        // of prompts, that were granted
	freed  time.Time     // when a turn that was held for Hold was granted, or the time that it has ends
}

// place is where a turn's request is.
type place uint8

const (
	queued place = iota // it waits for its admission
	running
	leaving // it has been told, or will be at its next boundary
)

// want is what a request asks for.
type want uint8

const (
	nothing want = iota
	toPrefill
	toDecode
)

// turn is one request's part in turns. Its methods are called by one goroutine.
type turn struct {
	t        *turns
	id       queue.ID
	class    Class
	thinks   bool
	fixed    bool // its quanta are as long as they may be, always
	slot     *slot
	admitted chan struct{} // has an entry from an admission on until it is seen
	leaves   chan struct{} // has an entry while it is to leave its slot
	granted  chan int      // has an entry for a turn: tokens, or 0 to leave

	// with turns.mu:
	place    place
	left     bool // it waits because it was preempted
	told     bool // to leave, and has not yet
	away     bool // the queue takes its blocks for offloaded: it is told when they are back
	phase    scheduler.Phase
	want     want
	most     int       // tokens that it wants
	asked    time.Time // since when it asks, also before it was preempted; zero: it has its turn
	until    time.Time // it has been held, and goes on so long
	as       Class     // what it counts as
	counted  bool      // as held
	prompts  bool      // it has computed a part of its prompt, and not all
	rest     int       // tokens of its prompt that are not computed
	since    time.Time // its prompt waits for a piece, or has had its last one
	flight   int       // prompt tokens that it computes now
	decodes  bool      // it decodes its first or a further quantum: tokens are waited for
	expected time.Time
	gap      time.Duration // between two tokens, by an exponential average
	seen     time.Time     // the last token
}

// Class says whether somebody waits for the tokens of a request.
type Class uint8

// The classes.
const (
	Interactive Class = iota
	Background
	classes
)

// Classes are all of them.
var Classes = [classes]Class{Interactive, Background}

func (c Class) String() string {
	if c == Background {
		return "background"
	}
	return "interactive"
}

func newTurns(s *slots, c *Config, pace func() time.Duration, n *turnCounts) (*turns, error) {
	q := c.Scheduling.Queue
	q.Policy = c.policy()
	// Each slot of llama-server has the memory of its context for itself, so memory
	// decides nothing here: there is enough for all that are known. And the tokens of a
	// step are what deal grants.
	q.Slots, q.StepTokens, q.Requests = s.size, 1<<24, Places(s.size)
	q.BlockTokens, q.Blocks, q.Headroom = c.BlockTokens, (c.Context/c.BlockTokens+2)*q.Requests, 0
	q.Offload, q.Partial = true, true // preempt.go
	made, err := queue.New(q)
	if err != nil {
		return nil, err
	}
	t := &turns{slots: s, cfg: c.Scheduling, fcfs: q.Policy == queue.FCFS, quantum: c.Quantum, pace: pace, n: n, q: made, began: time.Now(), known: map[queue.ID]*turn{}}
	if t.cfg.Tick == 0 {
		t.cfg.Tick = DefaultTick
	}
	if t.cfg.Hold == 0 {
		t.cfg.Hold = DefaultHold
	}
	t.cfg.Queue = made.Config()
	return t, nil
}

// now is the time of the queue.
func (t *turns) now(at time.Time) queue.Time { return queue.Time(at.Sub(t.began)) }

// arrival is a request that enters.
type arrival struct {
	tokens []int32
	class  Class
	thinks bool
	fixed  bool
}

// enter waits until the request has a slot, and for no longer than the process lives.
func (t *turns) enter(ctx context.Context, a arrival, gone <-chan struct{}) (*turn, error) {
	u, err := t.add(a)
	if err != nil {
		return nil, err
	}
	if err := u.await(ctx, a.tokens, gone); err != nil {
		u.end()
		return nil, err
	}
	return u, nil
}

func (t *turns) add(a arrival) (*turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.class == Background && t.count(Background) >= BackgroundPlaces(t.slots.size) {
		t.n.refused[a.class].Add(1)
		return nil, fmt.Errorf("%w: %d requests in the background wait, which is their share", ErrBusy, waitingPerNode/2)
	}
	now := time.Now()
	t.next++
	u := &turn{t: t, id: t.next, class: a.class, thinks: a.thinks, fixed: a.fixed, admitted: make(chan struct{}, 1), leaves: make(chan struct{}, 1), granted: make(chan int, 1)}
	err := t.q.Add(t.now(now), queue.Request{ID: u.id, Prompt: len(a.tokens), Thinks: a.thinks, Background: a.class == Background})
	if errors.Is(err, queue.ErrFull) {
		t.n.refused[a.class].Add(1)
		return nil, fmt.Errorf("%w: %d requests wait", ErrBusy, waitingPerNode)
	}
	if err != nil {
		return nil, err
	}
	t.known[u.id] = u
	t.pump(now)
	return u, nil
}

func (t *turns) count(c Class) (n int) {
	for _, u := range t.known {
		if u.class == c {
			n++
		}
	}
	return n
}

// await waits for an admission, and then for a slot.
func (u *turn) await(ctx context.Context, tokens []int32, gone <-chan struct{}) error {
	t := u.t
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for in := false; !in; {
		select {
		case <-u.admitted:
			in = true
		case <-tick.C:
			t.look()
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return ErrDown
		}
	}
	f, err := t.slots.take(ctx, tokens, gone) // of one that is to leave it at its next boundary, at the latest
	if err != nil {
		return err
	}
	u.slot = f
	t.mu.Lock()
	defer t.mu.Unlock()
	u.left = false
	if u.away {
		u.away = false
		t.q.Moved(t.now(time.Now()), u.id)
	}
	return nil
}

// look has the queue look at the time.
func (t *turns) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pump(time.Now())
}

// end takes the request out, wherever it is, and gives its slot back.
func (u *turn) end() {
	t := u.t
	if u.slot != nil {
		t.slots.give(u.slot)
		u.slot = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.q.Cancel(t.now(now), u.id)
	t.q.Moved(t.now(now), u.id) // one that was leaving or loading
	delete(t.known, u.id)
	t.pump(now)
}

// leave gives the slot up, once what is in it has been saved, and waits for another. It
// comes to the queue when its client has read what there is: for one that does not read, a
// slot would stand idle.
func (u *turn) leave(ctx context.Context, tokens []int32, gone <-chan struct{}, read func() error) error {
	t := u.t
	t.slots.give(u.slot)
	u.slot = nil
	t.mu.Lock()
	u.stays()
	u.place, u.left, u.told, u.prompts, u.decodes = queued, true, false, false, false
	t.mu.Unlock()
	if err := read(); err != nil {
		return err
	}
	t.mu.Lock()
	now := time.Now()
	if u.away { // the queue knows of an offload, and admits it when that has ended
		t.q.Moved(t.now(now), u.id)
	}
	t.pump(now)
	t.mu.Unlock()
	return u.await(ctx, tokens, gone)
}
