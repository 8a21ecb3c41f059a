package scheduler

// Defaults and bounds of Config.
const (
	DefaultMaxRequests = 4096
	LimitMaxRequests   = 1 << 20

	// MaxBlocks bounds the think blocks of one request, and so the events of
	// one input: a million thinking tokens in blocks of 16. Blocks beyond it
	// are never offloaded.
	MaxBlocks = 1 << 16

	// DefaultMaxThink is the seed's max_think_tokens.
	DefaultMaxThink = 32768

	// DefaultOffloadAfter leaves an engine time to save the last think blocks,
	// and is short against an answer.
	DefaultOffloadAfter Time = 250e6

	// DefaultReapAfter is longer than any wait for a first token that a user
	// would sit through.
	DefaultReapAfter Time = 600e9
)

// Config describes a Core. The zero value tracks models of the built-in table
// and offloads nothing.
type Config struct {
	Models           *Models // nil: the built-in table only
	Signals          *Rules  // nil: signals force nothing
	MaxThink         uint32  // cap of models that state none, the built-in ones too; 0: that of Signals, or DefaultMaxThink
	OffloadThreshold int     // think blocks a batch, at most MaxBlocks; below 1: no Offload events
	OffloadAfter     Time    // how long a remainder waits; below 1: DefaultOffloadAfter
	MaxRequests      int     // entries; below 1: DefaultMaxRequests, at most LimitMaxRequests
	ReapAfter        Time    // silence after which an entry is freed; below 1: DefaultReapAfter
}

// Core is the state machine of one engine session. It is driven by one
// goroutine; Stats alone may be called from others.
type Core struct {
	cfg    Config
	batch  uint32 // think blocks an Offload; 0: none
	now    Time
	ids    table
	slots  []slot  // slots[0:high] have been used
	free   []int32 // slots below high that are free
	timers list    // slots with a remainder, by due: OffloadAfter is one value and now never falls
	reap   Time    // no entry is stale before
	events []Event
	counts counts

	answerAt []uint32 // by slot: position after the last think token; nowhere: thinking goes on, or there was none

	// monitors are apart from the slots, which every token touches. Empty
	// without Config.Signals.
	monitors []Monitor
}

// slot is one request's entry. It fills a cache line, which every token touches.
type slot struct {
	model     *compiled
	seen      Time // last sign of life
	due       Time // when the remainder leaves, if armed
	id        ID
	total     uint32 // tokens, the prompt's included
	used      uint32 // thinking tokens
	pending   uint32 // think blocks not offloaded; at most MaxBlocks with offloaded
	offloaded uint32 // think blocks offloaded
	prev      int32  // in timers
	next      int32
	phase     Phase
	match     uint8 // state of the marker looked for: start in Prefill unless open, else end
	decoded   uint8 // tokens decoded in Prefill; each may still belong to a start marker
	blank     uint8 // white space decoded before them
	live      bool
	open      bool // the prompt left thinking open
	exited    bool // ExitThink happened
	advised   bool // ForceBudget or CannotForce happened
	armed     bool // in timers
}

// New returns a Core without requests. Memory is taken here, about 100 bytes
// for each of MaxRequests and as much again with Signals; none later except for
// events.
func New(cfg Config) *Core {
	if cfg.MaxThink == 0 {
		cfg.MaxThink = DefaultMaxThink
		if cfg.Signals != nil {
			cfg.MaxThink = cfg.Signals.c.MaxThink
		}
	}
	if cfg.OffloadAfter < 1 {
		cfg.OffloadAfter = DefaultOffloadAfter
	}
	if cfg.MaxRequests < 1 {
		cfg.MaxRequests = DefaultMaxRequests
	}
	cfg.MaxRequests = min(cfg.MaxRequests, LimitMaxRequests)
	if cfg.ReapAfter < 1 {
		cfg.ReapAfter = DefaultReapAfter
	}
	c := &Core{
		cfg:    cfg,
		batch:  uint32(min(max(cfg.OffloadThreshold, 0), MaxBlocks)),
		ids:    newTable(cfg.MaxRequests),
		slots:  make([]slot, 0, cfg.MaxRequests),
		free:   make([]int32, 0, cfg.MaxRequests),
		timers: list{head: none, tail: none},
		reap:   Never,

		answerAt: make([]uint32, cfg.MaxRequests),
	}
	if cfg.Signals != nil {
		c.monitors = make([]Monitor, cfg.MaxRequests)
	}
	return c
}

// Step takes what the engine said, in order. An input for an id that is not
// tracked is counted and changes nothing: an abort after the end is normal, and
// so is a token on its way when the abort was sent.
func (c *Core) Step(now Time, in []Input) {
	c.now = max(c.now, now)
	for i := range in {
		x := &in[i]
		k := c.ids.find(x.ID)
		if x.Kind == Arrive {
			c.arrive(x, k)
			continue
		}
		if k < 0 {
			c.counts.add(atUntracked, 1)
			continue
		}
		s := &c.slots[k]
		switch x.Kind {
		case Tokens:
			s.seen = c.now
			c.tokens(k, s, x.Tokens)
		case KV:
			s.seen = c.now
			c.blocks(k, s, x)
		case Probed:
			s.seen = c.now
			c.probed(k, s, x.Signal)
		case Abort:
			c.counts.add(atAborted, 1)
			c.drop(k, s)
		case Done:
			c.complete(k, s, Finished, nil)
			c.drop(k, s)
		}
	}
	c.counts.publish()
}

// Tick does what is due at now: remainders leave, stale entries are freed.
func (c *Core) Tick(now Time) {
	c.now = max(c.now, now)
	for k := c.timers.head; k != none && c.slots[k].due <= c.now; k = c.timers.head {
		c.flush(&c.slots[k])
	}
	if c.reap <= c.now {
		c.reapStale()
	}
	c.counts.publish()
}

// Ready hands out the events since the last call and says when Tick is needed
// next. The events live until the next Ready with the same r.
func (c *Core) Ready(r *Ready) {
	r.Events, c.events = c.events, r.Events[:0]
	r.Next = c.reap
	if k := c.timers.head; k != none {
		r.Next = min(r.Next, c.slots[k].due)
	}
}

// Stats returns the counts as of the last Step or Tick. Any goroutine may call
// it; counts that change together may be read one step apart.
func (c *Core) Stats() Stats { return c.counts.read() }

func (c *Core) emit(e Event) {
	c.counts.add(atEvent+int(e.Kind), 1)
	c.events = append(c.events, e)
}

// arrive makes an entry; k is the id's slot if it is tracked.
func (c *Core) arrive(x *Input, k int32) {
	var why Reason
	switch {
	case k >= 0:
		why = Duplicate
	case len(c.slots)-len(c.free) >= c.cfg.MaxRequests:
		why = Full
	}
	if why != NoReason {
		c.counts.add(atReason+int(why), 1)
		c.emit(Event{Kind: Refused, ID: x.ID, Reason: why})
		return
	}
	m, how := c.cfg.Models.find(x.Model)
	switch how {
	case fromTable:
		c.counts.add(atVocabFallback, 1)
	case fromNowhere:
		c.counts.add(atUnknownModel, 1)
	}
	if n := len(c.free); n > 0 {
		k, c.free = c.free[n-1], c.free[:n-1]
	} else {
		k = int32(len(c.slots))
		c.slots = c.slots[:k+1]
	}
	s := &c.slots[k]
	*s = slot{model: m, id: x.ID, seen: c.now, prev: none, next: none, live: true, total: x.First}
	c.answerAt[k] = nowhere
	if c.monitors != nil {
		c.monitors[k] = c.cfg.Signals.Monitor()
		if m.minThink > 0 {
			c.monitors[k].least = m.minThink
		}
	}
	s.grow(len(x.Tokens))
	s.open, s.match = m.scan(x.Tokens)
	c.ids.put(x.ID, k)
	c.counts.add(atArrived, 1)
	c.counts.add(atPhase+int(Prefill), 1)
	c.reap = min(c.reap, c.now+c.cfg.ReapAfter)
	if len(x.Decoded) > 0 {
		c.resume(k, s, x.Decoded)
	}
}

// drop frees an entry. What it had not offloaded stays where it is.
func (c *Core) drop(k int32, s *slot) {
	c.disarm(s)
	c.counts.sub(atPhase+int(s.phase), 1)
	c.ids.del(s.id)
	*s = slot{}
	c.free = append(c.free, k)
}

// reapStale looks at every entry, so that no live one can hide a stale one, and
// finds when to look again. Entries that were heard of meanwhile only move that
// moment back, so a scan a ReapAfter is usual.
func (c *Core) reapStale() {
	c.reap = Never
	for i := range c.slots {
		s := &c.slots[i]
		if !s.live {
			continue
		}
		if at := s.seen + c.cfg.ReapAfter; at > c.now {
			c.reap = min(c.reap, at)
			continue
		}
		c.emit(Event{Kind: Reaped, ID: s.id, Pos: s.total, Used: s.used, Reason: Stale})
		c.drop(int32(i), s)
	}
}
