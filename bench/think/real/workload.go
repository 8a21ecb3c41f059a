package real

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"meridian/bench/think"
)

// class is whom a request is for.
type class uint8

const (
	interactive class = iota // somebody reads along
	background               // nobody waits: it asks for the tier "flex"
	storm                    // a long prompt of a storm; likewise
	stream                   // what the storm disturbs
)

// markerRoom are the tokens that an end marker may take of an answer.
const markerRoom = 8

// request is one of the workload. The lengths of thinking and answer are its own affair,
// so that each arm is asked for the same tokens.
type request struct {
	prompt string
	think  int // tokens; 0: it does not think
	answer int // tokens
	flex   bool
	begun  func() // is called with each visible token; nil: nothing
}

// draw makes a client's request: the same for the same seed, whatever the arm.
func (o *Options) draw(c class, round, client, i int) request {
	r := rand.New(rand.NewPCG(o.Seed, uint64(c)<<48|uint64(round)<<32|uint64(client)<<16|uint64(i)))
	w := &o.Workload
	switch {
	case c == storm:
		return request{prompt: words(r, length(r, o.Storm.Prompt)), answer: 1, flex: true}
	case c == stream:
		return request{prompt: words(r, length(r, w.ChatPrompt)), answer: o.Storm.Answer}
	case c == background && r.Float64() < w.ReasoningRatio:
		return request{prompt: words(r, length(r, w.Prompt)), think: length(r, w.Think), answer: length(r, w.Answer), flex: true}
	}
	return request{prompt: words(r, length(r, w.ChatPrompt)), answer: length(r, w.ChatAnswer), flex: c == background}
}

func length(r *rand.Rand, s think.Span) int { return s.Least + r.IntN(s.Most-s.Least+1) }

// words is a prompt that no other one begins like, and that the model answers at length.
func words(r *rand.Rand, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d. Write a long story. It has these words:", r.IntN(1_000_000))
	for range n {
		b.WriteByte(' ')
		b.WriteString(vocabulary[r.IntN(len(vocabulary))])
	}
	return b.String()
}

var vocabulary = strings.Fields(`water light house river stone bread winter garden letter window mother
	father sister brother summer morning evening road bridge tree horse ship storm island lamp
	market paper school teacher doctor farmer king queen city village mountain forest field
	bird fish dog cat song story door table chair glass fire wind rain snow sun moon star`)
