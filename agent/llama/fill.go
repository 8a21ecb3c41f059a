package llama

import (
	"context"
	"errors"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/agent/openai"
)

// fill brings the prompt's KV into the job's slot.
func (j *job) fill(ctx context.Context) error {
	held := j.held()
	if held < j.prompt-1 {
		found := j.find(ctx, j.prompt)
		if j.asksPartner(max(found, held)) && j.askPartner(ctx) {
			before := max(found, held)
			if found = j.find(ctx, j.prompt); found <= before && ctx.Err() == nil {
				j.n.partner.failed("prefill", errLost)
			}
		}
		if found > held {
			held = j.restore(ctx, found)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	j.cached = min(held, j.prompt-1)
	if held >= j.prompt-1 {
		j.turn.filled(j.prompt)
		return nil
	}
	return j.compute(ctx)
}

// held is how much of the prompt the slot is known to hold.
func (j *job) held() int { return common(j.slot.cached, j.tokens) }

// find says how many of the first n tokens lie in blocks that this daemon or a peer has,
// in an unbroken run from the front. What cannot be looked up is missing.
func (j *job) find(ctx context.Context, n int) (tokens int) {
	keys := j.keys(n, true)
	j.away = 0
	for at := 0; at < len(keys); {
		batch := keys[at:min(len(keys), at+lookupBatch)]
		step := j.n.work.move(0)
		answers, err := j.s.engine.Has(ctx, j.s.ns, batch, true)
		step.end()
		if err != nil {
			j.n.log.Warn("a prompt's blocks could not be looked up", "err", err)
			return tokens
		}
		for _, a := range answers {
			if a.Err != nil {
				return tokens
			}
			if !a.Here {
				j.away += uint64(a.Head.BodyLen)
			}
			tokens = min(n, tokens+j.n.cfg.BlockTokens)
			at++
		}
	}
	return tokens
}

// lookupBatch bounds one look-up: a chain mostly ends early.
const lookupBatch = 512

// asksPartner: not for the partner itself, which hands over or prefills, nor for
// what is cheaper to compute than to ask for.
func (j *job) asksPartner(have int) bool {
	return j.n.cfg.Role == Decode && j.n.partner != nil && j.r != nil && !j.r.Hop && j.prompt-have > j.n.cfg.Remote
}

// askPartner lets the partner prefill, and says whether it has. A partner that
// cannot is no error: this node then does it.
func (j *job) askPartner(ctx context.Context) bool {
	if j.n.partner.worth("prefill") != nil {
		j.n.stats.prefillFallbacks.Add(1)
		return false
	}
	m := j.s.manifest
	step := j.n.work.begin(openai.MaxWait) // the partner's own watchdog is the bound
	defer step.end()
	reply, err := j.n.partner.prefill(ctx, PrefillRequest{
		Model: j.n.cfg.Name, Namespace: m.Namespace().String(), Manifest: string(m.Append(nil)), Tokens: j.tokens[:j.prompt],
	})
	if err != nil {
		if ctx.Err() == nil {
			j.n.stats.prefillFallbacks.Add(1)
			j.n.partner.failed("prefill", err)
		}
		return false
	}
	j.n.partner.knows(reply.Agent)
	j.prefill = reply.Agent
	j.n.stats.prefillRemote.Add(1)
	return true
}

// restore pulls the first n prompt tokens' blocks and loads them into the slot.
// It returns how many tokens the slot then holds: fewer if blocks vanish on the
// way, and none if the server refuses the state or does not say that it has all of
// it. Nothing of it is an error: what is not there is computed. The first call on the
// slot then tells whether it was so (verify).
func (j *job) restore(ctx context.Context, n int) int {
	for n > 0 && ctx.Err() == nil {
		got, err := j.assemble(ctx, n)
		if err != nil {
			j.n.log.Warn("KV blocks could not be made into a state", "err", err)
			break
		}
		if got < n {
			n = got
			continue
		}
		j.slot.cached = j.slot.cached[:0] // whatever comes of it, the old is gone
		step := j.n.work.move(uint64(j.s.geometry.BlockBytes(n)))
		took, err := j.s.api.RestoreSlot(ctx, j.slot.id, j.file())
		step.end()
		if err != nil {
			j.n.stats.restoreFailures.Add(1)
			j.n.log.Warn("llama-server refused a state", "tokens", n, "err", err)
			break
		}
		if took != n {
			j.n.stats.restoreFailures.Add(1)
			j.n.log.Warn("llama-server restored another number of tokens than the state has", "tokens", n, "restored", took)
			// What it has is nobody's knowledge: nothing may be computed behind it.
			if err := j.s.api.EraseSlot(ctx, j.slot.id); err != nil {
				j.n.log.Warn("the slot could not be emptied", "err", err)
			}
			break
		}
		j.loaded = n
		j.pulled += j.away
		j.slot.cached = append(j.slot.cached, j.tokens[:n]...)
		if j.prefill == "" && j.drawn == 0 {
			j.prefill = "cache"
		}
		return n
	}
	j.restored = 0
	return j.held()
}

// verify compares what the slot was said to hold with what the first call found
// there: have tokens. llama-server answers a restore that left the slot empty like
// one that did not, and computes what is missing without a word.
func (j *job) verify(want, have int) {
	loaded := j.loaded
	j.loaded = 0
	if have >= want {
		j.countRestore(loaded)
		return
	}
	j.n.log.Warn("llama-server had fewer tokens in the slot than it said", "wanted", want, "cached", have, "restored", loaded)
	if loaded > 0 {
		j.n.stats.restoreFailures.Add(1)
	}
	j.pulled, j.restored = 0, 0
	j.prefill = j.n.cfg.Agent
}

// countRestore counts a restore of n tokens; none if n is 0.
func (j *job) countRestore(n int) {
	if n > 0 {
		j.n.stats.restores.Add(1)
		j.n.stats.restoredTokens.Add(uint64(n))
	}
}

// verifyDecode is verify for the first quantum on a slot, which follows tokens that are
// held but for the last. What it computed of a prompt is told as computed.
func (j *job) verifyDecode(done llamacpp.Done) {
	if j.verified {
		return
	}
	j.verified = true
	want := j.expect
	j.verify(want, done.Cached)
	if done.Cached < want {
		j.n.stats.computedTokens.Add(uint64(want - done.Cached))
		if short := min(want, j.prompt-1) - done.Cached; short > 0 {
			j.computed += short
			j.cached = min(j.cached, done.Cached)
		}
	}
}

// prefillFor has a prompt's blocks in this node's daemon.
func (n *Node) prefillFor(ctx context.Context, q PrefillRequest) (PrefillReply, error) {
	began := time.Now()
	s, err := n.soon(ctx)
	if err != nil {
		return PrefillReply{}, err
	}
	if err := s.agrees(n.cfg.Name, q); err != nil {
		return PrefillReply{}, err
	}
	j, err := n.open(ctx, s, nil, &prompt{tokens: q.Tokens})
	if err != nil {
		return PrefillReply{}, err
	}
	defer j.close()
	n.stats.prefillServed.Add(1)
	if err := j.fill(ctx); err != nil {
		return PrefillReply{}, err
	}
	// What was in the slot already may be in the daemon no longer.
	if err := j.offer(ctx); err != nil {
		return PrefillReply{}, err
	}
	return PrefillReply{Agent: n.cfg.Agent, Computed: j.computed, Cached: j.cached, Stored: j.added, Seconds: time.Since(began).Seconds()}, nil
}

// handsOver says whether the partner decodes: not what the partner itself has
// sent here.
func (n *Node) handsOver(r *openai.Request) bool {
	return n.cfg.Role == Prefill && n.partner != nil && !r.Hop && n.partner.worth("decode") == nil
}

// handOver lets the partner's front decode. used says whether the client has
// seen a token or the error is its own: then nobody may try again.
func (j *job) handOver(ctx context.Context, emit func(openai.Token) error) (res openai.Result, used bool, err error) {
	if err := j.offer(ctx); err != nil {
		return res, false, err
	}
	next := *j.r
	next.Hop = true
	var own error // of the answer's reader
	step := j.n.work.begin(openai.MaxWait)
	defer step.end()
	res, err = j.n.partner.remote.Generate(ctx, &next, func(t openai.Token) error {
		used = true
		step.next(openai.MaxWait)
		own = emit(t)
		return own
	})
	var said *openai.Error
	refused := errors.As(err, &said) && said.Status < 500 && said.Status != 404 && said.Status != 401 // by what the client asks
	switch {
	case err == nil:
		j.n.stats.handedOver.Add(1)
	case ctx.Err() == nil && own == nil && !refused:
		j.n.partner.failed("decode", err)
	}
	used = used || err == nil || ctx.Err() != nil || refused
	if res.Prompt == 0 { // a stop string ended the answer before its counts came
		res.Prompt, res.Cached = j.prompt, j.cached
	}
	return res, used, err
}

// fetchOptions pull what is missing, and keep the leases until they are released.
var fetchOptions = client.AcquireOptions{Fetch: true, Renew: true, Deadline: fetchDeadline}
