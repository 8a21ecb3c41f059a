package queue

import (
	"fmt"
	"time"

	"meridian/scheduler"
)

// Time is an instant of the owner's clock.
type Time = scheduler.Time

// ID is a request's number.
type ID = scheduler.ID

// Policy says who goes first.
type Policy string

// The policies; doc.go says what each does.
const (
	FCFS        Policy = "fcfs"
	OutputFirst Policy = "output-first"
	ReasonFirst Policy = "reason-first"
	SLOSlack    Policy = "slo-slack"
)

// Policies are all of them.
func Policies() []Policy { return []Policy{FCFS, OutputFirst, ReasonFirst, SLOSlack} }

// Config is what a queue schedules for. Zero values take the defaults that are named,
// but for Slots, StepTokens, Blocks and BlockTokens, which have none.
type Config struct {
	Policy      Policy
	Slots       int // requests that run at a time
	StepTokens  int // of a step; a running request that decodes takes one
	Blocks      int // of KV memory
	BlockTokens int
	Requests    int // known at a time; default 4,096

	Headroom        float64       // share of the blocks that admission leaves free; default 0
	Offload         bool          // a preempted request keeps what was computed, elsewhere
	Partial         bool          // with Offload: also of a prompt that is not in yet, from a whole block on
	ThinkMultiplier float64       // output-first: thinking requests for each slot left to others; default 2.5
	FirstAnswer     time.Duration // SLO from arrival to the first token; default 1 s
	ThinkPace       time.Duration // SLO of a thinking token; default 80 ms
	OutputPace      time.Duration // SLO of an output token, and the pace of a reader; default 20 ms
	Buffer          time.Duration // reason-first: an answer yields its place only when it is so far ahead; default 15 s
	MinResidency    time.Duration // default 1 s
	Aging           time.Duration // default 60 s

	// Cached is how many tokens from the front of a request its owner still has the
	// blocks of; it is asked when the request is admitted and not loaded. nil: what Add
	// said, and none of a request whose blocks were dropped.
	Cached func(ID) int
}

// Bounds of Config, and of what one step does.
const (
	MaxRequests = 1 << 20
	MaxAdmit    = 8 // requests admitted in a step
	MaxPreempt  = 8 // and preempted

	// oldEvery is how many admissions there are for one of a request that has waited for
	// Aging: where all wait that long, the policy still decides about the others.
	oldEvery = 4

	// loadLead is how long before its reader would notice an offloaded answer has its
	// turn: a load takes as long as a few hundred MiB take over PCIe, and its turn may
	// have to wait for room.
	loadLead = time.Second
)

// ConfigError names the field that cannot be.
type ConfigError struct{ Field, Text string }

func (e *ConfigError) Error() string { return "queue: " + e.Field + ": " + e.Text }

func (c *Config) fill() error {
	for _, f := range []struct {
		name string
		v    int
		most int
	}{{"Slots", c.Slots, MaxRequests}, {"StepTokens", c.StepTokens, 1 << 24}, {"Blocks", c.Blocks, 1 << 30}, {"BlockTokens", c.BlockTokens, 1 << 20}} {
		if f.v < 1 || f.v > f.most {
			return &ConfigError{f.name, fmt.Sprintf("%d: at least 1, at most %d", f.v, f.most)}
		}
	}
	switch c.Policy {
	case FCFS, OutputFirst, ReasonFirst, SLOSlack:
	default:
		return &ConfigError{"Policy", fmt.Sprintf("%q: there are %v", string(c.Policy), Policies())}
	}
	if c.Requests == 0 {
		c.Requests = 4096
	}
	if c.Requests < 1 || c.Requests > MaxRequests {
		return &ConfigError{"Requests", fmt.Sprintf("%d: at least 1, at most %d", c.Requests, MaxRequests)}
	}
	if !(c.Headroom >= 0 && c.Headroom < 1) {
		return &ConfigError{"Headroom", fmt.Sprintf("%v: at least 0, below 1", c.Headroom)}
	}
	if c.ThinkMultiplier == 0 {
		c.ThinkMultiplier = 2.5
	}
	if !(c.ThinkMultiplier >= 1 && c.ThinkMultiplier <= 1<<20) {
		return &ConfigError{"ThinkMultiplier", fmt.Sprintf("%v: at least 1", c.ThinkMultiplier)}
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"FirstAnswer", &c.FirstAnswer, time.Second},
		{"ThinkPace", &c.ThinkPace, 80 * time.Millisecond}, {"OutputPace", &c.OutputPace, 20 * time.Millisecond},
		{"Buffer", &c.Buffer, 15 * time.Second}, {"MinResidency", &c.MinResidency, time.Second}, {"Aging", &c.Aging, time.Minute},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 0 || *f.v > 24*time.Hour {
			return &ConfigError{f.name, fmt.Sprintf("%v: above 0, at most a day", *f.v)}
		}
	}
	return nil
}
