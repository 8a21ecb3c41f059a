// Package quota has the words and the arithmetic of shares: how much of what a
// daemon has one peer, one tenant, one engine or one source address may hold.
//
// A Book keeps accounts. A room that hands something out calls Take first and
// gives the Hold back when the thing is free again; Give counts once, however
// often it is called. A refusal is an *Error: it says what was asked for, who
// holds how much, the limit, and the configuration key that sets the limit.
//
// One room counts by itself and uses the words only: blocks, whose core is
// single-threaded and knows the bytes of a slot.
//
// The package may import the standard library and meridian/wire. It has no
// clock, starts no goroutine, logs nothing and never waits.
package quota
