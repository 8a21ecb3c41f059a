// Package engine serves the block socket of the node's inference engines: one
// Unix stream socket that speaks the frames of [meridian/wire/link] with
// feature LOCAL.
//
// # A session
//
// An engine connects, its credentials (SO_PEERCRED) are compared with the allow
// list, and HELLO is exchanged within link.HelloTimeout. From then on:
//
//	OPEN     a manifest becomes a namespace number; the tenant must be allowed
//	MAP      descriptors, sent before the first answer that needs them: the
//	         tenant's segments and generation tables read-only; and, when the
//	         engine asks for it before its first PUT, its staging ring read-write
//	PUT      blocks that lie in the staging ring are copied, hashed, published
//	HAS      which blocks exist; with WantFetch also at other holders
//	ACQUIRE  leases on mapped bytes; with WantFetch what is missing is pulled
//	LOAD     the same in parts, in the order asked; it may wait for blocks, and name
//	         who has them (load.go has the way of one)
//	RENEW, RELEASE, PING, CANCEL
//	BEGIN, TOKENS, FINISH   the token stream, one scheduler.Core a group; PHASE
//	         comes back as advice
//
// and in a group, which several sessions of one engine are:
//
//	PUTAT    PUT with positions in the request and pins
//	RESERVE, FILL   room in the arena first, for keys that are not there; then
//	         bytes from the ring, copied, hashed, published
//	RESUME   BEGIN with what was decoded already
//	HANDOFF  FINISH that keeps the request's blocks for a peer
//	EVICTED  comes as advice: blocks of running requests that went
//	PROCESS  a pidfd, for hold leases of a process that the daemon cannot see
//
// Every request with a number gets exactly one END, after its answer. TOKENS and
// CANCEL get none of their own. END of PUT carries a status an item and, in its
// text, what is wrong with the first item that is refused. A refusal for a limit has a text with the value and the
// limit, one of a foreign tenant has none. A TABLE entry of HAS with generation 0 is
// held elsewhere, not here. A request whose number is 0, or even, is a fault of the
// session.
//
// # A group
//
// Sessions of one user that say the same agent and incarnation in HELLO, with feature
// GROUP, are one engine: a scheduler and its ranks. A group may have a secret, which
// later sessions must bring. A session without GROUP is a group by itself. The
// namespaces and their numbers, timed leases, generation requests, pins and the share
// of every quota are the group's; the ring, hold leases, reservations and requests in
// flight are a session's. A session that goes takes what is its own with it, the last
// one all. A group has one owner in the store and each session another one of the same
// family, so that any session renews and releases the leases of all.
//
// # Advice
//
// PHASE, PHASEAT and EVICTED go to every session of a group and wait for none: see
// advice.go. Nothing that one session does not read holds another one up.
//
// # Descriptors from an engine
//
// Of a session with GROUP at most two descriptors are taken with one read, and closed
// at the end of the frame that they came with, unless that is PROCESS. Of others the
// kernel takes none.
//
// # Life of a block
//
// A PUT item that names a request follows it: an item of tier OutputCritical
// (prompt, output) keeps that tier until the request completes, one of tier
// ThinkActive until it stops thinking; both are ThinkComplete afterwards. Blocks
// that come later than that are published as ThinkComplete. An item of tier AUTO is
// what its position says by the time at which it is published. The end of the group
// aborts its requests.
//
// The store tells which of a running request's blocks it evicts, by notices; one
// goroutine of the server takes them to the groups. A pin keeps a block from that. It is
// of the group's owner, in the set of its request, and made in the moment of publication.
//
// Room of RESERVE is of the session's owner. The session remembers what each item is; the
// store alone decides whether the room is still there.
//
// # What a LOAD waits for
//
// An item with WAIT that is not here is parked: the store tells the server of what is
// published while anybody waits (wait.go), and other holders are asked again, for all
// LOADs together and in growing pauses (ask.go). A parked LOAD has no goroutine, does
// not count as a request in flight, and is bounded by group. A block that is evicted
// before its part has its lease is waited for again. Whatever ends a LOAD early ends
// it at once, but that a fetch which runs is waited for: it may write to slots of the
// engine's own.
//
// LOADs and ACQUIREs that fetch take turns in the order in which the session's reader
// got them (Host.TakeTurn).
//
// # The end of a session
//
// However it ends, in this order: requests in flight are cancelled and waited
// for, so that nothing copies from a ring that is gone; then Store.Drop returns
// reservations, leases and ring, once; then the descriptor is closed. Held
// blocks stay quarantined in the store until the process is gone. The process is who
// connected, found when the connection came: when it ends, its hold leases do, although a
// child of it may have the socket and go on with the session.
//
// # Goroutines
//
// One a session reads its descriptor with blocking system calls and answers in
// place: the runtime's poller would cost more than the whole request. A PUT
// above inlinePut bytes, a fetch and a remote HAS get one of their own, at most
// Limits.Reqs together. One more steps a session's LOADs while any has something to
// do, and one of the server asks holders while anything is asked for. There is no ticking: the scheduler's next deadline arms a
// timer.
//
// # Imports
//
// wire, wire/link, blocks, scheduler, x/sys. It must never write into a segment
// other than by Store, hand out a descriptor of another tenant, or trust a
// number that came from the socket.
package engine
