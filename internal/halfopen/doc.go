// Package halfopen knows in which order connections that have not yet proved who
// they are make room for others.
//
// Anybody who can reach a listener can open connections and say nothing. How many
// there may be, in all and of one source, is the listener's to count. Where a
// newcomer is above a limit, the oldest silent connection of its source makes
// room, or where all places are taken, that of the source which has most. Silent
// is one that has not sent a valid message, else one that has said nothing more
// for Patience, or rests after its work. Where none is silent the newcomer is refused.
//
// The package has no sockets, goroutines or clock: the listener tells what
// happens and when, and closes the connection that it is told to close. It may
// import the standard library only.
package halfopen
