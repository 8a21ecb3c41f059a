package agent

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"meridian/agent/llama"
	"meridian/scheduler"
)

// llamaSeries are served where [llama] is configured.
var llamaSeries []series

func llamaDesc(name, help string, labels ...string) *prometheus.Desc {
	return document(&llamaSeries, kindOf(name), "llama_"+name, help, labels...)
}

var (
	dLlamaUp       = llamaDesc("up", "1 while llama-server answers requests.")
	dLlamaSlots    = llamaDesc("slots", "Slots of llama-server, by whether a request uses them.", "state")
	dLlamaRestarts = llamaDesc("restarts_total", "Times that llama-server ended by itself or could not be started.")
	dLlamaRequests = llamaDesc("requests_total", "Requests that the front passed to the node and that have ended, by outcome: taken (the model's answer is whole), failed, cancelled; and of those, handed_over (the partner decoded).", "outcome")
	dLlamaPrefills = llamaDesc("prefills_total", "Prompts of a prefill/decode split, by who computed them: served (here, for the partner), partner (there, for this node), fallback (here, because the partner did not).", "by")
	dLlamaPartner  = llamaDesc("partner_up", "1 while the other node of a prefill/decode split is asked; 0 while it gives no sign of life, or its daemon is no peer that is ready.")
	dLlamaFellBack = llamaDesc("partner_fallbacks_total", "Prompts that this node prefilled or decoded by itself instead of its partner, by operation and reason: away (it was lost before and is probed), peer (its daemon is no peer that is ready), silent (no sign of life for 2 s), stuck (signs of life, and no progress for 2 s or no end within llama.partner_timeout), unreachable, refused (it answered with an error), lost (it prefilled, and its blocks could not be had).", "operation", "reason")
	dLlamaPrompt   = llamaDesc("prompt_tokens_total", "Prompt tokens, by source: computed by the model, or restored from blocks.", "source")
	dLlamaDecoded  = llamaDesc("decoded_tokens_total", "Tokens that the model decoded.")
	dLlamaThink    = llamaDesc("think_tokens_total", "Thinking tokens that were sent to clients.")
	dLlamaDropped  = llamaDesc("think_tokens_dropped_total", "Thinking tokens whose KV was not kept, because the chat template leaves them out of the next prompt.")
	dLlamaForced   = llamaDesc("forced_total", "Requests whose thinking the node ended, by reason.", "reason")
	dLlamaStates   = llamaDesc("states_total", "Slot states of llama-server, by outcome: saved, restored, refused.", "outcome")
	dLlamaStored   = llamaDesc("stored_blocks_total", "Blocks that the node stored in the daemon and that were not there yet.")
	dLlamaBad      = llamaDesc("bad_blocks_total", "Blocks whose bytes did not match their checksum when they were to be restored; none of them was used.")
	dTurnNow       = llamaDesc("queue_requests", "Requests of the node, by class and state: running (with a slot), waiting (for a slot), preempted (counted as waiting too: their slot went to another request).", "class", "state")
	dTurnPreempted = llamaDesc("preempted_total", "Times that a request gave its slot up for another, by class and scheduler.policy.", "class", "policy")
	dTurnHeld      = llamaDesc("turns_held_total", "Quanta and pieces of prompts that did not go on at once, since an interactive answer was late or another prompt came first, by class.", "class")
	dTurnRefused   = llamaDesc("queue_refused_total", "Requests that were answered 429, since as many of their class, or of all, waited for a slot as may, by class.", "class")
	dTurnStep      = llamaDesc("step_seconds", "Seconds from one decoded token of a request to its next, as an exponential average.")
	dFrontActive   = llamaDesc("front_active_requests", "Requests that the front is answering now.")
	dFrontAnswers  = llamaDesc("front_answers_total", "Answers of the front, by HTTP status; or cancelled, slow or broken where the answer was not completed.", "status")
)

func (c *collector) llama(f *llamaService, gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	st := f.node.Stats()
	gauge(dLlamaUp, oneIf(st.Up))
	gauge(dLlamaSlots, float64(st.Busy), "busy")
	gauge(dLlamaSlots, float64(st.Size-st.Busy), "free")
	counter(dLlamaRestarts, st.Restarts)
	counter(dLlamaRequests, st.Answered, "taken")
	counter(dLlamaRequests, st.Failed, "failed")
	counter(dLlamaRequests, st.Cancelled, "cancelled")
	counter(dLlamaRequests, st.HandedOver, "handed_over")
	counter(dLlamaPrefills, st.PrefillServed, "served")
	counter(dLlamaPrefills, st.PrefillRemote, "partner")
	counter(dLlamaPrefills, st.PrefillFallbacks, "fallback")
	if p, ok := f.node.Partner(); ok {
		gauge(dLlamaPartner, oneIf(p.Why == nil))
		for _, operation := range llama.FallbackOperations {
			for _, reason := range llama.FallbackReasons {
				counter(dLlamaFellBack, st.Fallbacks[llama.Fallback{Operation: operation, Reason: reason}], operation, reason)
			}
		}
	}
	counter(dLlamaPrompt, st.ComputedTokens, "computed")
	counter(dLlamaPrompt, st.RestoredTokens, "restored")
	counter(dLlamaDecoded, st.DecodedTokens)
	counter(dLlamaThink, st.ThinkTokens)
	counter(dLlamaDropped, st.DroppedThinking)
	for _, why := range []scheduler.Reason{scheduler.Converged, scheduler.Overthinking, scheduler.HardCap} {
		counter(dLlamaForced, st.Forced[why.String()], why.String())
	}
	counter(dLlamaStates, st.Saves, "saved")
	counter(dLlamaStates, st.Restores, "restored")
	counter(dLlamaStates, st.RestoreFailures, "refused")
	counter(dLlamaStored, st.StoredBlocks)
	counter(dLlamaBad, st.BadBlocks)
	for _, class := range llama.Classes {
		t, name := st.Turns, class.String()
		gauge(dTurnNow, float64(t.Waiting[class]), name, "waiting")
		gauge(dTurnNow, float64(t.Away[class]), name, "preempted")
		gauge(dTurnNow, float64(t.Running[class]), name, "running")
		counter(dTurnPreempted, t.Preempted[class], name, t.Policy)
		counter(dTurnHeld, t.Held[class], name)
		counter(dTurnRefused, t.Refused[class], name)
	}
	gauge(dTurnStep, st.Turns.Step.Seconds())
	front := f.front.Stats()
	gauge(dFrontActive, float64(front.Active))
	for _, status := range slices.Sorted(maps.Keys(front.Status)) {
		counter(dFrontAnswers, front.Status[status], strconv.Itoa(status))
	}
	counter(dFrontAnswers, front.Cancelled, "cancelled")
	counter(dFrontAnswers, front.Slow, "slow")
	counter(dFrontAnswers, front.Broken, "broken")
}
