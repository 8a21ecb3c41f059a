// Package transfer moves blocks between this daemon's arena and the fabrics: it
// loads what an engine misses, copies away what went cold, and accounts for both.
//
//	transfer.go  what the room is given, start and end
//	holders.go   who may have a block, and who of them is slow to answer
//	find.go      asks all holders at once, and waits for none of them for long
//	flight.go    one load for all who ask for the same block at once
//	turn.go      loads of one asker are served in the order in which they came
//	refer.go     a block whose holder the asker names: who that is, asked first and alone
//	load.go      shares out what is missing over all holders and their lanes
//	pull.go      one batch: reserve, pull, check, commit
//	offload.go   one queue a destination for what went cold
//	bridge.go    what a peer brings and that goes on: room, pins, and where it went
//	forward.go   the ladder by which it does; one line a destination
//	through.go   the same while it comes, to a fabric that holds it back until it is checked
//	look.go      what a peer asks for and that is looked for in other fabrics
//	testroute.go a block of the daemon's own over the path of a route
//	quiet.go     slots that a fabric may still touch
//	account.go   counts every call on a fabric, once; log.go remembers the last ones
//
// # How a load runs
//
//  1. fetch     blocks that another call is loading already are waited for
//  2. ask       every holder that may know the namespace is asked at the same time
//  3. share out in turn: the first load of an asker that has something to pull at
//     a holder pulls, later ones get what it leaves idle. A holder that answers
//     gets batches at once, as many as it has lanes, and one more that is reserved
//     while another is checked and committed; a holder that is done takes the next
//  4. pull      the fabric writes header and body into reserved slots
//  5. commit    what is right becomes visible, the rest is aborted
//  6. heal      a block that failed is asked for again, of another holder first
//
// A holder that has not answered within Config.FindWithin is not waited for, and
// one whose pull stands still loses its batch to a holder that has the same
// blocks. Both are then left alone, and asked again in the background at growing
// intervals until they answer. What arrives late is still used as long as the load
// runs.
//
// # Rules
//
// The package may import fabric, blocks, wire and OpenTelemetry's trace API. It
// knows no adapter: what it needs to know about a fabric it asks by the
// interfaces of package fabric. It never waits for a fabric beyond a bound, with
// one exception that memory demands: slots that belong to an engine's own request
// are given back to that engine only when the fabric's call has returned. All
// waiting is done by package time, so a synctest bubble decides how long it takes.
package transfer
