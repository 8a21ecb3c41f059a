package link

import "time"

// Times of the shell; those of the protocol are in wire/link.
const (
	// tickEvery is how often deadlines, keepalive and linger are looked at.
	tickEvery = 50 * time.Millisecond
	// defaultTimeout is a call's deadline where its context has none.
	defaultTimeout = 30 * time.Second
	// dialTimeout bounds connect and, for TLS, its handshake.
	dialTimeout = 3 * time.Second
	// redialMin and redialMax bound the pause between two tries to reach a peer;
	// it doubles from one to the next, and half of it is random.
	redialMin = 100 * time.Millisecond
	redialMax = 5 * time.Second
	// steadyAfter is how long a connection must have stood for the pause to begin
	// anew: one that is lost at once, again and again, is not dialled in a loop.
	steadyAfter = time.Second
	// drainStill is how long a drain waits for requests that do not move: what can
	// still end well moves, and what does not is asked for again elsewhere.
	drainStill = time.Second
	// resumeWait is how long a pull that lost its lanes waits for another.
	resumeWait = 2 * time.Second
	// refusedFor is how long a namespace that the peer refused is answered from
	// memory before it is asked again.
	refusedFor = 5 * time.Second
	// newsFor is how long a refused connection or a duplicate is told of.
	newsFor = time.Minute
	// turnedAwayFor is how long a listed peer counts as refused after its last
	// connection was: longer than the longest pause between two tries.
	turnedAwayFor = 15 * time.Second
)

// Sizes and counts of the shell.
const (
	// defaultLanes bounds the data lanes where Config.Lanes is 0: one a core,
	// and not more than this.
	defaultLanes = 4
	// bounceLen is the buffer between a stream that cannot gather or scatter
	// (TLS, pipes) and the arena: one TLS record. A read of TLS never brings more, and
	// each lane keeps two of them. Four times as much saves no processor time.
	bounceLen = 16 << 10
	// jobQueue is how many reads may wait for a lane's worker before the lane
	// waits for it.
	jobQueue = 8
	// standingHomes and, unless Config.Standing says otherwise, standingBytes bound
	// what is reserved ahead for the small pushes of a session: some batches of 16.
	standingHomes = 64
	standingBytes = 4 << 20
	// sliceBytes is how much of a large batch goes into one request, so that its
	// parts travel by several lanes.
	sliceBytes = 16 << 20
	// quickHash is how many bytes the reader hashes itself in any case: a change
	// of goroutine would take longer.
	quickHash = 32 << 10
	// callFrames is how many frames a caller writes itself, one after the other, before
	// it leaves the rest to the lane's writer.
	callFrames = 16
	// maxAsk is how many bytes a read may bring, at most, for the reader to write
	// the answers itself: requests, not bodies.
	maxAsk = 64 << 10
	// resumeTries is how often a pull goes on by another lane after LANE_LOST.
	resumeTries = 3
	// unixBacklog is how many connections of a Unix socket may wait to be accepted.
	unixBacklog = 64
	// maxTurningAway bounds the refused connections that are waited for while they read
	// why.
	maxTurningAway = 64
	// maxUnlisted bounds the sessions of peers on no list that come from one place,
	// where Config.Quota does not.
	maxUnlisted = 64
	// maxDisplaced bounds the earlier instances that are remembered of a name, and
	// maxPast the names on no list of which any are.
	maxDisplaced = 4
	maxPast      = 64
	// maxDuplicates and maxStrangers bound what is remembered for people.
	maxDuplicates = 64
	maxStrangers  = 64
	// maxClaimed is how much of an unproven name is shown: no name is longer.
	maxClaimed = 63
	// maxInfoNamespaces bounds the namespaces that Peers lists a peer.
	maxInfoNamespaces = 64
)
