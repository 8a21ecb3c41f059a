package fabric

import (
	"context"
	"time"

	"meridian/wire"
)

// Finder is a fabric that can say whether a block is there without moving it.
type Finder interface {
	// Find looks each item up by H, or by NS and Key where H is zero. It fills
	// Head (with BodyLen, so that the caller can make room), H and Via, or sets
	// Err: CodeAbsent where nothing is. M is neither needed nor touched.
	Find(ctx context.Context, it []Item)
}

// Objects is a fabric over a store in which other clients have objects too: bytes that
// are no blocks, and of which nothing is known.
type Objects interface {
	// Object reads the object that a client has put under a key. One of more than limit
	// bytes is CodeTooLarge, and a key at which a block may be is CodeDenied.
	Object(ctx context.Context, key string, limit uint64) (Object, error)
}

// Object is an object as it was read.
type Object struct {
	B     []byte // new memory
	CRC64 bool   // the writer left a CRC-64 of it, which fits; else nothing proves the bytes
}

// Dropper is a fabric that can be told to forget a block.
type Dropper interface {
	// Drop removes each item, named by H or by NS and Key. After it the handle
	// answers CodeAbsent or CodeStale for ever. What was not there gets
	// CodeAbsent, so a drop may be repeated.
	Drop(ctx context.Context, it []Item)
}

// Lister is a fabric that can enumerate what it holds.
type Lister interface {
	// List calls f once for each block, in no particular order, until f returns
	// false. NS, Key, Tier, H and Head are set, M is empty. f may call the
	// fabric. Blocks that come or go meanwhile may or may not be listed. The
	// error is the context's, or what kept the list from being complete.
	List(ctx context.Context, f func(Item) bool) error
}

// Prober is a fabric that can measure its way to a peer.
type Prober interface {
	// Probe moves one checked block to peer ("" where the fabric has only one
	// other end) and returns the transport really used and its speed in 10^9
	// bytes a second; 0 where the clock was too coarse to tell.
	Probe(ctx context.Context, peer string) (via string, gbps float64, err error)
}

// Gate is a fabric that cannot take calls at all times.
type Gate interface {
	// Usable is nil while calls for blocks of ns can be made, and else says why
	// not; the zero namespace asks whether any call can be made. It answers at
	// once from memory: it is asked for every batch.
	Usable(ns wire.Namespace) error
}

// Tenanted is a fabric that proves no tenant of its peers: its configuration says whose
// blocks they may have. What others bring goes to it only where MayHave says so; blocks of
// the daemon's own engines go where the routes say.
type Tenanted interface {
	// MayHave is nil where the peers may have blocks of ns, and else says why not; the
	// zero namespace asks whether they may have any. It answers at once from memory.
	MayHave(ns wire.Namespace) error
}

// Enabler is a fabric that needs something of the host, such as a library.
type Enabler interface {
	// Enabled is nil while the fabric has what it needs, and else says what is missing and
	// what to do. It answers at once from memory.
	Enabled() error
}

// Peered is a fabric that is made of peers. Each listed one is a fabric of its own,
// whose registry name is PeerName of this fabric's and the peer's.
type Peered interface {
	// Peers tells how each peer stands, in ascending order of names.
	Peers() []Peer
	// Peer is the fabric that leads to the listed peer of that name; nil: there is none.
	Peer(name string) Fabric
}

// Referrer is a fabric of peers that can be pointed to a block by what its holder says
// of itself: agent, incarnation, slot and generation.
type Referrer interface {
	// Refer names the listed peer that has proved to be that agent, in that incarnation,
	// and can be called now. handle makes a handle of a reference that the peer gave out.
	// The error matches CodeUnreachable where there is no such peer. Where there is one,
	// which is named, and it runs in another incarnation, the error matches CodeIncarnation
	// if that is a later one, so that the one asked for never comes back, and else CodeStale.
	// It answers at once from memory, and connects to nobody.
	Refer(agent [16]byte, inc uint64) (peer string, handle func(slot, gen uint32) Handle, err error)
}

// PeerState is where an agent stands with a peer.
type PeerState uint8

// The states. A refused peer was reached and said no, or was told no: see Peer.Code
// and Text.
const (
	PeerConnecting PeerState = iota
	PeerReady
	PeerRefused
	PeerDraining
	PeerIdle // not connected, since nothing was asked of it yet
)

var peerStates = [...]string{"connecting", "ready", "refused", "draining", "idle"}

// String returns the state's name.
func (s PeerState) String() string { return peerStates[min(int(s), len(peerStates)-1)] }

// Peer is how one peer of a fabric stands. A fabric that does not know something
// leaves it zero.
type Peer struct {
	Name    string
	Fabric  string // name of the fabric that leads to it; the agent sets it
	Listed  bool   // in the configuration; others came by themselves, and several may have one name
	Agent   [16]byte
	Inc     uint64 // incarnation; another one is another peer
	Addr    string // as configured, else where it comes from
	State   PeerState
	Code    wire.Code     // why it is not ready
	Text    string        // the same in words
	Via     string        // the transport really used; "" while there is none
	Lanes   int           // connections that carry blocks now
	Memory  uint64        // bytes that it has lent now, where peers lend memory
	Place   uint64        // where these are; another one is other memory
	RTT     time.Duration // of the last round trip; 0: not measured
	Tenants []string      // proved; "*" where any is taken
	Spaces  []wire.Namespace
}

// Err is why no call can be made; nil: it is ready.
func (p *Peer) Err() error {
	if p.State == PeerReady {
		return nil
	}
	return &Error{Code: p.Code, Text: "peer " + p.Name + " is " + p.State.String() + ": " + p.Text}
}

// Keeper is a fabric whose copies can go with the peer that has them.
type Keeper interface {
	// Keeps says whether the copy that h names may still be there. False means
	// that it is gone for good or cannot be reached now.
	Keeps(h Handle) bool
}

// Transporter is a fabric that knows the transports it can use: the values of
// Via. Counters of each begin at 0.
type Transporter interface {
	Transports() []string
}

// Chooser is a fabric of peers that gives each block one of them: its home, where
// equal keys meet.
type Chooser interface {
	// Choose names the peer that a Push of the block would go to now; "" for none.
	Choose(ns wire.Namespace, key wire.Key) (peer string)
}

// Finding is something about a fabric that an operator may have to know.
type Finding struct {
	ID              string // stable; the daemon puts the fabric's registry name before it
	Bad             bool   // else it was looked at, and is as it should be
	Severe          bool   // it breaks something, where others cost speed or safety
	Subject, Reason string // what was looked at, with its value; what is wrong with it
	Fix             string
}

// Advisor is a fabric that can say what is wrong with it.
type Advisor interface {
	// Findings answers at once from memory, in an order that does not change.
	Findings() []Finding
}

// Server is a fabric that serves calls of its peers by itself.
type Server interface {
	// Addresses are those at which peers may connect, scheme://address.
	Addresses() []string
	// Drain takes no new calls, tells the peers, and returns when what runs has
	// ended or ctx has. Close follows, before the daemon's own calls are ended.
	Drain(ctx context.Context)
}

// Counter is a fabric that counts what runs on it.
type Counter interface {
	Stats() Stats
}

// Stats are the counts of a fabric. All but the totals are zero when nothing runs.
type Stats struct {
	Sessions, Lanes            int
	Calls, Waiting, Served     int
	Refs                       int // reads, writes and hashes under way
	CallBytes, ServedBytes     uint64
	BytesIn, BytesOut          uint64 // total
	RequestsIn, RequestsOut    uint64 // total
	ChecksumFailures, Refusals uint64 // total
}

// Failing is a fabric that counts what failed between this agent and its listed peers.
type Failing interface {
	// Failures are those of each listed peer, in an order that does not change.
	Failures() []Failures
}

// Failures are what failed with one peer, by reason. They only rise.
type Failures struct {
	Peer string
	In   map[wire.Code]uint64 // of what the peer asked for
	Out  map[wire.Code]uint64 // of what this agent asked the peer for
}

// MetadataServer is a fabric at which others keep what they tell each other about
// themselves.
type MetadataServer interface {
	// Entries are what is kept there, in an order that does not change.
	Entries() []Entry
}

// Entry is what somebody keeps at a MetadataServer. Its texts are safe to print.
type Entry struct {
	Name  string    `json:"name"`
	Label string    `json:"label"`
	From  string    `json:"from"` // HOST:PORT from which it came
	PID   uint32    `json:"pid"`  // of who put it, as that told
	Since time.Time `json:"since"`
	Bytes int       `json:"bytes"`
	Alive bool      `json:"alive"` // who put it is connected; else it ends soon
}

// Relay is a fabric that carries requests of others to others, and has none of their
// bytes.
type Relay interface {
	// Relayed is what was carried for each source, in an order that does not change.
	Relayed() []Relayed
}

// Relayed are the counts of one source of a relay. The totals only rise.
type Relayed struct {
	Source             string // a name of the configuration, or one for all others
	Connections        int    // now
	Written, Read      uint64 // bytes that it wrote to, and read from, the target; total
	Requests, Notifies uint64 // that were carried; total
	Refused            map[wire.Code]uint64
}
