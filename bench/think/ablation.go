package think

import (
	"time"

	"meridian/scheduler/queue"
)

// policy is the queue's configuration with a policy and the SLOs of o.
func (o *Options) policy(p queue.Policy) queue.Config {
	return queue.Config{Policy: p, FirstAnswer: o.FirstAnswer, ThinkPace: o.ThinkPace, OutputPace: o.OutputPace}
}

func with(c queue.Config, f func(*queue.Config)) queue.Config { f(&c); return c }

// room is the headroom of our arms, and offload.
func room(c *queue.Config) { c.Headroom, c.Offload, c.Partial = 0.05, true, true }

// Ablations are stock, output-first, and then our policies with one thing changed, to see
// what that is worth.
func Ablations(o *Options) []Arm {
	var all []Arm
	for _, a := range Arms(o) {
		if a.Name == "stock" || a.Name == "output-first" {
			all = append(all, a)
		}
	}
	change := func(name, what string, p queue.Policy, f func(*queue.Config)) Arm {
		return Arm{Name: name, What: what, ColdBatch: coldBatch, Config: with(with(o.policy(p), room), f)}
	}
	none := func(*queue.Config) {}
	uncopied := change("of, no cold copies", "output-first; nothing is copied away when thinking is over", queue.OutputFirst, none)
	uncopied.ColdBatch = 0
	flat := change("of, one tier", "output-first; all blocks go in order of their last use", queue.OutputFirst, none)
	flat.OneTier = true
	return append(all,
		change("of, no headroom", "output-first; admission leaves no blocks to those that run", queue.OutputFirst, func(c *queue.Config) { c.Headroom = 0 }),
		change("of, headroom 20 %", "output-first; admission leaves 20 % of the blocks", queue.OutputFirst, func(c *queue.Config) { c.Headroom = 0.2 }),
		change("of, recomputed", "output-first; who is preempted is recomputed", queue.OutputFirst, func(c *queue.Config) { c.Offload = false }),
		uncopied, flat,
		change("of, half of the slots", "output-first; thinking leaves every second slot to others", queue.OutputFirst, func(c *queue.Config) { c.ThinkMultiplier = 1 }),
		change("rf, buffer 3 s", "reason-first; an answer yields its place when it is 3 s ahead, not 15", queue.ReasonFirst, func(c *queue.Config) { c.Buffer = 3 * time.Second }),
		change("slo, residency 1 ms", "slo-slack; who has come back may have to go in the next step", queue.SLOSlack, func(c *queue.Config) { c.MinResidency = time.Millisecond }),
	)
}
