package force

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Lengths of synthetic thinking, in tokens: those of the reference workload of
// bench/think, and twice that for requests that stray.
const (
	shortest   = 600
	longest    = 6000
	flatTokens = 32_768 // the most thinking that the default configuration allows
)

// Generate makes the synthetic recordings: requests that come to a conclusion and go
// on, requests that stray, and flat series, on which no signal may force. The same
// seed gives the same values.
func Generate(requests int, seed uint64) []Recording {
	return []Recording{converging(requests, seed), oscillating(requests, seed), flat(seed)}
}

func synthetic(name, source string) Recording {
	return Recording{Header: Header{Version: Version, Name: name, Kind: Synthetic, Source: source, EndTokens: 1}}
}

// converging is thinking that is done before it ends: from some place on an end is
// likely at every token, and the entropy after an appended end has settled.
func converging(requests int, seed uint64) Recording {
	r := rand.New(rand.NewPCG(seed, 1))
	rec := synthetic("converging", fmt.Sprintf("generator, seed %d: p_end rises to 0.9 and eat settles between 40 and 80 %% of the thinking, which goes on", seed))
	for i := range requests {
		n := shortest + r.IntN(longest-shortest+1)
		done := int(float64(n) * (0.4 + 0.4*r.Float64()))
		q := Request{ID: fmt.Sprintf("c%03d", i+1), Ended: ByMarker}
		for at := 1; at <= n; at++ {
			gone := min(float64(at)/float64(done), 1)
			open := 1 - gone*gone // how much is open yet
			q.Entropy = append(q.Entropy, places(0.2+2*open*r.Float64()+0.4*r.Float64(), 3))
			p := 0.02 * r.Float64()
			if at > done {
				p = 0.9 + 0.04*(r.Float64()-0.5)
			}
			q.PEnd = append(q.PEnd, places(p, 4))
			if at%32 == 0 {
				q.EATAt = append(q.EATAt, uint32(at))
				q.EAT = append(q.EAT, places(0.3+(0.02+2*open)*r.Float64(), 3))
			}
			q.sentence(r, at)
		}
		rec.Requests = append(rec.Requests, q)
	}
	return rec
}

// oscillating is thinking that goes well at first and then turns again and again: long
// stretches of uncertain tokens, and an end that is never likely.
func oscillating(requests int, seed uint64) Recording {
	r := rand.New(rand.NewPCG(seed, 2))
	rec := synthetic("oscillating", fmt.Sprintf("generator, seed %d: after 20 to 50 %% of the thinking, stretches of 600 tokens of high entropy come every 1,000 tokens; p_end stays low", seed))
	for i := range requests {
		n := 2*shortest + r.IntN(2*(longest-shortest)+1)
		lost := int(float64(n) * (0.2 + 0.3*r.Float64()))
		q := Request{ID: fmt.Sprintf("o%03d", i+1), Ended: ByMarker}
		for at := 1; at <= n; at++ {
			h := 0.2 + 0.6*r.Float64()
			if at > lost && (at-lost)%1000 < 600 {
				h = 2.2 + 2*r.Float64()
			}
			q.Entropy = append(q.Entropy, places(h, 3))
			q.PEnd = append(q.PEnd, places(0.05*r.Float64(), 4))
			if at%32 == 0 {
				q.EATAt = append(q.EATAt, uint32(at))
				q.EAT = append(q.EAT, places(1+2*r.Float64(), 3))
			}
			q.sentence(r, at)
		}
		rec.Requests = append(rec.Requests, q)
	}
	return rec
}

// flat are series that say nothing, for as long as thinking may be: the defects of
// early update rules forced on them. There is no eat: the rule of its paper calls a
// constant value converged, at any level.
func flat(seed uint64) Recording {
	r := rand.New(rand.NewPCG(seed, 3))
	rec := synthetic("flat", fmt.Sprintf("generator, seed %d: constant values and noise without a trend, %d tokens each", seed, flatTokens))
	for _, s := range []struct {
		id             string
		entropy, p     float64
		noiseH, noiseP float64
	}{
		{id: "p_end 0", p: 0, entropy: 1},
		{id: "p_end 1e-6", p: 1e-6, entropy: 1},
		{id: "p_end 0.001", p: 1e-3, entropy: 1},
		{id: "p_end noise below 0.05", noiseP: 0.05, entropy: 1},
		{id: "entropy 0.1", entropy: 0.1},
		{id: "entropy 2.5", entropy: 2.5},
		{id: "entropy 9", entropy: 9},
		{id: "entropy noise below 5", noiseH: 5},
		{id: "entropy noise below 2.77", noiseH: 2.77},
	} {
		q := Request{ID: s.id, Ended: ByCut}
		for at := 1; at <= flatTokens; at++ {
			q.Entropy = append(q.Entropy, places(s.entropy+s.noiseH*r.Float64(), 3))
			q.PEnd = append(q.PEnd, places(s.p+s.noiseP*r.Float64(), 6))
			q.sentence(r, at)
		}
		rec.Requests = append(rec.Requests, q)
	}
	return rec
}

// sentence ends one with every twentieth token or so.
func (q *Request) sentence(r *rand.Rand, at int) {
	if r.IntN(20) == 0 {
		q.Sentences = append(q.Sentences, uint32(at))
	}
}

// places rounds to so many decimals, so that the last bits of a product, which differ
// between architectures, decide nothing.
func places(v float64, n int) float32 {
	scale := math.Pow10(n)
	return float32(math.Round(v*scale) / scale)
}
