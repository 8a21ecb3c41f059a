// Package connshare gives the connections of an HTTP listener to who connects by
// shares: the caller says of each connection who may have it. One for which there is
// no place is told so, with status 503 and the reason, and is closed.
//
// It imports the standard library only. It must never wait for a connection that was
// refused before it accepts the next one.
package connshare
