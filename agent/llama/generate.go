package llama

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/agent/openai"
	"meridian/scheduler"
)

// A request, in order:
//
//  1. tokens     the prompt, by llama-server's own template and tokenizer
//  2. hand over  a prefill node fills (3) and gives the rest to its partner's front
//  3. fill       KV of the prompt into a slot: what the slot holds, what the daemon or
//                a peer holds, what the partner prefills, and the rest by this model,
//                in pieces
//  4. decode     quanta of some tokens; between two, the scheduler may let others go
//                first, or end the thinking
//  5. keep       the blocks that are new go to the daemon
//
// Filling computes the prompt with no token decoded, so that decoding always starts
// from the same number of cached tokens: all but the last. What follows is then
// bit-equal wherever the KV came from, which it is not after a prefill of another
// batch shape.

// job is one request on one slot.
type job struct {
	n      *Node
	s      *server
	turn   *turn
	slot   *slot // none while it is preempted
	r      *openai.Request
	tokens []int32 // prompt, then what was decoded
	prompt int     // tokens of the prompt
	asked  *prompt // what the prompt was made of; nil for a partner's
	req    uint32  // the daemon's number of the request; 0: none
	added  int     // blocks that were new to the daemon
	think  *thought

	began    time.Time
	ttft     time.Duration
	cached   int    // prompt tokens whose KV was not computed here
	computed int    // prompt tokens that this node computed
	away     uint64 // bytes of blocks that only other daemons had when they were looked up
	pulled   uint64 // those that were restored
	restored uint64 // bytes of blocks that went into the slot
	loaded   int    // tokens that a restore put into the slot by llama-server's word, until a call has verified it
	verified bool   // the first quantum has
	expect   int    // tokens that the slot holds then
	prefill  string // who prefilled what was missing
	drawn    int    // tokens decoded, the injected ones not counted
	quanta   uint64
	seed     uint64
	whole    bool    // ask for whole answers: a token's id was lost in a stream
	unread   unread  // of a request in the background
	part     []int32 // tokens whose text is part of a character
}

// Models implements openai.Backend.
func (n *Node) Models(context.Context) ([]openai.Model, error) {
	return []openai.Model{{ID: n.cfg.Name, Created: n.created.Unix(), OwnedBy: "meridian", Context: n.cfg.Context}}, nil
}

// Generate implements openai.Backend.
func (n *Node) Generate(ctx context.Context, r *openai.Request, emit func(openai.Token) error) (openai.Result, error) {
	res, err := n.generate(ctx, r, emit)
	switch { // a request counts when it has ended, and once
	case err == nil:
		n.stats.answered.Add(1)
	case errors.Is(err, context.Canceled):
		n.stats.cancelled.Add(1)
	default:
		n.stats.failed.Add(1)
	}
	if err != nil {
		return res, n.errorFor(err)
	}
	return res, nil
}

// generate tries once more where llama-server ended before the client has seen a
// token: it is started again at once.
func (n *Node) generate(ctx context.Context, r *openai.Request, emit func(openai.Token) error) (openai.Result, error) {
	began, seen := time.Now(), false
	for again := true; ; again = false {
		s, err := n.soon(ctx)
		if err != nil {
			return openai.Result{}, err
		}
		res, err := n.on(ctx, s, r, began, func(t openai.Token) error {
			seen = true
			return emit(t)
		})
		err = s.whyDown(ctx, err)
		if !again || seen || !errors.Is(err, llamacpp.ErrGone) && !errors.Is(err, ErrDown) {
			return res, err
		}
		sleep(ctx, downTimeout, s.proc.Gone) // its supervisor may not have noticed
	}
}

// whyDown is err, or ErrDown for whatever went wrong because llama-server ended:
// its session with the daemon is closed then too.
func (s *server) whyDown(ctx context.Context, err error) error {
	var said *openai.Error
	if err == nil || s.proc.Alive() || ctx.Err() != nil || errors.As(err, &said) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDown, s.proc.Death)
}

// soon waits a little for a server that is starting.
func (n *Node) soon(ctx context.Context) (*server, error) {
	wait, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	s, err := n.current(wait)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrDown, n.Down())
	}
	return s, err
}

// on runs a request on one llama-server.
func (n *Node) on(ctx context.Context, s *server, r *openai.Request, began time.Time, emit func(openai.Token) error) (res openai.Result, err error) {
	p, err := s.promptOf(ctx, r, &n.cfg)
	if err != nil {
		return openai.Result{}, err
	}
	j, err := n.open(ctx, s, r, p)
	if err != nil {
		return openai.Result{}, err
	}
	j.began = began
	defer func() { // once it has no slot
		switch lost := j.unread.read(); {
		case err != nil:
		case errors.Is(lost, openai.ErrStop):
			res.Finish = "stop"
		default:
			err = lost
		}
	}()
	defer j.close()
	if err := j.fill(ctx); err != nil {
		return j.result(""), err
	}
	if n.handsOver(r) {
		res, used, err := j.handOver(ctx, emit)
		if used {
			return res, err
		}
		n.log.Debug("the partner did not decode, so this node does", "err", err)
	}
	return j.decode(ctx, emit)
}

// open takes a slot and tells the daemon of the request.
func (n *Node) open(ctx context.Context, s *server, r *openai.Request, p *prompt) (*job, error) {
	if err := s.intact(); err != nil {
		return nil, err
	}
	u, err := s.turns.enter(ctx, s.arrival(r, p), s.proc.Gone)
	if err != nil {
		return nil, err
	}
	j := &job{n: n, s: s, turn: u, slot: u.slot, r: r, tokens: p.tokens, prompt: len(p.tokens), asked: p, expect: len(p.tokens) - 1, began: time.Now()}
	if r != nil {
		if j.seed = rand.Uint64(); r.Seed != nil {
			j.seed = uint64(*r.Seed)
		}
		// Of the prompt the daemon's router needs to know only whether it leaves
		// thinking open, which ids alone would not tell it for sure.
		var tail []int32
		if p.open {
			tail = s.marks.Start
		}
		j.req, err = s.engine.Begin(ctx, client.Begin{ID: r.ID, Model: s.marks.Name, Prompt: tail})
		if err != nil { // its blocks then live as those of no request
			n.log.Warn("the daemon does not follow a request", "err", err)
		}
	}
	return j, nil
}

// arrival is what the scheduler is told of a request; r is nil for a partner's prompt.
func (s *server) arrival(r *openai.Request, p *prompt) arrival {
	a := arrival{tokens: p.tokens}
	if r == nil {
		return a
	}
	if r.Background {
		a.class = Background
	}
	a.thinks = s.thinks() && p.budget != 0
	a.fixed = r.Seed != nil && r.Temperature > 0 // each quantum draws from a generator of its own
	return a
}

// close gives everything back.
func (j *job) close() {
	j.countRestore(j.loaded) // no call has followed it
	if j.req != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
		defer cancel()
		_ = j.s.engine.Finish(ctx, j.req, false) // a daemon that is gone has forgotten it
	}
	j.turn.end()
}

// promptOf renders and tokenises a request's prompt.
func (s *server) promptOf(ctx context.Context, r *openai.Request, cfg *Config) (*prompt, error) {
	p, err := s.render(ctx, r, cfg)
	if err != nil {
		return nil, err
	}
	switch {
	case len(p.tokens) == 0:
		return nil, invalid("prompt", "the prompt has no token")
	case len(p.tokens) >= s.context:
		return nil, &openai.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "context_length_exceeded", Param: "messages",
			Message: fmt.Sprintf("the prompt has %d tokens; the context of this node has %d, and one at least must be left for the answer", len(p.tokens), s.context)}
	}
	return p, nil
}

// known refuses ids that the model does not have.
func (s *server) known(param string, tokens []int32) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= s.vocabulary {
			return invalid(param, fmt.Sprintf("token %d is %d; the vocabulary has %d", i, t, s.vocabulary))
		}
	}
	return nil
}

// decode draws tokens until the model, the request or the context ends.
func (j *job) decode(ctx context.Context, emit func(openai.Token) error) (openai.Result, error) {
	j.think = j.s.follow(j.asked, &j.n.cfg)
	limit := j.s.context - j.prompt
	if j.r.MaxTokens > 0 {
		limit = min(limit, j.r.MaxTokens)
	}
	finish, kept := "length", false
	for {
		room := limit - (len(j.tokens) - j.prompt)
		if room < 1 {
			break
		}
		stop, err := j.advance(ctx, room, emit)
		if stop || errors.Is(err, openai.ErrStop) {
			finish = "stop"
			break
		}
		if err != nil {
			j.remember()
			return j.result(finish), err
		}
		if j.think.Closed() && !kept {
			kept = true
			j.leaveThinking(ctx)
		}
	}
	j.turn.reads() // from here on it waits for no token
	for _, t := range shown(j.think.Rest()) {
		if err := j.show(t, emit); err != nil && !errors.Is(err, openai.ErrStop) {
			return j.result(finish), err
		}
	}
	j.turn.reads()
	j.tell(j.think.untold)
	j.remember()
	j.keepAnswer()
	return j.result(finish), nil
}

// advance waits for a turn, ends the thinking if it is to end now, and decodes a
// quantum.
func (j *job) advance(ctx context.Context, room int, emit func(openai.Token) error) (stop bool, err error) {
	most, err := j.awaitTurn(ctx)
	if err != nil {
		return false, err
	}
	drawn := j.drawn
	defer func() { j.turn.ran(0, j.drawn-drawn, j.think.Phase()) }()
	before := len(j.tokens)
	if err := j.force(ctx, room, emit); err != nil {
		return false, err
	}
	if room -= len(j.tokens) - before; room < 1 {
		return false, nil
	}
	return j.quantum(ctx, min(room, most), emit)
}

// quantum decodes some tokens. A quantum that ends with a probe decodes one.
func (j *job) quantum(ctx context.Context, left int, emit func(openai.Token) error) (stop bool, err error) {
	n, probe := j.think.next(j.n.cfg.Quantum, &j.n.cfg.Thinking)
	n = min(n, left)
	q := j.request(n)
	q.Probs = max(q.Probs, probe)
	j.quanta++
	if j.whole {
		return j.takeWhole(ctx, q, 0, probe > 0, emit)
	}
	told := 0
	step := j.n.work.begin(moveTime)
	defer step.end()
	done, err := j.s.api.Stream(ctx, q, func(t llamacpp.Token) error {
		told++
		step.next(moveTime)
		j.turn.token(told == 1)
		defer j.turn.awaits()
		return j.take(ctx, t, probe > 0, emit)
	})
	if err == nil && !done.Lost {
		j.verifyDecode(done)
	}
	if err != nil || !done.Lost {
		return done.EOS, err
	}
	j.whole = true // text that has one token that ends within a character has many
	return j.takeWhole(ctx, q, told, probe > 0, emit)
}

// takeWhole makes a call whose answer comes as a whole, and leaves out the tokens
// that were told already: the same call draws the same ones.
func (j *job) takeWhole(ctx context.Context, q llamacpp.Completion, told int, probe bool, emit func(openai.Token) error) (stop bool, err error) {
	step := j.n.work.begin(moveTime)
	tokens, done, err := j.s.api.Whole(ctx, q)
	step.end()
	if err == nil {
		j.verifyDecode(done)
	}
	for i := told; i < len(tokens) && err == nil; i++ {
		err = j.take(ctx, tokens[i], probe, emit)
	}
	j.turn.awaits()
	return done.EOS, err
}

// request is a call of llama-server that goes on where the slot is. Each quantum
// draws from a generator of its own, all determined by the request's seed.
func (j *job) request(n int) llamacpp.Completion {
	r := j.r
	if j.whole {
		n = max(1, min(n, wholeQuantum))
	}
	return llamacpp.Completion{
		Prompt: j.tokens, Slot: j.slot.id, Predict: n, // as it is now: tokens are only ever appended
		Temperature: r.Temperature, TopK: r.TopK, TopP: r.TopP, MinP: r.MinP,
		FrequencyPenalty: r.FrequencyPenalty, PresencePenalty: r.PresencePenalty,
		Seed: uint32(j.seed + j.quanta), Probs: r.LogProbs,
	}
}

// wholeQuantum is a quantum of text whose tokens end within characters: the
// answer comes as a whole, so it is short.
const wholeQuantum = 4

// take hands one decoded token on.
func (j *job) take(ctx context.Context, t llamacpp.Token, probe bool, emit func(openai.Token) error) error {
	if j.drawn == 0 {
		j.ttft = time.Since(j.began)
	}
	j.drawn++
	j.n.stats.decodedTokens.Add(1)
	j.tokens = append(j.tokens, t.ID)
	text, err := j.text(ctx, t)
	if err != nil {
		return err
	}
	tok := openai.Token{ID: t.ID, Bytes: text, HasLogProb: len(t.Top) > 0, LogProb: t.LogProb, Top: alternatives(t.Top, j.r.LogProbs)}
	show, tell := j.think.token(tok, &j.s.marks)
	j.tell(tell)
	if probe && len(t.Top) > 0 {
		j.probe(t)
	}
	for _, t := range show {
		if err := j.give(t, emit); err != nil {
			return err
		}
	}
	return nil
}

// text is what a token adds. A token that ends within a character adds nothing:
// the one that completes it adds all, by the server's own detokenizer, since bytes
// of a call are only those of its own tokens.
func (j *job) text(ctx context.Context, t llamacpp.Token) ([]byte, error) {
	if len(j.part) == 0 && !t.Part && utf8.Valid(t.Bytes) {
		return t.Bytes, nil // none for the end of the sequence
	}
	j.part = append(j.part, t.ID)
	text, err := j.s.api.Detokenize(ctx, j.part)
	if err != nil {
		return nil, err
	}
	if len(j.part) < utf8.UTFMax && strings.HasSuffix(text, "\ufffd") {
		return nil, nil
	}
	j.part = j.part[:0]
	return []byte(text), nil
}

func alternatives(top []llamacpp.TokenProb, n int) []openai.TokenProb {
	if n < 1 {
		return nil
	}
	out := make([]openai.TokenProb, 0, n)
	for _, t := range top[:min(n, len(top))] {
		out = append(out, openai.TokenProb{ID: t.ID, Bytes: t.Bytes, LogProb: t.LogProb})
	}
	return out
}

// give shows a reader a token, or a part of one.
func (j *job) give(t openai.Token, emit func(openai.Token) error) error {
	if t.Thinking {
		j.n.stats.thinkTokens.Add(1)
	}
	return j.show(t, emit)
}

// tell reports tokens to the daemon, whose router moves the tiers of blocks.
func (j *job) tell(tokens []int32) {
	for _, t := range tokens {
		if j.req != 0 {
			_ = j.s.engine.Tokens([]uint32{j.req}, []uint8{1}, []int32{t}) // a daemon that is gone ends the node's server
		}
	}
}

// probe computes the signals of one token's distribution.
func (j *job) probe(t llamacpp.Token) {
	ids, logs := make([]int32, len(t.Top)), make([]float32, len(t.Top))
	for i, p := range t.Top {
		ids[i], logs[i] = p.ID, float32(p.LogProb)
	}
	h, _, err := scheduler.EntropyLowerBound(logs)
	if err != nil {
		j.n.log.Warn("a probe's distribution is of no use", "err", err)
		return
	}
	j.think.Signal(scheduler.Signal{Name: scheduler.SigEntropy, Value: float32(h)})
	if low, _, err := scheduler.PEndBounds(ids, logs, j.s.marks.End[:1]); err == nil {
		j.think.Signal(scheduler.Signal{Name: scheduler.SigPEnd, Value: float32(low)})
	}
}

// remember notes what the slot's cache begins with now. The last token was drawn
// and not computed.
func (j *job) remember() {
	if j.slot == nil { // it ended while it was preempted
		return
	}
	j.slot.cached = append(j.slot.cached[:0], j.tokens[:max(len(j.tokens)-1, 0)]...)
}

func (j *job) result(finish string) openai.Result {
	res := openai.Result{Finish: finish, Prompt: j.prompt, Completion: len(j.tokens) - j.prompt, Cached: j.cached}
	res.Node = map[string]any{
		"node": j.n.cfg.Agent, "prefill": j.prefill, "ttft_ms": j.ttft.Seconds() * 1e3,
		"prompt_cached": j.cached, "prompt_computed": j.computed, "pulled_bytes": j.pulled, "restored_bytes": j.restored,
	}
	if j.think != nil {
		res.Thinking, res.Forced = j.think.Used(), j.think.forced()
	}
	if j.asked != nil {
		if m := j.asked.report(j.think); len(m) > 0 {
			res.Node["thinking"] = m
		}
	}
	return res
}
