package scheduler

import (
	"math"
	"strings"
)

// WatchOptions describe one request.
type WatchOptions struct {
	Model    string // as in Models
	Open     bool   // what the chat template adds after the last message leaves thinking open: see OpensAfter
	Budget   int    // thinking tokens of this request; below 0: the model's own, or MaxThink. The smallest holds
	MaxThink uint32 // of models that state none; 0: DefaultMaxThink
	Signals  *Rules // nil: signals force nothing
}

// Watch follows the decoded tokens of one request whose engine tells their text.
// It says what a reader may see of each, as thinking or as answer, how many
// tokens may be decoded before it must be asked again, and what to append when
// the thinking is to end.
//
// It reads text, so a marker is found however the tokens cut it: merged with
// what stands before or after it, or split over several. It shows no marker, nor
// what may still become one: such tokens are held back until the next ones tell.
//
// A Watch is for the owner of the batch, as a Core is for a caller that only hears of
// it. It is used by one goroutine.
type Watch[T any] struct {
	m     *compiled
	phase Phase
	limit int // thinking tokens
	used  int
	rules Monitor

	held  []heldToken[T]
	match uint8 // bytes of the marker looked for that the text ends with
	ids   uint8 // ids of the end marker that the thinking ends with
	solid int   // bytes from the first that is no white space on, in Prefill and while stale

	opened, closed bool // a start marker, an end marker was decoded or given
	stale          bool // Force has given one, and nothing of the answer was visible yet

	why    Reason // thinking is to end
	forced Reason // it was ended
	out    []Piece[T]
}

// Piece is the text of a token, or a part of it, that a reader may see now.
type Piece[T any] struct {
	Token T
	Text  []byte
	Think bool
	First bool // the first piece of its token, which seldom has two
}

// heldToken is a token that is not shown yet, or not wholly.
type heldToken[T any] struct {
	token  T
	text   []byte // as it is written
	at     int    // bytes of it that were shown or are part of a marker
	silent bool   // a control token: nothing of it is ever shown
	seen   bool   // a piece of it was shown
}

// maxHeld bounds the tokens that are held back before an answer: white space,
// most of all.
const maxHeld = 64

// NewWatch starts with the first token to be decoded.
func NewWatch[T any](ms *Models, o WatchOptions) *Watch[T] {
	m, _ := ms.find(o.Model)
	w := &Watch[T]{m: m, limit: int(m.maxThink), phase: Prefill}
	if w.limit == 0 {
		w.limit = int(o.MaxThink)
	}
	if w.limit == 0 {
		w.limit = DefaultMaxThink
	}
	if o.Budget >= 0 {
		w.limit = min(w.limit, o.Budget)
	}
	if o.Signals != nil {
		w.rules = o.Signals.Monitor()
		if m.minThink > 0 {
			w.rules.least = m.minThink
		}
	}
	switch {
	case len(m.startText.seq) == 0:
		w.phase = OutputDecode
	case o.Open:
		w.phase, w.opened = ThinkDecode, true
	}
	return w
}

// Token takes the next token in, with the text that it adds, and returns what may
// be shown, in order. The result lives until the next call.
func (w *Watch[T]) Token(t T, id int32, text []byte) []Piece[T] {
	w.out = w.out[:0]
	h := heldToken[T]{token: t, text: text}
	if written := w.m.written[id]; len(text) == 0 && written != "" {
		h.text, h.silent = []byte(written), true
	}
	w.held = append(w.held, h)
	thought := w.phase == ThinkDecode
	if thought {
		w.ids = w.m.end.step(w.ids, id)
	}
	for i, b := range h.text {
		left := len(h.text) - i - 1
		if w.phase == Prefill {
			w.seek(b, left)
		} else if w.phase == ThinkDecode {
			thought = true
			w.scan(b, left)
		} else if w.stale {
			w.skip(b, left)
		}
	}
	if w.m.end.whole(w.ids) {
		w.ids = 0
	}
	if thought {
		w.used++
	}
	switch {
	case w.phase == Prefill && len(w.held) > maxHeld:
		w.phase = OutputDecode
	case w.phase == Prefill:
		return w.out
	}
	keep := 0
	if w.phase == ThinkDecode || w.stale {
		keep = int(w.match)
	}
	w.show(keep, w.phase == ThinkDecode, false)
	return w.out
}

// seek looks for a start marker at the beginning of what is decoded, after white
// space. left are the bytes of the token after b.
func (w *Watch[T]) seek(b byte, left int) {
	if w.solid == 0 && blank(b) {
		return
	}
	w.solid++
	w.match = w.m.startText.step(w.match, b)
	switch {
	case w.m.startText.whole(w.match):
		w.drop(left)
		w.phase, w.match, w.opened = ThinkDecode, 0, true
	case int(w.match) < w.solid: // what came first was no marker
		w.phase, w.match = OutputDecode, 0
	}
}

func blank(b byte) bool { return strings.IndexByte(" \t\r\n\v\f", b) >= 0 }

// scan looks for the end marker.
func (w *Watch[T]) scan(b byte, left int) {
	w.match = w.m.endText.step(w.match, b)
	if !w.m.endText.whole(w.match) {
		return
	}
	w.show(left+len(w.m.endText.seq), true, true)
	w.drop(left)
	w.phase, w.match, w.closed = OutputDecode, 0, true
}

// skip leaves out an end marker that the model decodes although Force has given one: it
// was about to. Once something of the answer is visible, a marker is its own text.
func (w *Watch[T]) skip(b byte, left int) {
	if w.solid == 0 && blank(b) {
		return
	}
	w.solid++
	w.match = w.m.endText.step(w.match, b)
	switch {
	case w.m.endText.whole(w.match):
		w.show(left+len(w.m.endText.seq), false, true)
		w.drop(left)
		w.match, w.solid = 0, 0
	case int(w.match) < w.solid:
		w.stale, w.match = false, 0
	}
}

// show gives out what is held, but for the last keep bytes. A token that lies
// across that border is shown in part if cut is set, else held back.
func (w *Watch[T]) show(keep int, think, cut bool) {
	give, n := -keep, 0
	for i := range w.held {
		give += len(w.held[i].text) - w.held[i].at
	}
	for ; n < len(w.held); n++ {
		h := &w.held[n]
		end := len(h.text)
		if size := end - h.at; give < size {
			if give <= 0 || !cut {
				break
			}
			end = h.at + give
		}
		p := Piece[T]{Token: h.token, Think: think, First: !h.seen}
		if !h.silent {
			p.Text = h.text[h.at:end]
		}
		w.out = append(w.out, p)
		give -= end - h.at
		h.at, h.seen = end, true
		if end < len(h.text) {
			break
		}
	}
	w.held = append(w.held[:0], w.held[n:]...)
}

// drop forgets what is held, but for the last keep bytes: it is a marker, and
// white space in front of one.
func (w *Watch[T]) drop(keep int) {
	n := len(w.held)
	for n > 0 && keep > 0 {
		h := &w.held[n-1]
		h.at = max(h.at, len(h.text)-keep)
		keep -= len(h.text) - h.at
		n--
	}
	w.held = append(w.held[:0], w.held[n:]...)
}

// Rest is what is still held at the end of the request.
func (w *Watch[T]) Rest() []Piece[T] {
	w.out = w.out[:0]
	w.show(0, w.phase == ThinkDecode, true)
	return w.out
}

// Signal takes a measurement of the thinking so far.
func (w *Watch[T]) Signal(s Signal) {
	if w.phase != ThinkDecode || w.why != NoReason || w.rules.rules == nil {
		return
	}
	w.why, _ = w.rules.sample(uint32(w.used), s)
}

// Phase is where the request stands: Prefill until it is known whether it thinks,
// ThinkDecode, OutputDecode.
func (w *Watch[T]) Phase() Phase { return w.phase }

// Holds says whether tokens are held back.
func (w *Watch[T]) Holds() bool { return len(w.held) > 0 }

// Opened says whether the request has thought, or begun to.
func (w *Watch[T]) Opened() bool { return w.opened }

// Closed says whether its thinking has ended.
func (w *Watch[T]) Closed() bool { return w.closed }

// Used are the thinking tokens that were decoded, an end marker that the model
// decoded included. Where Left is kept they are never more than the budget, but
// for one that came in one token with the start marker.
func (w *Watch[T]) Used() int { return w.used }

// Forced is why the thinking was ended by Force; NoReason: it was not.
func (w *Watch[T]) Forced() Reason { return w.forced }

// Left is how many tokens may be decoded before Force must be asked: then the
// budget holds to the token. It is at least 1 unless Force has something to say.
func (w *Watch[T]) Left() int {
	switch {
	case len(w.m.end.seq) == 0 || w.phase > ThinkDecode:
		return math.MaxInt
	case w.phase == Prefill: // all but the marker itself may be thinking
		return max(w.limit, 1)
	}
	return max(w.limit-w.used, 0)
}

// Force is what to append to the tokens so that the thinking ends.
type Force[T any] struct {
	Reason Reason
	IDs    []int32    // shared, must not be changed; nil: the ids of Text, which the tokenizer knows
	Text   string     // the rest of an end marker that the model has begun in other tokens than its own
	Shown  []Piece[T] // what was held back and is no marker
}

// Force ends the thinking if it is to end now. What the model has begun of an end
// marker is completed, so that there is one. A marker of one id has no part: text
// that only looks like its beginning is thinking.
func (w *Watch[T]) Force() (f Force[T], ok bool) {
	why := w.why
	if why == NoReason && w.used >= w.limit {
		why = HardCap
	}
	if w.phase != ThinkDecode || why == NoReason || len(w.m.end.seq) == 0 {
		return f, false
	}
	f.Reason, f.IDs = why, w.m.end.seq
	w.out = w.out[:0]
	switch begun := int(w.match); {
	case begun == 0:
	case w.begunByIDs():
		f.IDs = w.m.end.seq[w.ids:]
		w.show(begun, true, true)
		w.drop(0)
	case len(w.m.end.seq) > 1:
		f.IDs, f.Text = nil, string(w.m.endText.seq[begun:])
		w.show(begun, true, true)
		w.drop(0)
	}
	w.show(0, true, true)
	f.Shown = w.out
	w.phase, w.forced, w.match, w.closed = OutputDecode, why, 0, true
	w.stale, w.solid = true, 0
	return f, true
}

// begunByIDs says whether the text that may be the beginning of an end marker is
// of the marker's own ids.
func (w *Watch[T]) begunByIDs() bool {
	if w.ids == 0 || len(w.held) != int(w.ids) {
		return false
	}
	n := 0
	for i := range w.held {
		n += len(w.held[i].text) - w.held[i].at
	}
	return n == int(w.match)
}

// OpensAfter says whether text leaves thinking open: whether its last start
// marker comes after its last end marker. The text is what the chat template adds
// after the last message, never what a user wrote.
func (ms *Models) OpensAfter(model, text string) bool {
	m, _ := ms.find(model)
	start, end := string(m.startText.seq), string(m.endText.seq)
	if start == "" {
		return false
	}
	return strings.LastIndex(text, start) > strings.LastIndex(text, end) || end == "" && strings.Contains(text, start)
}

// EndsOpen says whether a whole prompt ends with a start marker and white space,
// for prompts of which nobody knows where the user's words end.
func (ms *Models) EndsOpen(model, prompt string) bool {
	m, _ := ms.find(model)
	start := string(m.startText.seq)
	return start != "" && strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n\v\f"), start)
}
