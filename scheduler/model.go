package scheduler

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of a Model.
const (
	MaxMarker = 32 // tokens in a start or end marker
	MaxEOS    = 16 // end-of-sequence ids
)

// Model is what the router must know of a served model. Token ids come from
// its tokenizer.
type Model struct {
	Name  string  // as the engine names it in Arrive
	Start []int32 // the marker that opens thinking, one or more tokens; empty: never thinks
	End   []int32 // the marker that ends it; empty: never forced
	EOS   []int32 // ids that each end the sequence

	MaxThink      uint32 // thinking tokens before ForceBudget; 0: that of Config
	MinThink      uint32 // thinking tokens before which no signal forces; 0: that of Config.Signals
	KeepsThinking bool   // the chat template keeps thinking in the history
}

// ModelError says what is wrong with a Model.
type ModelError struct {
	Name  string // the model
	Field string // name, start, end, eos or min
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
		ms.byName[m.Name] = compile(m)
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
	}{{"start", m.Start, MaxMarker}, {"end", m.End, MaxMarker}, {"eos", m.EOS, MaxEOS}} {
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
	if m.MaxThink > 0 && m.MinThink >= m.MaxThink {
		return bad("min", "%d is not below the maximum, which is %d", m.MinThink, m.MaxThink)
	}
	return nil
}

// compiled is a Model in the form the token path reads.
type compiled struct {
	start, end marker
	eos        []int32
	maxThink   uint32 // 0: the core's
	minThink   uint32 // 0: the rules'
	keeps      bool
}

var unknownModel = compile(&Model{})

func compile(m *Model) *compiled {
	return &compiled{
		start:    newMarker(m.Start),
		end:      newMarker(m.End),
		eos:      slices.Clone(m.EOS),
		maxThink: m.MaxThink,
		minThink: m.MinThink,
		keeps:    m.KeepsThinking,
	}
}

func (c *compiled) isEOS(t int32) bool {
	for _, e := range c.eos {
		if e == t {
			return true
		}
	}
	return false
}

// scan reads a prompt. It says whether the prompt leaves thinking open, and how
// much of the next marker (end if open, start if not) its tail already matches.
func (c *compiled) scan(prompt []int32) (open bool, match uint8) {
	if len(c.start.seq) == 0 {
		return false, 0
	}
	next := &c.start
	for _, t := range prompt {
		match = next.step(match, t)
		if !next.whole(match) {
			continue
		}
		match, open = 0, !open
		if next = &c.start; open {
			next = &c.end
		}
	}
	return open, match
}

// marker matches one sequence of ids in a stream, a token at a time, in O(1)
// amortised a token (Knuth, Morris, Pratt 1977). The state is the length of the
// longest prefix of the marker that the stream ends with.
type marker struct {
	seq  []int32
	fail []uint8 // fail[q-1]: the state to fall back to from q
}

func newMarker(seq []int32) marker {
	m := marker{seq: slices.Clone(seq), fail: make([]uint8, len(seq))}
	for i := 1; i < len(seq); i++ {
		m.fail[i] = m.step(m.fail[i-1], seq[i])
	}
	return m
}

// step takes state q (below len(seq)) and the next token to the next state. An
// empty marker stays at 0.
func (m *marker) step(q uint8, t int32) uint8 {
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
func (m *marker) whole(q uint8) bool { return q > 0 && int(q) == len(m.seq) }

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
// generation_config.
var families = []struct {
	prefix string
	model  *compiled
}{
	{"qwen3", compile(&Model{Start: []int32{151667}, End: []int32{151668}, EOS: []int32{151645, 151643}})},
	{"deepseek-r1-distill-qwen", compile(&Model{Start: []int32{151648}, End: []int32{151649}, EOS: []int32{151643}})},
	{"deepseek-v3.1", compile(&Model{Start: []int32{128798}, End: []int32{128799}, EOS: []int32{1}})},
}
