package chaos

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"meridian/wire"
)

// Block names a block.
type Block struct {
	NS  wire.Namespace `json:"ns,omitzero"`
	Key wire.Key       `json:"key,omitzero"`
}

// Digest is a SHA-256.
type Digest [32]byte

// MarshalText writes hex.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads 64 hex digits.
func (d *Digest) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(d) {
		return fmt.Errorf("digest of %d digits, want %d", len(b), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// Content says what a block's body has to be: its length, and either its SHA-256
// or, with a zero Sum, that Body makes it from the key.
type Content struct {
	Len uint32 `json:"len,omitempty"`
	Sum Digest `json:"sum,omitzero"`
}

// Generated is the content of a body of n bytes that Body made.
func Generated(n int) Content { return Content{Len: uint32(n)} }

// ContentOf is the content of any other body.
func ContentOf(body []byte) Content {
	return Content{Len: uint32(len(body)), Sum: sha256.Sum256(body)}
}

// Seen is what a reader got. Where the body is not Body's, Sum is its SHA-256,
// Wrong is 1 + the first offset that differs from Body's, and Word is its first
// eight bytes, by which the judge recognises another block's body.
type Seen struct {
	Wrong uint32 `json:"wrong,omitempty"`
	Word  uint64 `json:"word,omitempty"`
}

// Op says what an Event reports.
type Op string

// The events, with the fields that each one uses beside Who.
const (
	OpOffer  Op = "offer"  // Block, Content: a put begins
	OpAck    Op = "ack"    // Block, At: it was acknowledged, or EXISTS; Content where no offer was made
	OpRefuse Op = "refuse" // Block: it certainly did not happen
	OpUnsure Op = "unsure" // Block: nobody knows whether it happened (deadline, lane lost)
	OpMark   Op = "mark"   // nothing happened; the answer's Mark is a point in time for OpAbsent
	OpServe  Op = "serve"  // Block, Content of what came, Seen
	OpAbsent Op = "absent" // Block, Mark from before the read began: it is not there
	OpEvict  Op = "evict"  // Block, At: that daemon may have lost it; no At: all may
	OpGone   Op = "gone"   // At: that daemon died or restarted; what it alone held may be lost
	OpStart  Op = "start"  // ID, MS: a transfer that has to end within MS milliseconds
	OpEnd    Op = "end"    // ID: it ended, well or not
	OpCount  Op = "count"  // At, Name, N: the latest value of a count that has to end at zero
	OpSettle Op = "settle" // all reports so far are in: suspicions become convictions
	OpReport Op = "report" // the answer carries the Report
)

// Event is one report to a judge, and one line of the protocol.
type Event struct {
	Op  Op     `json:"op"`
	Who string `json:"who,omitempty"` // the engine that reports
	At  string `json:"at,omitempty"`  // the daemon that it is about
	Block
	Content
	Seen
	Mark uint64 `json:"mark,omitempty"`
	ID   string `json:"id,omitempty"`
	MS   int64  `json:"ms,omitempty"`
	Name string `json:"name,omitempty"`
	N    int64  `json:"n,omitempty"`
}

// Answer is a judge's answer to one event. Mark counts the events heard so far.
type Answer struct {
	Mark   uint64      `json:"mark"`
	Guilty *Conviction `json:"guilty,omitempty"` // the event itself proved a fault
	Report *Report     `json:"report,omitempty"`
	Error  string      `json:"error,omitempty"` // the event was not understood, or is beyond a bound
}

// Kind is a kind of fault.
type Kind string

// The kinds of fault that the judge knows.
const (
	WrongBytes Kind = "wrong-bytes" // a served body is not the block's
	Phantom    Kind = "phantom"     // a served block was never acknowledged
	Lost       Kind = "lost"        // an acknowledged block was absent, and nobody was allowed to lose it
	Leak       Kind = "leak"        // a count did not return to zero
	Stuck      Kind = "stuck"       // a transfer did not end by its deadline and the grace
	Twice      Kind = "twice"       // a transfer ended twice, or without a start
)

// Conviction is one proven fault. It is an error.
type Conviction struct {
	Kind Kind   `json:"kind"`
	Who  string `json:"who,omitempty"`
	At   string `json:"at,omitempty"`
	Block
	Text string `json:"text"`
}

// Error says it in one line.
func (c *Conviction) Error() string {
	s := string(c.Kind) + ": " + c.Text
	if c.Key != (wire.Key{}) {
		s += fmt.Sprintf(" (block %s in %s)", c.Key, c.NS)
	}
	if c.Who != "" {
		s += ", seen by " + c.Who
	}
	if c.At != "" {
		s += ", at " + c.At
	}
	return s
}

// Judge hears events: a *Ledger, or a *Remote that stands for one. The error is
// for an event that was not taken; a proven fault is in the Answer.
type Judge interface {
	Tell(Event) (Answer, error)
}

// Witness reports to a judge in the name of one engine at one daemon. Its
// methods return the *Conviction where the report itself proves a fault, or why
// the judge did not take it.
type Witness struct {
	Judge   Judge
	Who, At string
}

func (w Witness) tell(e Event) (Answer, error) {
	e.Who, e.At = w.Who, w.At
	a, err := w.Judge.Tell(e)
	if err == nil && a.Guilty != nil {
		err = a.Guilty
	}
	return a, err
}

// Offer reports that a put begins. It comes before the put is sent.
func (w Witness) Offer(b Block, c Content) error {
	_, err := w.tell(Event{Op: OpOffer, Block: b, Content: c})
	return err
}

// Put reports the outcome of a put that was offered: nil or EXISTS is an
// acknowledgement; an outcome that leaves the daemon's state open (deadline,
// cancellation, a lost lane or daemon) is unsure; anything else a refusal.
func (w Witness) Put(b Block, outcome error) error {
	op := OpRefuse
	switch {
	case outcome == nil, errors.Is(outcome, wire.CodeExists):
		op = OpAck
	case isUnsure(outcome):
		op = OpUnsure
	}
	_, err := w.tell(Event{Op: op, Block: b})
	return err
}

func isUnsure(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeDeadline, wire.CodeCancelled, wire.CodeLaneLost, wire.CodeUnreachable, wire.CodeNoProgress,
		wire.CodeIncarnation, wire.CodeInternal:
		return true
	}
	return false
}

// Mark returns the present point in the judge's order of events.
func (w Witness) Mark() (uint64, error) {
	a, err := w.tell(Event{Op: OpMark})
	return a.Mark, err
}

// Served reports a body that a reader was given.
func (w Witness) Served(b Block, body []byte) error {
	e := Event{Op: OpServe, Block: b, Content: Content{Len: uint32(len(body))}}
	var wrong *BodyError
	if errors.As(CheckBody(body, b.Key), &wrong) {
		e.Sum = sha256.Sum256(body)
		e.Wrong = uint32(wrong.Off) + 1
		e.Word = firstWord(body)
	}
	_, err := w.tell(e)
	return err
}

func firstWord(body []byte) uint64 {
	var word [8]byte
	copy(word[:], body)
	return binary.LittleEndian.Uint64(word[:])
}

// Absent reports that a reader was told that a block is not there; since is the
// Mark from before the read.
func (w Witness) Absent(b Block, since uint64) error {
	_, err := w.tell(Event{Op: OpAbsent, Block: b, Mark: since})
	return err
}

// Evicted reports that the daemon was allowed to lose a block.
func (w Witness) Evicted(b Block) error {
	_, err := w.tell(Event{Op: OpEvict, Block: b})
	return err
}

// Gone reports that the daemon died or restarted without what it held.
func (w Witness) Gone() error {
	_, err := w.tell(Event{Op: OpGone})
	return err
}

// Start reports a transfer that has to end within d.
func (w Witness) Start(id string, d time.Duration) error {
	_, err := w.tell(Event{Op: OpStart, ID: id, MS: d.Milliseconds()})
	return err
}

// End reports its end, good or bad.
func (w Witness) End(id string) error {
	_, err := w.tell(Event{Op: OpEnd, ID: id})
	return err
}

// Count reports the present value of something that has to return to zero.
func (w Witness) Count(name string, n int64) error {
	_, err := w.tell(Event{Op: OpCount, Name: name, N: n})
	return err
}
