package quota

import (
	"fmt"
	"net/netip"

	"meridian/wire"
)

// Resource is what a holder can use up.
type Resource uint8

// The resources.
const (
	ArenaBytes      Resource = iota // bytes of the arena that are reserved or leased
	GuaranteedBytes                 // bytes of the arena that others leave free for a holder
	EndedBytes                      // bytes of the arena that processes hold whose sessions have ended
	StagingBytes                    // bytes of staging rings
	Namespaces                      // namespaces held open
	Engines                         // engines that have a namespace open
	Sessions                        // sessions that passed HELLO
	HalfOpen                        // connections whose HELLO is not through
	MetadataConns                   // connections to a metadata server
	MetadataEntries                 // values that it keeps
	MetadataBytes                   // of them, with their keys
	WindowBytes                     // bytes of windows, which foreign initiators reach
	HTTPConns                       // connections to the operator's pages
	FrontConns                      // connections to the OpenAI front
	DataConns                       // connections of foreign initiators to data planes
	DataReads                       // reads of theirs whose bodies are being sent
	HandshakeConns                  // connections to handshakes of transfer engines
	HandshakeBytes                  // bytes of handshakes that have not come whole
	RelayBytes                      // bytes of memory for what relays carry
	RelayCalls                      // probes and notifies that relays carry
	resources
)

// A resource's name, as metrics and refusals show it, and the code of a refusal.
var resourceTable = [resources]struct {
	name, words string
	bytes       bool
	code        wire.Code
}{
	ArenaBytes:      {"arena_bytes", "of the arena in reservations and leases", true, wire.CodeFull},
	GuaranteedBytes: {"guaranteed_bytes", "of the arena that is not guaranteed to others,", true, wire.CodeFull},
	EndedBytes:      {"ended_bytes", "of the arena in hold leases of ended sessions", true, wire.CodeBusy},
	StagingBytes:    {"staging_bytes", "of staging rings", true, wire.CodeBusy},
	Namespaces:      {"namespaces", "namespaces", false, wire.CodeTooMany},
	Engines:         {"engines", "engines", false, wire.CodeTooMany},
	Sessions:        {"sessions", "sessions", false, wire.CodeTooMany},
	HTTPConns:       {"http_connections", "connections to admin.http", false, wire.CodeTooMany},
	FrontConns:      {"front_connections", "connections to llama.listen", false, wire.CodeTooMany},
	WindowBytes:     {"window_bytes", "of windows", true, wire.CodeFull},
	DataConns:       {"data_connections", "connections to data planes", false, wire.CodeTooMany},
	DataReads:       {"data_reads", "reads under way at data planes", false, wire.CodeBusy},
	HandshakeConns:  {"handshake_connections", "connections to handshakes", false, wire.CodeTooMany},
	HandshakeBytes:  {"handshake_bytes", "of unfinished handshakes", true, wire.CodeBusy},
	RelayBytes:      {"relay_bytes", "of what relays carry", true, wire.CodeBusy},
	RelayCalls:      {"relay_calls", "probes and notifies under way at targets of relays", false, wire.CodeBusy},
	HalfOpen:        {"half_open", "connections without HELLO", false, wire.CodeTooMany},
	MetadataConns:   {"metadata_connections", "connections to the metadata server", false, wire.CodeTooMany},
	MetadataEntries: {"metadata_entries", "entries of the metadata server", false, wire.CodeTooMany},
	MetadataBytes:   {"metadata_bytes", "of the metadata server's values", true, wire.CodeFull},
}

// String returns the name in metrics.
func (r Resource) String() string {
	if r >= resources {
		return fmt.Sprintf("resource %d", uint8(r))
	}
	return resourceTable[r].name
}

// Code is that of a refusal: FULL for the arena, BUSY for rings, TOO_MANY for
// what somebody has to close.
func (r Resource) Code() wire.Code {
	if r >= resources {
		return wire.CodeInternal
	}
	return resourceTable[r].code
}

// amount writes n of the resource in words.
func (r Resource) amount(n uint64) string {
	if r >= resources {
		return fmt.Sprint(n)
	}
	t := &resourceTable[r]
	if !t.bytes {
		return fmt.Sprintf("%d %s", n, t.words)
	}
	return size(n) + " " + t.words
}

// size writes a number of bytes with a binary unit where it is whole.
func size(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Kind is what sort of holder has an account.
type Kind uint8

// The kinds.
const (
	All     Kind = iota // the daemon as a whole: the total
	Peers               // all other agents together
	Peer                // another agent, by its proven name
	Tenant              // all that works for a tenant, local or not
	Engine              // one engine: the sessions of a group, or of a process
	Process             // a process, for all engines that it begins
	Source              // a remote address, or a user of a Unix socket, for who proves no listed name
	kinds
)

var kindNames = [kinds]string{"all", "peers", "peer", "tenant", "engine", "process", "source"}

// String returns the name in metrics.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

// Holder is who has an account. The zero Holder is Total.
type Holder struct {
	Kind Kind
	Name string // of a peer or tenant, an engine's process, an address; empty for All and Peers
}

// The holders without a name: the daemon as a whole, and all peers together.
var (
	Total    = Holder{Kind: All}
	AllPeers = Holder{Kind: Peers}
)

// SourceOf is the holder for a remote address: an IPv4 address, or the /64 of an
// IPv6 address, since one host has all addresses of it.
func SourceOf(a netip.Addr) Holder {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64) // cannot fail for an IPv6 address
		return Holder{Source, p.String()}
	}
	return Holder{Source, a.String()}
}

// String names the holder in refusals and logs.
func (h Holder) String() string {
	switch h.Kind {
	case All:
		return "all holders together"
	case Peers:
		return "all peers together"
	}
	return h.Kind.String() + " " + h.Name
}

// Error is a refusal. It matches the code of its resource.
type Error struct {
	Rule   Rule // that was met
	Holder Holder
	InUse  uint64 // what the holder has
	Want   uint64 // what it asked for on top
	Limit  uint64
	Free   bool // the limit is what was free of the total
}

// Error says who, what, how much, and which key to change.
func (e *Error) Error() string {
	r, free, key := e.Rule.Resource, "", e.Rule.Key()
	if e.Free {
		free, key = ", as many as are free,", Rule{r, All}.Key()
	}
	return fmt.Sprintf("%s may have %s%s and has %s; %s more would exceed that (%s)", e.Holder, r.amount(e.Limit), free, amountOnly(r, e.InUse), amountOnly(r, e.Want), key)
}

func amountOnly(r Resource, n uint64) string {
	if r < resources && resourceTable[r].bytes {
		return size(n)
	}
	return fmt.Sprint(n)
}

// Unwrap makes the error match the resource's code.
func (e *Error) Unwrap() error { return e.Rule.Resource.Code() }
