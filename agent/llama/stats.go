package llama

import (
	"maps"
	"sync"
	"sync/atomic"
)

// counters are what the node counts since its start.
type counters struct {
	answered, cancelled, failed, handedOver                   atomic.Uint64
	prefillServed, prefillRemote, prefillFallbacks            atomic.Uint64
	computedTokens, restoredTokens, thinkTokens               atomic.Uint64
	droppedThinking, decodedTokens                            atomic.Uint64
	saves, restores, restoreFailures, storedBlocks, badBlocks atomic.Uint64
	restarts                                                  atomic.Uint64
	turns                                                     turnCounts

	mu        sync.Mutex
	forced    map[string]uint64
	fallbacks map[Fallback]uint64
}

// Fallback is a kind of prompts that the partner should have had.
type Fallback struct {
	Operation string // of FallbackOperations
	Reason    string // of FallbackReasons
}

func (c *counters) fallback(operation, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fallbacks == nil {
		c.fallbacks = map[Fallback]uint64{}
	}
	c.fallbacks[Fallback{operation, reason}]++
}

func (c *counters) force(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forced == nil {
		c.forced = map[string]uint64{}
	}
	c.forced[why]++
}

// Stats are a node's counts since its start, and what it does now.
type Stats struct {
	Up    bool
	Busy  int // slots in use
	Size  int // slots
	Turns TurnStats

	Answered, Cancelled, Failed uint64 // requests that have ended
	HandedOver                  uint64 // of them, those that the partner decoded
	PrefillServed               uint64 // prompts prefilled for the partner
	PrefillRemote               uint64 // prompts that the partner prefilled
	PrefillFallbacks            uint64 // prompts that it should have, and did not
	ComputedTokens              uint64 // prompt tokens that went through the model
	RestoredTokens              uint64 // prompt tokens whose KV came out of blocks
	DecodedTokens               uint64
	ThinkTokens                 uint64
	DroppedThinking             uint64 // thinking tokens whose KV was not kept, since no next turn reads it
	Saves, Restores             uint64
	RestoreFailures             uint64 // states that llama-server refused
	StoredBlocks                uint64 // blocks that were new to the daemon
	BadBlocks                   uint64 // blocks whose bytes were not those of their checksum
	Restarts                    uint64 // of llama-server
	Forced                      map[string]uint64
	Fallbacks                   map[Fallback]uint64 // prompts that the partner should have had, and why it had them not
}

// Stats returns the counts.
func (n *Node) Stats() Stats {
	c := &n.stats
	st := Stats{
		Answered: c.answered.Load(), Cancelled: c.cancelled.Load(), Failed: c.failed.Load(), HandedOver: c.handedOver.Load(),
		PrefillServed: c.prefillServed.Load(), PrefillRemote: c.prefillRemote.Load(), PrefillFallbacks: c.prefillFallbacks.Load(),
		ComputedTokens: c.computedTokens.Load(), RestoredTokens: c.restoredTokens.Load(), DecodedTokens: c.decodedTokens.Load(),
		ThinkTokens: c.thinkTokens.Load(), DroppedThinking: c.droppedThinking.Load(),
		Saves: c.saves.Load(), Restores: c.restores.Load(), RestoreFailures: c.restoreFailures.Load(),
		StoredBlocks: c.storedBlocks.Load(), BadBlocks: c.badBlocks.Load(), Restarts: c.restarts.Load(),
		Forced: map[string]uint64{}, Fallbacks: map[Fallback]uint64{},
	}
	c.mu.Lock()
	for k, v := range c.forced {
		st.Forced[k] = v
	}
	maps.Copy(st.Fallbacks, c.fallbacks)
	c.mu.Unlock()
	st.Turns.Policy = string(n.cfg.policy())
	c.turns.tell(&st.Turns)
	n.mu.Lock()
	s := n.up
	n.mu.Unlock()
	if s != nil {
		st.Up, st.Busy, st.Size = true, s.slots.busy(), s.slots.size
		s.turns.tell(&st.Turns)
	}
	return st
}
