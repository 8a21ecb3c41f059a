package openai

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// logged is a token whose log-probability waits until its text goes out. Start
// and end are bytes of the whole characters before and after it.
type logged struct {
	t          Token
	start, end int
	offset     int // characters before it
}

// piece is what one token lets out.
type piece struct {
	text, reasoning string
	probs           []logged
	token           *Token // on the way to another node
}

func (p *piece) empty() bool {
	return p.text == "" && p.reasoning == "" && len(p.probs) == 0 && p.token == nil
}

// answer turns tokens into what the client gets. One goroutine gives it tokens;
// another may let it show a sign of life.
type answer struct {
	mu sync.Mutex // of all that follows, once the answer is made
	*ask
	created int64
	log     *slog.Logger
	out     *writer

	cut     *textCut
	think   chars
	pending []logged

	done bool // a stop string came
	open bool // a stream has begun
	role bool // its first chunk went out, which says whose message it is

	text, reasoning strings.Builder // of an answer that goes out whole
	probs           []logged
}

func newAnswer(a *ask, out *writer, log *slog.Logger, now time.Time) *answer {
	return &answer{ask: a, created: now.Unix(), log: log, out: out, cut: newTextCut(a.stops)}
}

// take is the emit of Backend.Generate.
func (a *answer) take(t Token) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out.err != nil {
		return a.out.err
	}
	if a.done {
		return ErrStop
	}
	p := a.piece(t)
	if !p.empty() {
		if err := a.send(p); err != nil {
			return err
		}
	}
	if a.cut.hit() {
		a.done = true
		return ErrStop
	}
	return nil
}

// piece takes a token in. In a chat, thinking is apart from the answer and no
// stop string ends it; a text completion has one text, in the order of the
// tokens.
func (a *answer) piece(t Token) (p piece) {
	if a.Hop {
		p.token = &t
	}
	if t.Thinking && a.Chat {
		p.reasoning = string(a.think.push(t.Bytes))
		return p
	}
	p.reasoning = string(a.think.rest())
	e := logged{t: t, start: a.cut.in, offset: a.cut.runes}
	p.text = a.cut.push(t.Bytes)
	if e.end = a.cut.in; a.LogProbs >= 0 && !a.Hop {
		a.pending = append(a.pending, e)
		p.probs = a.release()
	}
	return p
}

// release takes the tokens whose text is out. Of a token that a stop string cuts
// in two, the beginning is out.
func (a *answer) release() []logged {
	n := 0
	for n < len(a.pending) {
		e := &a.pending[n]
		if e.end > a.cut.out && !(a.cut.hit() && e.start < a.cut.out) {
			break
		}
		n++
	}
	out := a.pending[:n]
	a.pending = a.pending[n:]
	return out
}

// last is what was held back.
func (a *answer) last() piece {
	if a.done {
		return piece{}
	}
	p := piece{reasoning: string(a.think.rest()), text: a.cut.end(), probs: a.pending}
	a.pending = nil
	return p
}

func (a *answer) send(p piece) error {
	if !a.stream {
		a.text.WriteString(p.text)
		a.reasoning.WriteString(p.reasoning)
		a.probs = append(a.probs, p.probs...)
		return nil
	}
	if err := a.begin(); err != nil {
		return err
	}
	c := a.choice(p, false)
	chunk := a.chunk(c)
	if p.token != nil {
		chunk.Meridian = a.marshal(hopTokenOf(p.token))
	}
	return a.event(chunk)
}

// head sends the status of a stream: from here on an error has none of its own.
func (a *answer) head() {
	if a.open {
		return
	}
	a.open = true
	h := a.out.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would gather the tokens
	a.out.status(http.StatusOK)
}

// begin sends what comes before the first piece of a stream.
func (a *answer) begin() error {
	if a.role {
		return nil
	}
	a.role = true
	a.head()
	if !a.Chat {
		return nil
	}
	empty := ""
	return a.event(a.chunk(Choice{Delta: &ChatPart{Role: "assistant", Content: &empty}}))
}

// finish ends the answer.
func (a *answer) finish(r Result) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	reason := "stop"
	if !a.done && r.Finish == "length" {
		reason = "length"
	}
	last := a.last()
	if !a.stream {
		_ = a.send(last) // only gathers
		c := a.choice(piece{text: a.text.String(), reasoning: a.reasoning.String(), probs: a.probs}, true)
		c.FinishReason = &reason
		whole := a.chunk(c)
		whole.Object = strings.TrimSuffix(whole.Object, ".chunk")
		whole.Usage, whole.Meridian = usageOf(r), a.report(r)
		return a.out.json(http.StatusOK, whole)
	}
	if err := a.begin(); err != nil {
		return err
	}
	if !last.empty() {
		if err := a.send(last); err != nil {
			return err
		}
	}
	c := a.choice(piece{}, false)
	c.FinishReason = &reason
	chunk := a.chunk(c)
	chunk.Meridian = a.report(r)
	if err := a.event(chunk); err != nil {
		return err
	}
	if a.usage {
		chunk := a.chunk()
		chunk.Usage = usageOf(r)
		if err := a.event(chunk); err != nil {
			return err
		}
	}
	return a.out.write([]byte("data: [DONE]\n\n"))
}

// fail tells the client of an error, by status or, in a stream, by an event;
// whole says whether it was by status.
func (a *answer) fail(e *Error) (whole bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		return true, a.out.error(e)
	}
	return false, a.out.write(append(append([]byte("data: "), e.encode()...), "\n\n"...))
}

// quiet is how long nothing has been sent: not at all while something is.
func (a *answer) quiet() time.Duration {
	if !a.mu.TryLock() {
		return 0
	}
	defer a.mu.Unlock()
	return time.Since(a.out.last)
}

// beat is a sign of life within a stream: a comment, which clients of the API
// leave out. Where something else is being sent, there is none. The first chunk does
// not go out with it: some take its time for that of the first token.
func (a *answer) beat(p Progress) {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if a.out.err != nil {
		return
	}
	line := waitingLine
	if a.Hop {
		line = aliveLine(p)
	}
	a.head()
	_ = a.out.write(line) // the next token meets the same error
}

func (a *answer) chunk(c ...Choice) *Chunk {
	object := "text_completion"
	if a.Chat {
		object = "chat.completion.chunk"
	}
	if c == nil {
		c = []Choice{} // [] in JSON, not null
	}
	return &Chunk{ID: a.ID, Object: object, Created: a.created, Model: a.Model, Choices: c, Tier: a.tier}
}

func (a *answer) choice(p piece, whole bool) (c Choice) {
	if len(p.probs) > 0 {
		c.LogProbs = &LogProbs{legacy: !a.Chat, Content: []ChatLogProb{}}
		for _, e := range p.probs {
			c.LogProbs.add(e, a.LogProbs)
		}
	}
	if !a.Chat {
		c.Text = &p.text
		return c
	}
	part := &ChatPart{}
	if p.text != "" || whole {
		part.Content = &p.text
	}
	if p.reasoning != "" {
		part.ReasoningContent = &p.reasoning
	}
	if c.Delta = part; whole {
		part.Role = "assistant"
		c.Delta, c.Message = nil, part
	}
	return c
}

// report is what the node says of the request, and which of its members nothing
// here knows.
func (a *answer) report(r Result) json.RawMessage {
	if r.Node == nil && r.Forced == "" && len(a.ignored) == 0 {
		return nil
	}
	m := map[string]any{}
	for k, v := range r.Node {
		m[k] = v
	}
	if r.Forced != "" {
		m["forced"] = r.Forced
	}
	if len(a.ignored) > 0 && !a.Hop {
		m["ignored"] = a.ignored
	}
	return a.marshal(m)
}

func (a *answer) marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		a.log.Error("a node's report cannot be told", "request", a.ID, "err", err)
		return nil
	}
	return b
}

func (a *answer) event(c *Chunk) error {
	b := bytes.NewBufferString("data: ")
	if err := encodeJSON(b, c); err != nil {
		return err
	}
	b.WriteByte('\n')
	return a.out.write(b.Bytes())
}
