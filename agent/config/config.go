package config

import (
	"log/slog"
	"time"

	"meridian/wire"
)

// Config is a checked configuration. Every value is final: defaults are filled
// in, "auto" is resolved, relative paths of the file are made absolute.
type Config struct {
	File      string // the file that was read, absolute; empty if there was none
	Scheduler Scheduler
	Entropy   Entropy
	KVMemory  KVMemory
	Disagg    Disagg
	Telemetry Telemetry
	Models    []Model // in the order of their names
	Agent     Agent
	Arena     Arena
	Engine    Engine
	Quota     Quota
	Security  Security
	Admin     Admin
	Gateway   Gateway
	Llama     Llama
	// Namespaces are open without an engine, in the order of the file.
	Namespaces []wire.Manifest
	Routes     []Route  // in the order of the file: the first match wins
	Fabrics    []Fabric // in the order of their names, those that every daemon has last

	origins []kept
	kinds   []FabricKind
}

// Scheduler is the table of the same name.
type Scheduler struct {
	Policy               string  // a queue.Policy
	ThinkTPOTBudget      float64 // ms
	OutputTPOTBudget     float64 // ms
	FirstAnswerBudget    float64 // ms
	ThinkBatchMultiplier float64
	AnswerBuffer         time.Duration
	MinResidency         time.Duration
	Aging                time.Duration
	MaxThinkTokens       uint32
	MinThinkTokens       uint32
}

// Entropy is the table of the same name.
type Entropy struct {
	Enabled                    bool
	EMAAlpha                   float64
	RPDIThreshold              float64
	EATEMAVarianceThreshold    float64
	TransitionEntropyThreshold float64 // nats
	EATProbeInterval           uint32  // tokens
	PEndLevel                  float64 // probability
}

// KVMemory is the table kv_memory: the arena's size and its shares.
type KVMemory struct {
	AggressiveThinkEviction  bool
	ThinkPhaseMemoryFraction float64
	BlockSize                uint64 // bytes
	Capacity                 uint64 // bytes
	CapacityNote             string // how an automatic capacity was computed; empty for a given one

	setting capacity // as written
}

// Disagg is the table of the same name. Fabric is short for one route.
type Disagg struct {
	Enabled                bool
	Fabric                 string
	OffloadThresholdBlocks uint32
	WriteThrough           bool // copy prompt blocks to the fabric before a store is acknowledged
}

// Telemetry is the table of the same name.
type Telemetry struct {
	OTLPEnabled  bool
	OTLPEndpoint string
	ServiceName  string
}

// Model is one table [model.NAME].
type Model struct {
	Name                 string
	ThinkStart, ThinkEnd []int32
	ThinkSpace           []int32 // ids that are white space
	ReasoningParser      string
	SupportsThinkDisable bool
	KeepsThinking        bool // the chat template keeps thinking in the history
}

// Agent is who the daemon is and how it starts and stops.
type Agent struct {
	Name          string
	ID            string // 32 hexadecimal digits; empty: the daemon keeps one in StateDir
	StateDir      string
	ReadyMinPeers int
	LogLevel      slog.Level
	LogFormat     string // text, json
	DrainTimeout  time.Duration
	FindTimeout   time.Duration // how long a load waits for a holder's answer
	TopologyFile  string        // what sysfs does not say of the devices; empty: none
}

// Arena holds what kv_memory does not say about the arena.
type Arena struct {
	Verify  string // commit: hash once, when a block is made; always: at each read too
	Hold    uint64 // bytes that one engine session may hold without a time limit
	Extent  uint64 // bytes; one size class an extent
	Windows uint64 // bytes of all windows together
	Ahead   uint64 // bytes that are made ready before they are needed
}

// Engine is the engines' block socket.
type Engine struct {
	Socket      string
	Staging     uint64 // bytes of staging ring a session
	MaxSessions int    // engines, each a group of sessions

	MaxGroupSessions int           // of one engine
	MaxPin           time.Duration // that an engine may pin a block for
	MaxParkedLoads   int           // LOADs of one engine that wait for blocks
	MaxParkedBlocks  int           // blocks that they wait for
}

// Security is who may use the engine socket, and for which tenants.
type Security struct {
	Tenants []string // empty: none
	UIDs    []uint32 // besides the daemon's own
}

// Admin is the operator's side.
type Admin struct {
	Socket   string
	HTTP     string // host:port of metrics and health; empty: none
	Insecure bool
	Hosts    []string // what Host may be, besides loopback and the address of HTTP
	Origins  []string // of web pages that may read
}

// Llama is the llama-server that this node supervises; none without a Model.
type Llama struct {
	Model       string // path of the GGUF file
	Server      string // path of the llama-server binary
	Args        []string
	Name        string // the served model's name
	Listen      string // host:port of the OpenAI front
	Insecure    bool   // let the front listen beyond loopback
	Token       Secret
	Hosts       []string // what Host may be, besides loopback and the address of Listen
	Origins     []string // of web pages that may call
	Dir         string
	Context     int // tokens a slot
	Slots       int
	Threads     int // 0: llama-server's choice
	Tenant      string
	BlockTokens int
	Quantum     int // tokens
	Tick        time.Duration
	Hold        time.Duration
	Role        string
	Partner     string        // URL of the other node's front
	PartnerTime time.Duration // for one prompt, and for the next token of an answer
	Remote      int           // tokens
	ThinkStart  string
	ThinkEnd    string
	ThinkOpen   bool
	SignalProbs int
}

// On says whether the node has a llama-server.
func (l Llama) On() bool { return l.Model != "" }

// Gateway is the table of the same name.
type Gateway struct {
	Queue uint64 // bytes; 0: an eighth of the arena
	Cut   uint64 // bytes from which on a block goes on while it comes; 0: never
	Look  time.Duration
}

// Route is one entry [[route]].
type Route struct {
	From      string // fabric, or FABRIC/PEER, whose peers bring the blocks; empty: engines of this daemon
	Tier      string // think_complete, think_active, output_critical; empty: any
	Namespace string // 64 hexadecimal digits; empty: any
	Peer      string // empty: any
	MinBytes  uint64
	MaxBytes  uint64 // 0: no upper bound
	Fabric    string
	Require   bool // fail rather than fall back
}

// Secret is a value that is never printed: every way of formatting it says
// only whether it is set. The conversion []byte(s) is the way to its bytes.
type Secret string

const redacted = "[redacted]"

// String says whether the secret is set.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String, for JSON, YAML and TOML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
