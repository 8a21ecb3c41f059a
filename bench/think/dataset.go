package think

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"meridian/bench/trace"
)

// Dataset is what a workload's requests are drawn from in place of spans.
type Dataset struct {
	Kind    string `json:"kind"` // ShareGPT, Math500 or Fast25
	File    string `json:"file"`
	Entries int    `json:"entries"`           // that a request can be drawn from
	Skipped int    `json:"skipped,omitempty"` // conversations that do not begin with a question and its answer
	Lengths string `json:"lengths"`           // where they are from

	rows []row
	span time.Duration // of a trace: from one of its requests to itself, if it went on for ever
}

// row is what one entry says of a request.
type row struct {
	line           int // of the file, where the entry begins
	prompt, answer int // tokens
	at             time.Duration
	content        []int // of a trace: what the prompt says, by number of its blocks
}

// The kinds of data sets, by the workloads that they are for.
const (
	ShareGPT = "sharegpt" // chat
	Math500  = "math500"  // reasoning
	Fast25   = "fast25"   // both, with the times of their arrival
)

const (
	// textBytes are taken for a token where a data set has text and no tokenizer is at hand:
	// the mean of English text with vocabularies of 100,000 and more.
	textBytes = 4

	maxEntry   = 16 << 20 // bytes of one entry of a data set
	maxEntries = 1 << 20
)

// ReadDataset reads a data set of a kind under the field names that it is published with:
//
//	sharegpt  conversations: a list of from (human, gpt) and value; JSON array or lines
//	math500   problem, solution; JSON lines or array
//	fast25    timestamp (ms), input_length, output_length, hash_ids; JSON lines
//
// An error names the line, the field and its value.
func ReadDataset(kind, file string, r io.Reader) (*Dataset, error) {
	d := &Dataset{Kind: kind, File: file, Lengths: fmt.Sprintf("%d bytes of text are taken for a token", textBytes)}
	var err error
	switch kind {
	case ShareGPT:
		err = d.entries(r, d.conversation)
	case Math500:
		err = d.entries(r, d.problem)
	case Fast25:
		var reqs []trace.Request
		if reqs, err = trace.Read(r, 0); err == nil {
			err = d.trace(reqs)
		}
	default:
		err = fmt.Errorf("%q is no kind of data set: there are %s, %s and %s", kind, ShareGPT, Math500, Fast25)
	}
	if err == nil && len(d.rows) == 0 {
		err = fmt.Errorf("no request in it (%d entries were skipped)", d.Skipped)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	d.Entries = len(d.rows)
	return d, nil
}

// Conversation is the trace of FAST '25 that is part of this program.
func Conversation() (*Dataset, error) {
	reqs, err := trace.Conversation(0)
	if err != nil {
		return nil, err
	}
	d := &Dataset{Kind: Fast25, File: "the conversation trace"}
	if err := d.trace(reqs); err != nil {
		return nil, err
	}
	d.Entries = len(d.rows)
	return d, nil
}

// trace takes over the requests of one.
func (d *Dataset) trace(reqs []trace.Request) error {
	d.Lengths = "input_length and output_length, times between arrivals scaled to the rate"
	var last time.Duration
	for _, q := range reqs {
		for _, f := range []struct {
			name string
			v    int
		}{{"input_length", q.InputTokens}, {"output_length", q.OutputTokens}} {
			if f.v < 1 {
				return fmt.Errorf("line %d: %s: %d: a request has at least one token of each", q.Line, f.name, f.v)
			}
		}
		if q.At < last {
			return fmt.Errorf("line %d: timestamp: %d: the line before has %d, and they are in order of time", q.Line, q.At.Milliseconds(), last.Milliseconds())
		}
		if n := (q.InputTokens + trace.BlockTokens - 1) / trace.BlockTokens; len(q.Blocks) < n {
			return fmt.Errorf("line %d: hash_ids: %d of them, and input_length %d is %d blocks of %d", q.Line, len(q.Blocks), q.InputTokens, n, trace.BlockTokens)
		}
		last = q.At
		d.rows = append(d.rows, row{line: q.Line, prompt: q.InputTokens, answer: q.OutputTokens, at: q.At, content: q.Blocks})
	}
	if len(reqs) == 0 {
		return nil
	}
	if last == reqs[0].At {
		return fmt.Errorf("timestamp: all %d requests came at %d ms: there is no time between arrivals to scale", len(reqs), last.Milliseconds())
	}
	d.span = (last - reqs[0].At) * time.Duration(len(reqs)) / time.Duration(len(reqs)-1)
	return nil
}

// entries hands each entry of a JSON array, or of JSON values one after the other, on.
func (d *Dataset) entries(r io.Reader, take func(object) error) error {
	in := &lines{r: r, last: -1}
	dec := json.NewDecoder(in)
	array := false
	for n := 0; ; n++ {
		in.bound(dec.InputOffset())
		var raw json.RawMessage
		if n == 0 {
			// The first byte says which: a token would be read as an entry of JSON lines.
			first, err := in.first()
			if err != nil {
				return err
			}
			if array = first == '['; array {
				if _, err := dec.Token(); err != nil {
					return fmt.Errorf("line %d: %w", in.line(dec.InputOffset()), err)
				}
			}
		}
		if array && !dec.More() {
			if _, err := dec.Token(); err != nil {
				return fmt.Errorf("line %d: the list does not end: %w", in.line(dec.InputOffset()), unexpected(err))
			}
			if _, err := dec.Token(); !errors.Is(err, io.EOF) {
				return fmt.Errorf("line %d: something stands behind the end of the list", in.line(dec.InputOffset()))
			}
			return nil
		}
		if err := dec.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) && !array {
				return nil
			}
			return fmt.Errorf("line %d: %w", in.line(dec.InputOffset()), unexpected(err))
		}
		line := in.line(dec.InputOffset() - int64(len(raw)))
		if n == maxEntries {
			return fmt.Errorf("line %d: more than %d entries", line, maxEntries)
		}
		o := object{line: line}
		if json.Unmarshal(raw, &o.fields) != nil || o.fields == nil {
			return fmt.Errorf("line %d: %.60s: an entry is an object", line, raw)
		}
		if err := take(o); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// object is an entry.
type object struct {
	line   int
	fields map[string]json.RawMessage
}

// field is one that must be there.
func (o object) field(name string, to any, what string) error {
	raw, there := o.fields[name]
	switch {
	case !there:
		return fmt.Errorf("%s is missing", name)
	case bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, to) != nil:
		return fmt.Errorf("%s: %.60s: %s", name, raw, what)
	}
	return nil
}

// conversation is an entry of ShareGPT. As in vLLM's benchmark, its first question and the
// answer to it are a request, and a conversation that begins otherwise is none.
func (d *Dataset) conversation(o object) error {
	var turns []json.RawMessage
	if err := o.field("conversations", &turns, "a list of turns"); err != nil {
		return err
	}
	var length [2]int
	for i, want := range []string{"human", "gpt"} {
		if i >= len(turns) {
			d.Skipped++
			return nil
		}
		turn, from, value := object{}, "", ""
		at := fmt.Sprintf("conversations[%d]", i)
		if json.Unmarshal(turns[i], &turn.fields) != nil || turn.fields == nil {
			return fmt.Errorf("%s: %.60s: a turn is an object", at, turns[i])
		}
		if err := cmp.Or(turn.field("from", &from, "a text"), turn.field("value", &value, "a text")); err != nil {
			return fmt.Errorf("%s.%w", at, err)
		}
		if length[i] = tokensOf(value); from != want || length[i] == 0 {
			d.Skipped++
			return nil
		}
	}
	d.rows = append(d.rows, row{line: o.line, prompt: length[0], answer: length[1]})
	return nil
}

// problem is an entry of MATH-500.
func (d *Dataset) problem(o object) error {
	var q [2]string
	for i, name := range []string{"problem", "solution"} {
		if err := o.field(name, &q[i], "a text"); err != nil {
			return err
		}
		if q[i] == "" {
			return fmt.Errorf("%s: \"\": a request has at least one token of it", name)
		}
	}
	d.rows = append(d.rows, row{line: o.line, prompt: tokensOf(q[0]), answer: tokensOf(q[1])})
	return nil
}

func tokensOf(text string) int { return (len(text) + textBytes - 1) / textBytes }

// fits names the first entry that a cache of so many tokens cannot hold, with the longest
// thinking that it may be given.
func (d *Dataset) fits(think, cache int) error {
	prompt, answer, also := "prompt", "answer", ""
	switch d.Kind {
	case Fast25:
		prompt, answer = "input_length", "output_length"
	case Math500:
		prompt, answer = "problem", "solution"
	}
	if think > 0 {
		also = fmt.Sprintf(", and up to %d of thinking", think)
	}
	for _, r := range d.rows {
		if r.prompt+r.answer+think >= cache {
			return fmt.Errorf("%s: line %d: %s has %d tokens, %s %d%s: the cache holds %d", d.File, r.line, prompt, r.prompt, answer, r.answer, also, cache)
		}
	}
	return nil
}

// most is how many tokens prompt and answer of an entry have together.
func (d *Dataset) most() (n int) {
	for _, r := range d.rows {
		n = max(n, r.prompt+r.answer)
	}
	return n
}

// lines counts those of what is read through it, and bounds how far a decoder reads for
// one entry.
type lines struct {
	r      io.Reader
	read   int64
	limit  int64
	ends   []int64 // of lines: where the last thing in each is; -1: nothing is
	asked  int     // of ends: nobody asks about these any more
	passed int     // lines before them
	last   int64   // of the line that is being read
	ahead  []byte  // read to see what the text begins with
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.ahead) > 0 {
		n := copy(p, l.ahead)
		l.ahead = l.ahead[n:]
		return n, nil
	}
	if l.read >= l.limit {
		return 0, fmt.Errorf("an entry of more than %d bytes", maxEntry)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.limit-l.read)])
	l.count(p[:n])
	return n, err
}

func (l *lines) count(p []byte) {
	for i, b := range p {
		switch b {
		case '\n':
			l.ends = append(l.ends, l.last)
			l.last = -1
		case ' ', '\t', '\r', ',':
		default:
			l.last = l.read + int64(i)
		}
	}
	l.read += int64(len(p))
}

// first is the first byte that is no space. It is not taken.
func (l *lines) first() (byte, error) {
	b := make([]byte, 4<<10)
	for {
		n, err := l.r.Read(b)
		l.count(b[:n])
		l.ahead = append(l.ahead, b[:n]...)
		if at := bytes.IndexFunc(b[:n], func(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) }); at >= 0 {
			return b[at], nil
		}
		switch {
		case len(l.ahead) >= maxEntry:
			return 0, fmt.Errorf("line 1: %d bytes of space", len(l.ahead))
		case errors.Is(err, io.EOF):
			return 0, errors.New("it is empty")
		case err != nil:
			return 0, err
		}
	}
}

// bound lets a decoder that has come to an offset read one more entry.
func (l *lines) bound(offset int64) { l.limit = max(offset, 0) + maxEntry }

// line is that of the first thing at an offset or behind it, spaces and commas left out.
// Offsets never go back.
func (l *lines) line(offset int64) int {
	for l.asked < len(l.ends) && l.ends[l.asked] < offset {
		l.asked++
		l.passed++
	}
	if 2*l.asked > len(l.ends) { // each end is moved once at most
		l.ends, l.asked = l.ends[:copy(l.ends, l.ends[l.asked:])], 0
	}
	return l.passed + 1
}
