package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of a Model.
const (
	MaxMarker     = 32  // tokens in a start or end marker
	MaxMarkerText = 128 // bytes of its text
	MaxEOS        = 16  // end-of-sequence ids
	MaxSpace      = 64  // ids of white space

	// maxTailSpace is how many ids of white space may stand between a start marker
	// and a prompt's end. Templates have one at most.
	maxTailSpace = 4
)

// Model is what the router must know of a served model. Token ids come from
// its tokenizer.
type Model struct {
	Name  string  // as the engine names it in Arrive
	Start []int32 // the marker that opens thinking, one or more tokens; empty: never thinks
	End   []int32 // the marker that ends it; empty: never forced
	EOS   []int32 // ids that each end the sequence

	// Space are ids that are white space and nothing else. They may stand between
	// a start marker and the prompt's end, and before a start marker that the
	// model decodes. Those that belong to a marker are no space.
	Space []int32

	// For a Watch, which reads text: the markers as they are written, and the ids
	// of control tokens in them, of which an engine shows no text.
	StartText, EndText string
	Written            map[int32]string

	MaxThink      uint32 // thinking tokens before ForceBudget; 0: that of Config
	MinThink      uint32 // thinking tokens before which no signal forces; 0: that of Config.Signals
	KeepsThinking bool   // the chat template keeps thinking in the history
}

// ModelError says what is wrong with a Model.
type ModelError struct {
	Name  string // the model
	Field string // name, start, end, eos, space, start text, end text or min
	Text  string // what is wrong, with the values
}

// Error implements error.
func (e *ModelError) Error() string {
	return fmt.Sprintf("model %q: %s: %s", e.Name, e.Field, e.Text)
}

// Models are the models that a daemon serves, checked and compiled. They are
// immutable and may be shared by many cores. The zero value and nil know the
// built-in table only.
type Models struct {
	byName map[string]*compiled
}

// NewModels checks and compiles models. It returns a *ModelError for the first
// one that is wrong or has the name of an earlier one.
func NewModels(models []Model) (*Models, error) {
	ms := &Models{byName: make(map[string]*compiled, len(models))}
	for i := range models {
		m := &models[i]
		if err := m.check(); err != nil {
			return nil, err
		}
		if ms.byName[m.Name] != nil {
			return nil, &ModelError{Name: m.Name, Field: "name", Text: "used twice"}
		}
		c := compile(m)
		if f := builtIn(m.Name); len(m.Space) == 0 && f != nil && slices.Equal(f.start.seq, m.Start) {
			c.space = f.space // of a model of a known family that says nothing of white space
		}
		ms.byName[m.Name] = c
	}
	return ms, nil
}

// find returns the model served under name, and whether it is from the
// built-in table. A name that nobody knows gets a model without markers.
func (ms *Models) find(name string) (m *compiled, how origin) {
	if ms != nil {
		if m := ms.byName[name]; m != nil {
			return m, fromConfig
		}
	}
	if m := builtIn(name); m != nil {
		return m, fromTable
	}
	return unknownModel, fromNowhere
}

// Known reports whether a request of that model can think: it is in the table, or of a
// family that is built in.
func (ms *Models) Known(name string) bool {
	_, how := ms.find(name)
	return how != fromNowhere
}

// origin says where a request's markers come from.
type origin uint8

const (
	fromConfig origin = iota
	fromTable
	fromNowhere
)

func (m *Model) check() error {
	bad := func(field, format string, args ...any) error {
		return &ModelError{Name: m.Name, Field: field, Text: fmt.Sprintf(format, args...)}
	}
	for _, f := range []struct {
		name  string
		ids   []int32
		limit int
	}{{"start", m.Start, MaxMarker}, {"end", m.End, MaxMarker}, {"eos", m.EOS, MaxEOS}, {"space", m.Space, MaxSpace}} {
		if len(f.ids) > f.limit {
			return bad(f.name, "%d ids, limit %d", len(f.ids), f.limit)
		}
		for _, id := range f.ids {
			if id < 0 {
				return bad(f.name, "negative id %d", id)
			}
			// The router would have to choose between two transitions.
			if f.name != "eos" && slices.Contains(m.EOS, id) {
				return bad(f.name, "id %d is also an end-of-sequence id", id)
			}
		}
	}
	if len(m.Start) > 0 && slices.Equal(m.Start, m.End) {
		return bad("end", "equal to start %v", m.Start)
	}
	if m.StartText != "" && m.StartText == m.EndText {
		return bad("end text", "equal to the start's, %q", m.StartText)
	}
	for _, f := range []struct{ name, text string }{{"start text", m.StartText}, {"end text", m.EndText}} {
		switch {
		case len(f.text) > MaxMarkerText:
			return bad(f.name, "%d bytes, limit %d", len(f.text), MaxMarkerText)
		case f.text != "" && blank(f.text[0]): // white space before a marker is skipped
			return bad(f.name, "%q begins with white space", f.text)
		}
	}
	if m.MaxThink > 0 && m.MinThink >= m.MaxThink {
		return bad("min", "%d is not below the maximum, which is %d", m.MinThink, m.MaxThink)
	}
	return nil
}

// compiled is a Model in the form the token path reads.
type compiled struct {
	start, end         marker[int32]
	startText, endText marker[byte]
	eos, space         []int32
	written            map[int32]string
	maxThink           uint32 // 0: the core's
	minThink           uint32 // 0: the rules'
	keeps              bool
}

var unknownModel = compile(&Model{})

func compile(m *Model) *compiled {
	c := &compiled{
		start:     newMarker(m.Start),
		end:       newMarker(m.End),
		startText: newMarker([]byte(m.StartText)),
		endText:   newMarker([]byte(m.EndText)),
		eos:       slices.Clone(m.EOS),
		written:   maps.Clone(m.Written),
		maxThink:  m.MaxThink,
		minThink:  m.MinThink,
		keeps:     m.KeepsThinking,
	}
	for _, id := range m.Space {
		if !slices.Contains(m.Start, id) && !slices.Contains(m.End, id) {
			c.space = append(c.space, id)
		}
	}
	return c
}

func (c *compiled) isEOS(t int32) bool {
	for _, e := range c.eos {
		if e == t {
			return true
		}
	}
	return false
}

func (c *compiled) isSpace(t int32) bool {
	for _, s := range c.space {
		if s == t {
			return true
		}
	}
	return false
}

// scan reads the end of a prompt. It says whether the prompt leaves thinking
// open, and how much of the next marker (end if open, start if not) its tail
// already matches.
//
// Ids do not tell where the user's words end and the chat template goes on, so
// only the very end counts: a start marker, and after it white space or the
// beginning of an end marker. A marker that a user quotes is followed by at
// least what the template puts between a message and the answer.
func (c *compiled) scan(prompt []int32) (open bool, match uint8) {
	if len(c.start.seq) == 0 {
		return false, 0
	}
	for n := range max(len(c.end.seq), 1) {
		rest, ok := cutSuffix(prompt, c.end.seq[:n])
		if ok && c.endsOpen(rest) {
			return true, uint8(n)
		}
	}
	for _, t := range prompt[max(0, len(prompt)-MaxMarker):] {
		if match = c.start.step(match, t); c.start.whole(match) {
			match = 0
		}
	}
	return false, match
}

// endsOpen says whether a prompt ends with a start marker and white space. Of two
// markers that both end there, the longer one is meant.
func (c *compiled) endsOpen(prompt []int32) bool {
	for range maxTailSpace {
		if n := len(prompt); n > 0 && c.isSpace(prompt[n-1]) {
			prompt = prompt[:n-1]
		}
	}
	_, start := cutSuffix(prompt, c.start.seq)
	_, end := cutSuffix(prompt, c.end.seq)
	return start && (!end || len(c.start.seq) >= len(c.end.seq))
}

func cutSuffix(s, suffix []int32) (rest []int32, ok bool) {
	n := len(s) - len(suffix)
	if n < 0 || !slices.Equal(s[n:], suffix) {
		return s, false
	}
	return s[:n], true
}

// marker matches one sequence in a stream, of ids or of bytes, an element at a
// time, in O(1) amortised each (Knuth, Morris, Pratt 1977). The state is the
// length of the longest prefix of the marker that the stream ends with.
type marker[T comparable] struct {
	seq  []T
	fail []uint8 // fail[q-1]: the state to fall back to from q
}

func newMarker[T comparable](seq []T) marker[T] {
	m := marker[T]{seq: slices.Clone(seq), fail: make([]uint8, len(seq))}
	for i := 1; i < len(seq); i++ {
		m.fail[i] = m.step(m.fail[i-1], seq[i])
	}
	return m
}

// step takes state q (below len(seq)) and the next element to the next state. An
// empty marker stays at 0.
func (m *marker[T]) step(q uint8, t T) uint8 {
	for {
		if int(q) < len(m.seq) && m.seq[q] == t {
			return q + 1
		}
		if q == 0 {
			return 0
		}
		q = m.fail[q-1]
	}
}

// whole says whether state q is a match.
func (m *marker[T]) whole(q uint8) bool { return q > 0 && int(q) == len(m.seq) }

// builtIn finds a family of the table below by the last element of the name
// ("Qwen/Qwen3-8B" and "/models/qwen3-8b" are both of family qwen3). It matches
// whole words only: a wrong id is worse than none, and "Qwen3.5" has another
// vocabulary.
func builtIn(name string) *compiled {
	name = name[strings.LastIndexByte(name, '/')+1:]
	for i := range families {
		f := &families[i]
		n := len(f.prefix)
		if len(name) < n || !strings.EqualFold(name[:n], f.prefix) {
			continue
		}
		if len(name) == n || strings.IndexByte("-_: ", name[n]) >= 0 {
			return f.model
		}
	}
	return nil
}

// families is the fallback for models that the configuration does not name.
// Thinking ids: the tokenizers' added_tokens; end-of-sequence ids: the models'
// generation_config; white space: one and two newlines in the vocabularies.
var families = []struct {
	prefix string
	model  *compiled
}{
	{"qwen3", compile(&Model{Start: []int32{151667}, End: []int32{151668}, EOS: []int32{151645, 151643}, Space: []int32{198, 271}})},
	{"deepseek-r1-distill-qwen", compile(&Model{Start: []int32{151648}, End: []int32{151649}, EOS: []int32{151643}, Space: []int32{198, 271}})},
	{"deepseek-v3.1", compile(&Model{Start: []int32{128798}, End: []int32{128799}, EOS: []int32{1}, Space: []int32{201}})},
}
