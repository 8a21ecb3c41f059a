package core

import (
	"time"

	proto "meridian/wire/link"
)

// Times that the protocol leaves to a side.
const (
	// WriteStall is how long a lane may have bytes to send and send none: as
	// long as pings may go unanswered.
	WriteStall = proto.FrameStall
	// pinSlack is added to a request's deadline for the pins and reservations
	// that serve it, so that the store's own expiry comes last.
	pinSlack = 5 * time.Second
	// cancelSlack is added to a call's deadline before it is taken back: the
	// holder's own END DEADLINE, which says more, should win on a short path.
	cancelSlack = 50 * time.Millisecond
	// homeLife is how long a home waits for a push in one flight, and homeSlack what
	// its reservation lasts beyond: as long as such a push takes.
	homeLife  = 10 * time.Second
	homeSlack = 50 * time.Second
	// stockRest is how long a store that had no homes is left alone.
	stockRest = time.Second
	// busyRetry is the advice in END BUSY.
	busyRetry = 20 * time.Millisecond
)

// What counts as progress, in bytes; docs/spec/link-v1.md, section 7.
const (
	// minProgress is what must move in NoProgress, if not all that is left: a byte
	// a second is none.
	minProgress = 64 << 10
	// maxPassed is what round robin may let pass before a request comes to its
	// turn: a frame for each of the requests that a peer may have at once.
	maxPassed = proto.MaxReqs * proto.MaxChunk
)

// minUnread is how many answers to OPEN, PING, CANCEL, ABORT, RENEW and RELEASE
// may wait for a peer that was granted few requests.
const minUnread = 32

// Internal bounds, in bytes.
const (
	// idleRead is what an idle lane reads at once: some control frames, or a block of
	// 4 KiB with all its frames. Body bytes that come along are copied.
	idleRead = 4864 // a size of the allocator
	// scratchLen bounds a read of a long control frame.
	scratchLen = 64 << 10
	// hashStep is how much of a long body is hashed at once: it is then still
	// in the second-level cache.
	hashStep = 128 << 10
	// fewItems is how many items are compared one by one to find two of a key.
	fewItems = 32
	// maxSpare is how many runs of finished jobs a lane keeps to use their memory
	// again: as many as the shell lets wait.
	maxSpare = 8
	// busyQueue is how many bytes of unsent answers make new requests BUSY, and
	// maxQueue how many end the lane: a peer that never reads its answers.
	busyQueue = 4 << 20
	maxQueue  = 16 << 20
)

// DefaultLimits are what a side grants unless it is told otherwise.
var DefaultLimits = proto.Limits{
	Reqs: proto.MaxReqs, Items: proto.MaxItems, Frame: proto.MaxData,
	BytesInFlight: proto.MaxBytesInFlight, LingerMS: uint32(proto.Linger / time.Millisecond),
}
