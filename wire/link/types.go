// Package link is the codec of the agent-to-agent link and of the engine's
// block socket: frames in, frames out, no I/O.
package link

import "meridian/wire"

// Frame is the 24-byte frame header.
type Frame struct {
	Len   uint32 // bytes of payload, the crc32c trailer of control payloads included
	Type  Type
	Flags uint8
	Class Class
	Req   uint64
	Arg   uint32
}

// Type is a frame's type.
type Type uint8

// The frame types. Agent to agent below 32, engine socket (feature LOCAL) from 32.
const (
	TypeHello   Type = 1
	TypeOpen    Type = 2
	TypeOpened  Type = 3
	TypeHas     Type = 4
	TypeTable   Type = 5
	TypePull    Type = 6
	TypePush    Type = 7
	TypeGrant   Type = 8
	TypeData    Type = 9
	TypeCommit  Type = 10
	TypeEnd     Type = 11
	TypeRenew   Type = 12
	TypeRelease Type = 13
	TypeStat    Type = 14
	TypePing    Type = 15
	TypeCancel  Type = 16
	TypeAbort   Type = 17
	TypeGoAway  Type = 18
	TypeError   Type = 19

	TypeMap       Type = 32
	TypeAcquire   Type = 33
	TypeAcquired  Type = 34
	TypePut       Type = 35
	TypeBegin     Type = 36
	TypeTokens    Type = 37
	TypePhase     Type = 38
	TypeFinish    Type = 39
	TypeWindow    Type = 40
	TypeWindowEnd Type = 41
)

// FlagCritical marks a frame that may not be skipped.
const FlagCritical = 1

// Class orders DATA frames: 0 urgent .. 3 bulk.
type Class uint8

// Features of HELLO.
const (
	FeatureLocal uint64 = 1 << 0
)

// Flags of Want.
const (
	WantFetch     uint16 = 1 << 0 // engine socket: pull from peers what is not here
	WantTransient uint16 = 1 << 1 // engine socket: do not publish what is fetched; free at release
	WantKeepLease uint16 = 1 << 2
)

// Limits are what a side grants to its peer.
type Limits struct{ Reqs, Items, Frame, BytesInFlight, LingerMS uint32 }

// TLV is an auth element of HELLO.
type TLV struct {
	Type  uint16
	Value []byte
}

// Hello opens a lane, both ways.
type Hello struct {
	Min, Max uint16
	Agent    [16]byte
	Inc      uint64
	Session  [16]byte // zero: a new session
	Lane     uint8
	Features uint64
	Limits   Limits
	Nonce    [32]byte
	Auth     []TLV
}

// Open asks for a namespace number for a manifest.
type Open struct{ Manifest []byte }

// Opened answers Open.
type Opened struct {
	NS                  uint16
	Status              wire.Code
	Field, Ours, Theirs string
}

// Want names a block (52 bytes).
type Want struct {
	NS, Flags uint16
	Off, Max  uint32
	Slot, Gen uint32 // Gen 0: any
	Key       wire.Key
}

// Have describes a block (64 bytes or fewer, see Append).
type Have struct {
	Status    wire.Code
	Tier      wire.Tier
	Att       wire.Attest
	Len       uint32 // bytes of body
	Head      [wire.HeaderLen]byte
	Slot, Gen uint32
}

// Has asks which blocks exist.
type Has struct {
	DeadlineMS uint32
	Items      []Want
}

// Pull asks for bodies.
type Pull struct {
	DeadlineMS, LeaseMS uint32
	Items               []Want
}

// Table answers Has, Stat and Pull.
type Table struct {
	Lease [16]byte
	Items []Have
}

// PushItem is one item of Push.
type PushItem struct {
	NS   uint16
	Key  wire.Key
	Have Have
}

// Push offers bodies.
type Push struct {
	DeadlineMS uint32
	Items      []PushItem
}

// Grant answers Push, an item a status.
type Grant struct{ Status []wire.Code }

// End ends a request.
type End struct {
	Code    wire.Code
	RetryMS uint32
	Status  []wire.Code
	Text    string
}

// Renew prolongs a lease.
type Renew struct {
	Lease [16]byte
	MS    uint32
}

// Release gives leases back.
type Release struct{ Leases [][16]byte }

// GoAway announces that the sender leaves in MS milliseconds.
type GoAway struct {
	MS   uint32
	Code wire.Code
	Text string
}

// Error says why a lane is closed.
type Error struct {
	Code   wire.Code
	Offset uint64
	Text   string
}

// Kinds of Seg.
const (
	SegBytes   uint8 = 1 // read-only
	SegGens    uint8 = 2 // read-only
	SegStaging uint8 = 3 // read-write
)

// Seg is one mapping of an engine; its descriptor travels by SCM_RIGHTS in the same order.
type Seg struct {
	ID   uint32
	Size uint64
	Kind uint8
}

// Map hands descriptors to an engine (daemon to engine, unsolicited, Req 0, or as answer to a Map request with no segments).
type Map struct{ Segs []Seg }

// Acquire asks for leases on mapped bytes.
type Acquire struct {
	DeadlineMS, LeaseMS uint32
	Hold                bool
	Items               []Want
}

// Place is one granted block of Acquired. Off is the body's offset in segment Seg; the
// header lies in the HeaderLen bytes before it.
type Place struct {
	Status    wire.Code
	Tier      wire.Tier
	Att       wire.Attest
	Slot, Gen uint32
	Seg       uint32
	Len       uint32
	Off       uint64
	GenOff    uint32 // byte offset of the slot's generation word in segment Seg's generation table
}

// Acquired answers Acquire.
type Acquired struct {
	Lease [16]byte
	Items []Place
}

// PutItem is one block of Put: Off and Len name bytes of the staging ring.
type PutItem struct {
	NS   uint16
	Tier wire.Tier
	Len  uint32
	Off  uint64
	Key  wire.Key
	Req  uint32 // the generation request it belongs to; 0: none
}

// Put reserves, copies, hashes and publishes in one message.
type Put struct {
	DeadlineMS uint32
	Items      []PutItem
}

// Begin starts a generation request on the engine socket.
type Begin struct {
	Req       uint32
	ID, Model string
	Prompt    []int32
	SLOms     [3]uint32
}

// Tokens are one step's tokens in columns: Tok holds N[i] tokens of Req[i], one after the other.
type Tokens struct {
	Req []uint32
	N   []uint8
	Tok []int32
}

// Phase is advice to the engine about one request.
type Phase struct {
	Req    uint32
	Kind   uint8
	Used   uint32
	Reason uint8
	Inject []int32
}

// Finish ends a generation request: reason 0 done, 1 abort. Idempotent.
type Finish struct {
	Req    uint32
	Reason uint8
}

// WindowReq opens an ingest window.
type WindowReq struct {
	NS    uint16
	Len   []uint32
	Proto uint8
	TTLms uint32
}

// WindowEnd closes one.
type WindowEnd struct {
	Addr   uint64
	Commit bool
	Items  []PutItem
}
