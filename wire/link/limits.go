package link

import (
	"time"

	"meridian/wire"
)

// Version is the link protocol version that this package speaks. HELLO carries
// a range, so that two sides of different age find the newest common one.
const Version = 1

// Sizes of a frame, in bytes.
const (
	FrameLen      = 24        // the frame header
	TrailerLen    = 4         // crc32c at the end of every control payload
	DataPrefixLen = 4         // u32 offset at the start of every DATA payload
	MaxControl    = 1 << 20   // control payload, trailer included
	MaxChunk      = 256 << 10 // bytes of body in one DATA frame
	MaxData       = MaxChunk + DataPrefixLen
	// HeadLen is the shortest frame: what a reader may read at a frame's start
	// without touching a body byte of DATA or a byte of the next frame.
	HeadLen = FrameLen + 4
)

// Counts and lengths inside messages.
const (
	MaxItems    = 4096             // items of a batch: Want, Have, PushItem, Place, PutItem, status
	MaxLeases   = 4096             // leases of one RELEASE
	MaxText     = 256              // bytes of UTF-8 in any text field
	MaxManifest = wire.MaxManifest // bytes of a canonical manifest in OPEN
	MaxTLVs     = 16               // auth elements of HELLO
	MaxTLV      = 1 << 10          // bytes of one auth element's value
	MaxSegs     = 253              // segments of one MAP: SCM_MAX_FD of Linux, a descriptor each
	MaxPrompt   = 260_000          // prompt tokens of BEGIN, all tokens of RESUME: what fits a control frame
	MaxRows     = 4096             // requests of one TOKENS
	MaxTokens   = 64 << 10         // tokens of one TOKENS
	MaxInject   = 256              // tokens of one PHASE or PHASEAT
	MaxRanges   = 4096             // ranges of one WINDOW
	MaxHolders  = 256              // holders that one LOAD names
	GroupSecret = 32               // bytes of the secret of a group of sessions
)

// Limits of a session that both sides hold to. A value of HELLO outside of its
// range counts as the nearest one in it.
const (
	MinFrame         = 4<<10 + DataPrefixLen // bytes of a DATA payload that each side must take
	MaxLinger        = 60 * time.Second      // that HELLO may ask for
	MaxReqs          = 256                   // requests in flight, a session and direction
	MaxBytesInFlight = 256 << 20             // body bytes promised and not ended, a session and direction
	MaxLanes         = 16                    // data lanes beside lane 0
	MaxNamespaces    = 1024                  // namespaces open, a session
	MaxSessions      = 4                     // sessions of one peer
	// HalfOpen and HalfOpenPerSource bound the connections whose HELLOs are not
	// through: enough for 100 peers that come back at once, and for some daemons
	// on one host. A configuration may say otherwise.
	HalfOpen          = 256
	HalfOpenPerSource = 16
)

// Times of the protocol. A deadline travels as remaining milliseconds.
const (
	MaxLease     = 30 * time.Second  // of a PULL, ACQUIRE or LOAD that does not hold, and of a reservation
	MinDeadline  = time.Millisecond  // 0 has already run out
	MaxDeadline  = 600 * time.Second // a longer one counts as this
	HelloTimeout = 3 * time.Second   // from accept to a complete HELLO exchange
	PingEvery    = 5 * time.Second   // of silence on a lane
	NoProgress   = 5 * time.Second   // without DATA inside a PULL
	Linger       = 5 * time.Second   // a session's leases live on after lane 0 is lost
	DrainError   = 1 * time.Second   // reading on after ERROR and half-close
	MaxPings     = 3                 // unanswered: the lane is dead

	// FrameStall is for a frame that has begun: all of it on an engine's socket; 64 KiB
	// of it, or the rest, between agents.
	FrameStall = PingEvery * (MaxPings + 1)
)

// LeaseFor is how long a lease or reservation lives for which ACQUIRE, LOAD, RENEW
// or RESERVE asks ms milliseconds: 0 and more than MaxLease ask for MaxLease.
func LeaseFor(ms uint32) time.Duration {
	if d := time.Duration(ms) * time.Millisecond; ms != 0 && d < MaxLease {
		return d
	}
	return MaxLease
}

// Widths of the fixed records inside messages, in bytes.
const (
	wantLen     = 52
	haveLen     = 48
	pushItemLen = 84
	placeLen    = 32
	putItemLen  = 52
	segLen      = 16
	codeLen     = 2
	leaseLen    = 16

	holderLen      = 24
	loadItemLen    = 48
	storeItemLen   = 60
	fillItemLen    = 16
	evictedItemLen = 40
)
