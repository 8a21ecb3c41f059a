package force

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"

	"meridian/adapters/llamacpp"
	"meridian/agent/llama/pair"
	"meridian/bench/llama"
	"meridian/scheduler"
)

//go:embed testdata/prompts.txt
var prompts string

// Prompts are those that the recordings in testdata were made with, ours.
func Prompts() []string { return strings.Split(strings.TrimSpace(prompts), "\n") }

// RecordOptions say what to record.
type RecordOptions struct {
	Server      pair.Options // of which the server, its model, context, threads and arguments count
	Name        string       // of the recording
	Prompts     []string     // of a user
	Tokens      int          // thinking tokens of a request, at most
	Top         int          // most likely tokens to compute signals from
	Seed        uint32       // of the first prompt; the next has the next
	Temperature float64
	Start, End  string // the markers: Start is put after the chat template, p_end is of the first token of End
	EATEvery    int    // thinking tokens between two values of eat; 0: none
	Hold        bool   // never draw the end of the sequence, so that a model goes on that would have ended
	Progress    func(string)
}

// RecordDefaults are those of the recordings in testdata.
func RecordDefaults() RecordOptions {
	return RecordOptions{Name: "recording", Prompts: Prompts(), Tokens: 1000, Top: 2000, Seed: 1, Temperature: 0.8, Start: "<think>", End: "</think>", EATEvery: 32}
}

// Check says which option cannot be.
func (o *RecordOptions) Check() error {
	switch {
	case len(o.Prompts) == 0 || len(o.Prompts) > maxRequests:
		return fmt.Errorf("%d prompts: from 1 to %d", len(o.Prompts), maxRequests)
	case o.Tokens < 1 || o.Tokens > maxTokens:
		return fmt.Errorf("%d tokens a request: from 1 to %d", o.Tokens, maxTokens)
	case o.Tokens*len(o.Prompts) > maxTotalTokens:
		return fmt.Errorf("%d tokens in all: at most %d", o.Tokens*len(o.Prompts), maxTotalTokens)
	case o.Top < 2 || o.Top > 1<<20:
		return fmt.Errorf("the %d most likely tokens: from 2 to %d", o.Top, 1<<20)
	case !(o.Temperature > 0 && o.Temperature <= 10):
		return fmt.Errorf("a temperature of %v: above 0, at most 10", o.Temperature)
	case o.Start == "" || o.End == "" || len(o.Start)+len(o.End) > maxText:
		return fmt.Errorf("the markers %.40q and %.40q: both are needed", o.Start, o.End)
	case o.EATEvery < 0:
		return fmt.Errorf("eat every %d tokens: at least 0", o.EATEvery)
	}
	for i, p := range o.Prompts {
		if p == "" || len(p) > maxText {
			return fmt.Errorf("prompt %d has %d bytes: from 1 to %d", i+1, len(p), maxText)
		}
	}
	return nil
}

// recorder is one run of Record.
type recorder struct {
	opt   RecordOptions
	api   *llamacpp.Server
	start []int32
	end   []int32
	after []int32 // an end marker and a newline: what eat is measured after
	eos   []int32
	rec   Recording
}

// Record starts a llama-server and writes down the signals of what its model says to
// each prompt after a start marker. With an error come the requests that were whole by
// then: recording takes long.
func Record(ctx context.Context, o RecordOptions) (Recording, error) {
	if err := o.Check(); err != nil {
		return Recording{}, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Server.Slots = 1
	srv, err := llama.StartPlain(ctx, &o.Server)
	if err != nil {
		return Recording{}, err
	}
	defer srv.Close()
	r := recorder{opt: o, api: srv.API}
	if err := r.describe(ctx); err != nil {
		return Recording{}, err
	}
	for i := range o.Prompts {
		q, err := r.request(ctx, i)
		if err == nil {
			err = q.check(&r.rec.Header)
		}
		if err != nil {
			r.rec.Header.Source += fmt.Sprintf("; interrupted after %d prompts", len(r.rec.Requests))
			return r.rec, fmt.Errorf("prompt %d of %d: %w", i+1, len(o.Prompts), err)
		}
		r.rec.Requests = append(r.rec.Requests, q)
		r.rec.Header.Requests = len(r.rec.Requests)
		o.Progress(fmt.Sprintf("prompt %d of %d: %d tokens, ended by %s", i+1, len(o.Prompts), q.Tokens(), q.Ended))
	}
	return r.rec, nil
}

// describe learns the markers' ids, and writes the header.
func (r *recorder) describe(ctx context.Context) (err error) {
	o := &r.opt
	for _, m := range []struct {
		text string
		ids  *[]int32
	}{{o.Start, &r.start}, {o.End, &r.end}, {o.End + "\n", &r.after}} {
		if *m.ids, err = r.api.Tokenize(ctx, m.text, false, true); err != nil {
			return err
		}
	}
	props, err := r.api.Props(ctx)
	if err != nil {
		return err
	}
	if r.eos, err = r.endOfSequence(ctx); err != nil {
		return err
	}
	h := &r.rec.Header
	*h = Header{
		Version: Version, Name: o.Name, Kind: Recorded, Model: o.Server.Name, Engine: "llama-server " + props.Build,
		Source:   fmt.Sprintf("mrdn bench force record: what the model says to %d prompts after its chat template and the marker %s, at most %d tokens each", len(o.Prompts), o.Start, o.Tokens),
		Sampling: fmt.Sprintf("temperature %v, no other limit, seeds from %d on", o.Temperature, o.Seed),
		Top:      min(o.Top, props.Vocabulary), Vocabulary: props.Vocabulary, LeastMass: 1,
		End: o.End, EndTokens: len(r.end),
	}
	if o.Hold {
		h.Sampling += "; the end of the sequence is never drawn, its probability is recorded"
	}
	if len(r.end) > 1 {
		h.NotThinking = fmt.Sprintf("the tokenizer has no marker %s of its own, it cuts it in %d: the model was not trained to think in such markers", o.End, len(r.end))
	}
	return nil
}

// endOfSequence finds the id with which the model ends its turn: the marker that the
// chat template puts after a message.
func (r *recorder) endOfSequence(ctx context.Context) ([]int32, error) {
	const said = "mirror"
	text, err := r.api.ApplyTemplate(ctx, []llamacpp.Message{{Role: "user", Content: said}}, nil)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(text, said)
	if !ok {
		return nil, fmt.Errorf("the chat template does not show what a user says: %.80q", text)
	}
	ids, err := r.api.Tokenize(ctx, rest, false, true)
	if err != nil || len(ids) == 0 {
		return nil, errors.Join(err, fmt.Errorf("nothing follows a message in the chat template: %.80q", text))
	}
	return ids[:1], nil
}

// request records what the model says to one prompt.
func (r *recorder) request(ctx context.Context, i int) (Request, error) {
	text, err := r.api.ApplyTemplate(ctx, []llamacpp.Message{{Role: "user", Content: r.opt.Prompts[i]}}, nil)
	if err != nil {
		return Request{}, err
	}
	prompt, err := r.api.Tokenize(ctx, text, true, true)
	if err != nil {
		return Request{}, err
	}
	prompt = append(prompt, r.start...)
	q := Request{ID: fmt.Sprintf("p%02d", i+1), Prompt: r.opt.Prompts[i], Ended: ByCut}
	said := ""
	tokens := append([]int32(nil), prompt...)
	done, err := r.api.Stream(ctx, llamacpp.Completion{
		Prompt: prompt, Predict: r.opt.Tokens, Temperature: r.opt.Temperature, Seed: r.opt.Seed + uint32(i), Probs: r.opt.Top, IgnoreEOS: r.opt.Hold,
	}, func(t llamacpp.Token) error {
		tokens = append(tokens, t.ID)
		before := len(said)
		said += string(t.Bytes)
		if err := r.token(&q, t, said, before); err != nil {
			return err
		}
		if strings.Contains(said[max(before-len(r.opt.End), 0):], r.opt.End) {
			q.Ended = ByMarker
			return errEnded
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnded):
	case err != nil:
		return q, err
	case done.Lost:
		q.Note = "a token ends within a character, and the server tells nothing of it"
	case done.EOS:
		q.Ended = ByEOS
	}
	return q, r.eat(ctx, &q, tokens[len(prompt):], prompt)
}

// errEnded ends a call whose thinking has ended.
var errEnded = errors.New("thinking has ended")

// token adds the values of one token, and whether a sentence ends with it.
func (r *recorder) token(q *Request, t llamacpp.Token, said string, before int) error {
	ids, logs := make([]int32, len(t.Top)), make([]float32, len(t.Top))
	for i, p := range t.Top {
		ids[i], logs[i] = p.ID, float32(p.LogProb)
	}
	h, mass, err := scheduler.EntropyLowerBound(logs)
	if err != nil {
		return err
	}
	end, _, err := scheduler.PEndBounds(ids, logs, r.end[:1])
	if err != nil {
		return err
	}
	eos, _, err := scheduler.PEndBounds(ids, logs, r.eos)
	if err != nil {
		return err
	}
	r.rec.Header.LeastMass = min(r.rec.Header.LeastMass, math.Floor(mass*1e4)/1e4)
	q.Entropy = append(q.Entropy, round(h, 4, 1e-3))
	q.PEnd, q.PEOS = append(q.PEnd, round(end, 2, leastProb)), append(q.PEOS, round(eos, 2, leastProb))
	if endsSentence(said, before) {
		q.Sentences = append(q.Sentences, uint32(len(q.Entropy)))
	}
	return nil
}

// leastProb is the smallest probability that is written down; smaller ones are 0. The
// rules look at thousandths.
const leastProb = 1e-5

// endsSentence says whether a token that begins at before ends a sentence: it has a
// full stop, question or exclamation mark before white space or the text's end, or a
// newline.
func endsSentence(said string, before int) bool {
	text := said[before:]
	if strings.Contains(text, "\n") {
		return true
	}
	at := strings.IndexAny(text, ".!?")
	return at >= 0 && strings.TrimLeft(text[at:], ".!?\"')") == ""
}

// eat measures the entropy of the token that would follow an end marker and a newline,
// at each EATEvery thinking tokens.
func (r *recorder) eat(ctx context.Context, q *Request, thought, prompt []int32) error {
	if r.opt.EATEvery == 0 {
		return nil
	}
	for at := r.opt.EATEvery; at <= len(thought); at += r.opt.EATEvery {
		p := append(append(append([]int32(nil), prompt...), thought[:at]...), r.after...)
		var h float64
		seen := false
		_, err := r.api.Stream(ctx, llamacpp.Completion{Prompt: p, Predict: 1, Temperature: 1, Probs: r.opt.Top}, func(t llamacpp.Token) error {
			logs := make([]float32, len(t.Top))
			for i, p := range t.Top {
				logs[i] = float32(p.LogProb)
			}
			var err error
			h, _, err = scheduler.EntropyLowerBound(logs)
			seen = err == nil
			return err
		})
		if err != nil {
			return err
		}
		if !seen {
			continue // a token that ends within a character was drawn: the server tells nothing
		}
		q.EATAt, q.EAT = append(q.EATAt, uint32(at)), append(q.EAT, round(h, 4, 1e-3))
	}
	return nil
}
