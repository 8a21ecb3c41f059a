package force

import (
	"fmt"
	"math"

	"meridian/scheduler"
)

// signals are those that a replay gives to the core.
type signals struct{ pEnd, eat, entropy, rpdi bool }

// Tokens that a replay is made of. Only their kind matters.
const (
	word  int32 = 1
	start int32 = 2
	eos   int32 = 3
	end   int32 = 4 // the first of the end marker; the next have the next ids
)

// outcome is what became of one request.
type outcome struct {
	used   uint32 // thinking tokens, the end marker included
	at     uint32 // of them, those before it was forced; 0: it was not
	reason scheduler.Reason
}

// replayer plays the requests of a recording through a core of their own kind.
type replayer struct {
	cfg    scheduler.Config
	marker []int32
	every  uint32 // between two probes of entropy and p_end
	feed   signals
}

// newReplayer makes one. Without rules nothing is forced.
func newReplayer(h *Header, c *scheduler.SignalConfig, feed signals) (*replayer, error) {
	p := &replayer{feed: feed, every: 1}
	for i := range h.endTokens() {
		p.marker = append(p.marker, end+int32(i))
	}
	models, err := scheduler.NewModels([]scheduler.Model{{Name: h.Name, Start: []int32{start}, End: p.marker, EOS: []int32{eos}}})
	if err != nil {
		return nil, err
	}
	p.cfg = scheduler.Config{Models: models, MaxRequests: 1, MaxThink: math.MaxUint32}
	if c != nil {
		rules, err := scheduler.NewRules(*c)
		if err != nil {
			return nil, err
		}
		p.cfg.Signals, p.cfg.MaxThink, p.every = rules, c.MaxThink, c.ProbeInterval
	}
	return p, nil
}

// play plays one request. Each token goes to the core by itself, and what was measured
// with it afterwards, at the places where a node of llama.cpp measures: after each
// ProbeInterval thinking tokens. eat comes where it was recorded, rpdi at the ends of
// sentences. When the core wants the thinking ended, its end marker is what the model
// says next.
func (p *replayer) play(model string, q *Request) (outcome, error) {
	core := scheduler.New(p.cfg)
	var o outcome
	var ready scheduler.Ready
	var rpdi scheduler.RPDI
	one := make([]int32, 1)
	in := make([]scheduler.Input, 1, 5)
	in[0] = scheduler.Input{Kind: scheduler.Arrive, Model: model, Tokens: []int32{start}}
	core.Step(0, in)
	eat, sentence := 0, 0
	var stop []int32
	for i := range q.Tokens() {
		at := uint32(i + 1)
		in, one[0] = in[:1], q.token(i, p.marker)
		in[0] = scheduler.Input{Kind: scheduler.Tokens, Tokens: one}
		probe := func(name scheduler.SignalName, v float64) {
			in = append(in, scheduler.Input{Kind: scheduler.Probed, Signal: scheduler.Signal{Name: name, Value: float32(v)}})
		}
		due := at%p.every == 0
		if p.feed.pEnd && due && len(q.PEnd) > 0 {
			probe(scheduler.SigPEnd, float64(q.PEnd[i]))
		}
		if eat < len(q.EATAt) && q.EATAt[eat] == at {
			if p.feed.eat {
				probe(scheduler.SigEAT, float64(q.EAT[eat]))
			}
			eat++
		}
		if len(q.Entropy) > 0 {
			if p.feed.entropy && due {
				probe(scheduler.SigEntropy, float64(q.Entropy[i]))
			}
			ends := sentence < len(q.Sentences) && q.Sentences[sentence] == at
			if ends {
				sentence++
			}
			if p.feed.rpdi {
				if v, ok, err := rpdi.Token(q.Entropy[i], ends); err != nil {
					return o, err
				} else if ok {
					probe(scheduler.SigRPDI, v)
				}
			}
		}
		core.Step(0, in)
		core.Ready(&ready)
		if stop = p.note(&o, ready.Events); stop != nil {
			break
		}
	}
	in = append(in[:0], scheduler.Input{Kind: scheduler.Done})
	if stop != nil {
		in = append(in[:0], scheduler.Input{Kind: scheduler.Tokens, Tokens: stop}, scheduler.Input{Kind: scheduler.Done})
	}
	core.Step(0, in)
	core.Ready(&ready)
	p.note(&o, ready.Events)
	if o.used == 0 {
		return o, fmt.Errorf("request %q: the core has seen no end of its thinking", q.ID)
	}
	return o, nil
}

// note keeps what the events say, and returns what to inject.
func (p *replayer) note(o *outcome, events []scheduler.Event) (inject []int32) {
	for _, e := range events {
		switch e.Kind {
		case scheduler.ForceBudget:
			o.at, o.reason, inject = e.Used, e.Reason, e.Inject
		case scheduler.ExitThink:
			o.used = e.Used
		case scheduler.Completed:
			o.used = max(o.used, e.Used)
		}
	}
	return inject
}

// token is what the model decoded at place i.
func (q *Request) token(i int, marker []int32) int32 {
	last := q.Tokens() - 1
	switch {
	case q.Ended == ByEOS && i == last:
		return eos
	case q.Ended == ByMarker && i > last-len(marker):
		return marker[i-(last-len(marker)+1)]
	}
	return word
}
