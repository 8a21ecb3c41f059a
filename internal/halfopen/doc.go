// Package halfopen keeps the places of connections that a listener has accepted
// and that have not yet proved who they are.
//
// Anybody who can reach a listener can open connections and say nothing. So the
// places are shared by source: one source has at most its share, and where all
// places are taken the source that holds the most gives one up. The connection
// that goes is the oldest silent one: one that has not sent a valid message, else
// one that has said nothing more for Patience. A newcomer is refused only where no
// silent connection can make room for it. The refusal names the limit, its
// configuration key and the source.
//
// The package has no sockets, goroutines or clock: the listener tells what
// happens and when, and closes the connection that it is told to close. It may import the
// standard library only.
package halfopen
