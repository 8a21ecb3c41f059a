package llama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"meridian/agent/client"
	"meridian/agent/llama/identity"
	"meridian/scheduler"
)

// Role is a node's part in a prefill/decode split.
type Role string

// The roles.
const (
	Both    Role = "both"    // prefills and decodes what its front is given
	Prefill Role = "prefill" // prefills, and hands the decoding to its partner
	Decode  Role = "decode"  // decodes, and asks its partner to prefill
)

// Config describes a node.
type Config struct {
	Server  string   // path of the llama-server binary
	Model   string   // path of the GGUF file
	Args    []string // further arguments of llama-server
	Name    string   // the served model's name
	Context int      // tokens a slot
	Slots   int
	Threads int // 0: llama-server's own choice
	Dir     string

	Tenant      string
	BlockTokens int
	Quantum     int // most tokens decoded a call
	Scheduling  Scheduling

	Role    Role
	Partner string   // URL of the other node's front; empty: none
	Token   string   // bearer token of both fronts; empty: none
	Remote  int      // fewest missing prompt tokens for which the partner is asked
	Hosts   []string // what Host may be, besides loopback
	Origins []string // of web pages that may call

	Thinking Thinking

	// Engine opens a session with the node's own daemon.
	Engine func(ctx context.Context, o client.Options) (*client.Engine, error)
	// Model of the scheduler, once the tokenizer has said what its markers are:
	// the daemon's own router should know it. May be nil.
	Learn func(scheduler.Model) error
	// PartnerTimeout bounds what a partner may take for a prompt, and for the next
	// token of an answer, however it works; 0: DefaultPartnerTimeout.
	PartnerTimeout time.Duration
	// Blocked says why blocks of the partner's daemon, by its name or an empty one
	// while that is not known, cannot be had now. nil: they can.
	Blocked func(partner string) error
	// Agent is the daemon's name, for answers and logs.
	Agent string
	Log   *slog.Logger
}

// Thinking says how the model thinks, and when it has thought enough.
type Thinking struct {
	Start, End       string  // the markers' text; empty: as StartIDs and EndIDs say
	StartIDs, EndIDs []int32 // instead of the text; all empty: the model does not think
	Open             bool    // append Start to each chat prompt, for a template that does not
	Keeps            bool    // the chat template keeps thinking in the history
	Max              uint32  // tokens
	Signals          scheduler.SignalConfig
	Probe            int // tokens whose probabilities a probe asks for; 0: no signals
}

// Bounds of a configuration.
const (
	MaxSlots       = 64
	MaxBlockTokens = 1024
	waitingPerNode = 64 // requests that wait for a slot, beyond the slots; of the background half as many
)

// Places are the requests that a node of so many slots has at a time.
func Places(slots int) int { return slots + waitingPerNode }

// BackgroundPlaces are those of Places that requests in the background may have.
func BackgroundPlaces(slots int) int { return slots + waitingPerNode/2 }

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ key, path string }{{"server", c.Server}, {"model", c.Model}} {
		if f.path == "" {
			bad("llama.%s: a path is needed", f.key)
		} else if info, err := os.Stat(f.path); err != nil {
			bad("llama.%s: %w", f.key, err)
		} else if info.IsDir() {
			bad("llama.%s: %s is a folder", f.key, f.path)
		}
	}
	if c.Slots < 1 || c.Slots > MaxSlots {
		bad("llama.slots: %d is not between 1 and %d", c.Slots, MaxSlots)
	}
	if c.BlockTokens < 1 || c.BlockTokens > MaxBlockTokens {
		bad("llama.block_tokens: %d is not between 1 and %d", c.BlockTokens, MaxBlockTokens)
	}
	if c.Context < 2*c.BlockTokens {
		bad("llama.context: %d tokens are fewer than two blocks of %d", c.Context, c.BlockTokens)
	}
	if _, err := newTurns(newSlots(1), c, nil, nil); err != nil {
		bad("scheduler: %w", err)
	}
	if c.Role != Both && c.Partner == "" {
		bad("llama.partner: a node of role %q needs the URL of another node's front", c.Role)
	}
	if err := identity.CheckArgs(c.Args); err != nil {
		bad("llama.args: %w", err)
	}
	if err := identity.CheckEnv(os.Environ()); err != nil {
		errs = append(errs, err)
	}
	if (c.Thinking.Start == "") != (c.Thinking.End == "") {
		bad("llama.think_start and llama.think_end: both or none; they are %q and %q", c.Thinking.Start, c.Thinking.End)
	}
	return errors.Join(errs...)
}

// DefaultPartnerTimeout is that of Config.
const DefaultPartnerTimeout = 2 * time.Minute

// Times of the node.
const (
	downTimeout   = 15 * time.Second // that a request waits for a llama-server that is starting
	loadTimeout   = 10 * time.Minute // of a model; a large one comes from a slow disk
	fetchDeadline = 10 * time.Second // for pulling a prompt's blocks; then they count as missing
	saveTimeout   = 30 * time.Second // for saving and storing what a request leaves
)
