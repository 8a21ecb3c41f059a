// Package link connects agents: MRDN LINK v1 over TCP, TLS 1.3 and Unix
// sockets.
//
// A Node listens, dials its configured peers and keeps them connected. A Peer
// is a fabric: Push, Pull and Find work on items named by namespace and key, or
// by reference. What a peer asks for is served from the block store, and what
// it pushes is committed there.
//
// # Sessions and lanes
//
// A session belongs to one incarnation of one peer. Its lane 0 carries control,
// lanes 1..n carry PULL, PUSH and their DATA. A session is symmetric: either
// side may ask over it. When two agents dial each other there are two sessions;
// each side asks over the one that it dialled, and falls back to the accepted
// one while its own is down. So a one-way reachable peer works in both
// directions, and no tie has to be broken.
//
// A lane begins with four HELLOs: the dialler's and the acceptor's without proof,
// then both again with it, the dialler's first. A session belongs to a proven name
// and an agent id. Its state of an earlier incarnation is dropped as soon as a
// later one has proved itself; one that was dropped so and comes back is a second
// live daemon, which is refused and reported (claim.go).
//
// Connections that have proved nothing yet have places by where they come from
// (accept.go). A refusal is told to the peer, logged, counted, and kept for
// an operator who asks about the peer (refusal.go).
//
// # Structure
//
// All decisions are in internal/core, a state machine without sockets, clock,
// goroutines or locks. This package is the shell round it: sockets, TLS,
// credentials, one lock a session, and a reader, a writer and a worker a lane.
// lane.go draws the way of the bytes.
//
// # Imports
//
// The package may import fabric, wire, wire/link, blocks and x/sys. It must
// never import another adapter, agent or scheduler. It must never serve a byte
// to a peer that has not proved the tenant, report a block that was not
// verified, or touch memory of a call that has returned.
package link
