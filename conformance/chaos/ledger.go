package chaos

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/wire"
)

// Bounds and defaults of a ledger.
const (
	DefaultBlocks  = 1 << 20         // blocks known
	DefaultGrace   = 5 * time.Second // beyond a transfer's deadline
	maxTransfers   = 1 << 16         // open at a time
	maxCounts      = 4096            // names, over all daemons
	maxHolders     = 16              // daemons that acknowledged one block
	maxConvictions = 1000            // kept in full; all are counted
)

// LedgerOptions are the bounds of a ledger; zero values take the defaults.
type LedgerOptions struct {
	Blocks int
	Grace  time.Duration
	Now    func() time.Time // default time.Now; only transfers need it
}

// Ledger is the judge: it remembers what every block has to be and convicts what
// is not so. It is safe for concurrent use. Beyond a bound it takes no more, says
// so, and its Report is not clean.
type Ledger struct {
	opt LedgerOptions

	mu        sync.Mutex
	mark      uint64
	blocks    map[Block]*entry
	byWord    map[uint64]Block // first word of generated bodies
	transfers map[transferID]transfer
	counts    map[countID]int64
	report    Report
}

// entry is what is known of one block.
type entry struct {
	content Content
	known   bool     // content is
	holders []string // daemons that acknowledged it and may not have lost it
	acked   bool     // ever
	unsure  bool     // a put with unknown outcome: being served is no phantom
	ackMark uint64   // since when holders is not empty

	early *Conviction // served while nobody had acknowledged it: a phantom, unless that comes
	proof Event       // of early, to be compared once the content is known
	lost  *Conviction // absent while held: lost, unless somebody may have lost it
}

type transferID struct{ who, id string }

type transfer struct {
	at  string
	due time.Time
}

type countID struct{ at, name string }

// NewLedger returns an empty ledger.
func NewLedger(o LedgerOptions) *Ledger {
	o.Blocks = cmp.Or(o.Blocks, DefaultBlocks)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Ledger{
		opt:       o,
		blocks:    make(map[Block]*entry),
		byWord:    make(map[uint64]Block),
		transfers: make(map[transferID]transfer),
		counts:    make(map[countID]int64),
		report:    Report{Kinds: make(map[Kind]uint64)},
	}
}

// Tell hears one event. The error matches CodeInvalid for an event that makes no
// sense, and CodeTooMany beyond a bound.
func (l *Ledger) Tell(e Event) (Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark++
	l.report.Events++
	a := Answer{Mark: l.mark}
	var err error
	switch e.Op {
	case OpMark:
	case OpOffer, OpAck, OpRefuse, OpUnsure:
		a.Guilty, err = l.put(e)
	case OpServe:
		a.Guilty, err = l.served(e)
	case OpAbsent:
		l.absent(e)
	case OpEvict:
		l.report.Evicted++
		l.blocks[e.Block].release(e.At)
	case OpGone:
		for _, n := range l.blocks {
			n.release(e.At)
		}
	case OpStart, OpEnd:
		a.Guilty, err = l.transfer(e)
	case OpCount:
		err = l.count(e)
	case OpSettle:
		l.settle()
	case OpReport:
		r := l.reportNow()
		a.Report = &r
	default:
		err = fmt.Errorf("event %q: %w", e.Op, wire.CodeInvalid)
	}
	if err != nil {
		l.report.Refused++
	}
	return a, err
}

// entry returns what is known of a block, and makes room for it.
func (l *Ledger) entry(b Block) (*entry, error) {
	if n := l.blocks[b]; n != nil {
		return n, nil
	}
	if len(l.blocks) >= l.opt.Blocks {
		return nil, fmt.Errorf("the ledger holds %d blocks and no more: %w", l.opt.Blocks, wire.CodeTooMany)
	}
	n := &entry{}
	l.blocks[b] = n
	return n, nil
}

// put takes the stages of a put.
func (l *Ledger) put(e Event) (*Conviction, error) {
	n, err := l.entry(e.Block)
	if err != nil {
		return nil, err
	}
	var guilty *Conviction
	if e.Op == OpOffer || e.Content != (Content{}) {
		if guilty, err = l.learn(e.Block, n, e.Content); err != nil {
			return nil, err
		}
	}
	switch e.Op {
	case OpOffer:
		l.report.Offered++
	case OpUnsure:
		n.unsure, n.early = true, nil
	case OpAck:
		if !n.known {
			return nil, fmt.Errorf("block %s was acknowledged, but what it holds was never said: %w", e.Key, wire.CodeInvalid)
		}
		l.report.Acked++
		n.acked, n.early = true, nil
		if len(n.holders) == 0 {
			n.ackMark = l.mark
		}
		if !slices.Contains(n.holders, e.At) {
			if len(n.holders) >= maxHolders {
				return nil, fmt.Errorf("block %s has %d holders and room for no more: %w", e.Key, maxHolders, wire.CodeTooMany)
			}
			n.holders = append(n.holders, e.At)
		}
	}
	return guilty, nil
}

// learn keeps the content of a block, and compares what was served before it was
// known.
func (l *Ledger) learn(b Block, n *entry, c Content) (*Conviction, error) {
	if n.known {
		if n.content != c && sumOf(b.Key, n.content) != sumOf(b.Key, c) {
			return nil, fmt.Errorf("block %s was put with two contents; blocks are immutable: %w", b.Key, wire.CodeInvalid)
		}
		return nil, nil
	}
	n.content, n.known = c, true
	if c.Sum == (Digest{}) && c.Len >= 8 {
		var word [8]byte
		Body(word[:], b.Key)
		l.byWord[firstWord(word[:])] = b
	}
	if n.early == nil {
		return nil, nil
	}
	return l.compare(n.proof, n), nil
}

// sumOf is the SHA-256 that c asks for.
func sumOf(key wire.Key, c Content) Digest {
	if c.Sum != (Digest{}) {
		return c.Sum
	}
	body := make([]byte, c.Len)
	Body(body, key)
	return sha256.Sum256(body)
}

// served judges a body that a reader was given.
func (l *Ledger) served(e Event) (*Conviction, error) {
	n, err := l.entry(e.Block)
	if err != nil {
		return nil, err
	}
	l.report.Served++
	l.report.Bytes += uint64(e.Len)
	if !n.acked && !n.unsure && n.early == nil {
		n.early = &Conviction{Kind: Phantom, Who: e.Who, At: e.At, Block: e.Block,
			Text: fmt.Sprintf("%d bytes were served of a block that was never acknowledged", e.Len)}
		n.proof = e
	}
	if !n.known {
		return nil, nil
	}
	return l.compare(e, n), nil
}

// compare convicts a body that is not what it has to be.
func (l *Ledger) compare(e Event, n *entry) *Conviction {
	c := Conviction{Kind: WrongBytes, Who: e.Who, At: e.At, Block: e.Block}
	generated := n.content.Sum == (Digest{})
	switch {
	case e.Len != n.content.Len:
		c.Text = fmt.Sprintf("%d bytes were served, put were %d", e.Len, n.content.Len)
	case generated && e.Wrong == 0:
		return nil
	case generated:
		c.Text = fmt.Sprintf("the first wrong byte of %d is at %d", e.Len, e.Wrong-1)
		if other, ok := l.byWord[e.Word]; ok && other.Key != e.Key {
			c.Text += fmt.Sprintf("; the body begins as the one of block %s in %s", other.Key, other.NS)
		}
	default:
		got := sumOf(e.Key, e.Content)
		if got == n.content.Sum {
			return nil
		}
		c.Text = fmt.Sprintf("the %d bytes have SHA-256 %x, put was %x", e.Len, got[:], n.content.Sum[:])
	}
	return l.convict(c)
}

// absent holds a suspicion when a block was acknowledged before the read began
// and nobody has been allowed to lose it since.
func (l *Ledger) absent(e Event) {
	l.report.Absent++
	n := l.blocks[e.Block]
	since := e.Mark
	if since == 0 {
		since = l.mark
	}
	if n == nil || n.lost != nil || len(n.holders) == 0 || n.ackMark > since {
		return
	}
	n.lost = &Conviction{Kind: Lost, Who: e.Who, At: e.At, Block: e.Block,
		Text: fmt.Sprintf("absent, though %v acknowledged it", n.holders)}
}

// release lets one daemon, or all with at empty, lose a block.
func (n *entry) release(at string) {
	if n == nil {
		return
	}
	if at == "" {
		n.holders = nil
	} else {
		n.holders = slices.DeleteFunc(n.holders, func(s string) bool { return s == at })
	}
	if len(n.holders) == 0 {
		n.lost = nil
	}
}

// transfer keeps the deadlines.
func (l *Ledger) transfer(e Event) (*Conviction, error) {
	id := transferID{e.Who, e.ID}
	t, open := l.transfers[id]
	now := l.opt.Now()
	if e.Op == OpStart {
		switch {
		case open:
			return nil, fmt.Errorf("transfer %s of %s is open: %w", e.ID, e.Who, wire.CodeInvalid)
		case len(l.transfers) >= maxTransfers:
			return nil, fmt.Errorf("%d transfers are open: %w", maxTransfers, wire.CodeTooMany)
		}
		l.transfers[id] = transfer{at: e.At, due: now.Add(time.Duration(e.MS) * time.Millisecond)}
		return nil, nil
	}
	if !open {
		return l.convict(Conviction{Kind: Twice, Who: e.Who, At: e.At,
			Text: fmt.Sprintf("transfer %s ended, but is not open", e.ID)}), nil
	}
	delete(l.transfers, id)
	if late := now.Sub(t.due) - l.opt.Grace; late > 0 {
		return l.convict(stuck(id, t, late)), nil
	}
	return nil, nil
}

func stuck(id transferID, t transfer, late time.Duration) Conviction {
	return Conviction{Kind: Stuck, Who: id.who, At: t.at,
		Text: fmt.Sprintf("transfer %s is %v beyond its deadline and the grace", id.id, late)}
}

func (l *Ledger) count(e Event) error {
	id := countID{e.At, e.Name}
	if _, known := l.counts[id]; !known && len(l.counts) >= maxCounts {
		return fmt.Errorf("%d counts are known: %w", maxCounts, wire.CodeTooMany)
	}
	l.counts[id] = e.N
	return nil
}
