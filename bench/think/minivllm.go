package think

import (
	"fmt"
	"slices"

	"meridian/scheduler"
	"meridian/scheduler/queue"
)

// MiniConfig is what MinivLLM's scheduler is told, under its own names.
type MiniConfig struct {
	MaxNumSequences     int  `json:"max_num_sequences"`      // of a step; more than that may run
	MaxNumBatchedTokens int  `json:"max_num_batched_tokens"` // of a step
	MaxTokens           int  `json:"max_tokens,omitempty"`   // a request ends at so many decoded ones; 0: at its own end
	MaxModelLength      int  `json:"max_model_length"`       // or when prompt and decoded ones are so many; 0: at its own end
	IgnoreEOS           bool `json:"ignore_eos,omitempty"`   // it ends by the other two only
}

// miniFor are the settings that compare with o's. A request that was preempted comes back
// as one prompt, whole: one that does not fit into a step would wait for ever.
func miniFor(o *Options) *MiniConfig {
	return &MiniConfig{MaxNumSequences: o.Slots, MaxNumBatchedTokens: max(o.StepTokens, o.Workload.longest()), MaxModelLength: o.KVTokens}
}

// mini is MinivLLM's loop, after its documentation ("Scheduler", "Prefill before decode"):
// two queues in order of arrival; a step is prompts as long as one can be admitted, else
// one token for each that runs; who has no block for its next token takes those of the
// request that was admitted last, which goes to the front of the queue and begins anew.
type mini struct {
	cfg     MiniConfig
	blocks  int
	size    int // tokens of a block
	used    int
	all     map[queue.ID]*miniSeq
	waiting []queue.ID
	running []queue.ID
	hits    func(queue.ID) int // tokens of a request that is admitted which its prefix cache has; nil: what Add said
	n       queue.Stats
}

type miniSeq struct {
	tokens, prompt, cached, blocks int
}

func newMini(c MiniConfig, blocks, blockTokens int, hits func(queue.ID) int) (*mini, error) {
	if c.MaxNumSequences < 1 || c.MaxNumBatchedTokens < 1 || blocks < 1 || blockTokens < 1 || c.MaxTokens < 0 || c.MaxModelLength < 0 {
		return nil, fmt.Errorf("MinivLLM's loop: %+v, %d blocks of %d tokens", c, blocks, blockTokens)
	}
	return &mini{cfg: c, blocks: blocks, size: blockTokens, all: map[queue.ID]*miniSeq{}, hits: hits}, nil
}

func (m *mini) need(tokens int) int { return (tokens + m.size - 1) / m.size }

// Add takes a request, or refuses one that could never be admitted.
func (m *mini) Add(_ queue.Time, r queue.Request) error {
	switch {
	case m.all[r.ID] != nil:
		return queue.ErrDuplicate
	case r.Prompt < 1 || r.Cached < 0 || r.Cached >= r.Prompt:
		return fmt.Errorf("%w: %d tokens, %d cached", queue.ErrInvalid, r.Prompt, r.Cached)
	case m.need(r.Prompt) > m.blocks || r.Prompt > m.cfg.MaxNumBatchedTokens:
		return fmt.Errorf("%w: %d tokens; there are %d blocks of %d, and %d tokens in a step",
			queue.ErrTooLong, r.Prompt, m.blocks, m.size, m.cfg.MaxNumBatchedTokens)
	}
	m.all[r.ID] = &miniSeq{tokens: r.Prompt, prompt: r.Prompt, cached: r.Cached}
	m.waiting = append(m.waiting, r.ID)
	return nil
}

// Schedule fills a step: prompts, or decodes, never both.
func (m *mini) Schedule(_ queue.Time, s *queue.Step) {
	*s = queue.Step{Decode: s.Decode[:0], Prefill: s.Prefill[:0], Preempt: s.Preempt[:0], Load: s.Load[:0], Stuck: s.Stuck[:0]}
	if !m.prefill(s) {
		m.decode(s)
	}
}

// prefill admits whole prompts, and reports whether there was one.
func (m *mini) prefill(s *queue.Step) bool {
	tokens := 0
	for len(m.waiting) > 0 && len(s.Prefill) < m.cfg.MaxNumSequences {
		id := m.waiting[0]
		q := m.all[id]
		need := m.need(q.tokens)
		if need > m.blocks || q.tokens > m.cfg.MaxNumBatchedTokens {
			s.Stuck = append(s.Stuck, id)
		}
		if need > m.blocks-m.used || tokens+q.tokens > m.cfg.MaxNumBatchedTokens {
			break
		}
		m.waiting = slices.Delete(m.waiting, 0, 1)
		if m.hits != nil {
			q.cached = m.hits(id)
		}
		m.used += need
		q.blocks = need
		m.running = append(m.running, id)
		m.n.Admitted++
		tokens += q.tokens
		s.Prefill = append(s.Prefill, queue.Chunk{ID: id, Tokens: q.tokens - q.cached})
	}
	return len(s.Prefill) > 0
}

// decode gives a token each to those that were admitted first.
func (m *mini) decode(s *queue.Step) {
	for k := 0; k < len(m.running); k++ {
		q := m.all[m.running[k]]
		for m.need(q.tokens)-q.blocks > m.blocks-m.used {
			last := len(m.running) - 1
			m.preempt(s, last)
			if last == k {
				return // it was its own last resort
			}
		}
		if k >= min(m.cfg.MaxNumBatchedTokens, m.cfg.MaxNumSequences) {
			return
		}
		m.used += m.need(q.tokens) - q.blocks
		q.blocks = m.need(q.tokens)
		s.Decode = append(s.Decode, m.running[k])
	}
}

// preempt drops the blocks of the request at a place of running.
func (m *mini) preempt(s *queue.Step, at int) {
	id := m.running[at]
	q := m.all[id]
	m.running = slices.Delete(m.running, at, at+1)
	s.Preempt = append(s.Preempt, queue.Move{ID: id, Blocks: q.blocks})
	m.n.Recomputed++
	m.n.LostTokens += uint64(q.tokens)
	m.used -= q.blocks
	q.blocks, q.cached = 0, 0
	m.waiting = slices.Insert(m.waiting, 0, id)
}

// Ran takes over what a step made, and ends who is at its end.
func (m *mini) Ran(_ queue.Time, id queue.ID, _, decoded int, p scheduler.Phase) {
	q := m.all[id]
	if q == nil {
		return
	}
	q.tokens += max(decoded, 0)
	eos := p == scheduler.Complete && !m.cfg.IgnoreEOS
	enough := m.cfg.MaxTokens > 0 && q.tokens-q.prompt >= m.cfg.MaxTokens
	long := m.cfg.MaxModelLength > 0 && q.tokens >= m.cfg.MaxModelLength
	if !eos && !enough && !long {
		return
	}
	if at := slices.Index(m.running, id); at >= 0 {
		m.running = slices.Delete(m.running, at, at+1)
	}
	m.used -= q.blocks
	m.n.Completed++
	delete(m.all, id)
}

// Moved has nothing to say: nothing is offloaded.
func (m *mini) Moved(queue.Time, queue.ID) {}

// Stats are the counts now.
func (m *mini) Stats() queue.Stats {
	s := m.n
	s.Running, s.Waiting, s.Blocks = len(m.running), len(m.waiting), m.used
	return s
}
