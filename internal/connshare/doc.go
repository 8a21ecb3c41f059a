// Package connshare gives the connections of an HTTP listener to who connects by
// shares: the caller says of each connection who may have it. Where all places are
// taken, a connection for which no handler runs makes room: the oldest that has not
// sent a whole head yet, else the oldest that is idle, or has not sent the body that its
// head announced for half a second. It is one of the newcomer's source
// where that has its share, else of the source that has most. Where a handler runs for
// each, the newcomer is told so, with status 503 and the reason, and is closed. Of those
// that are told, too, a silent one makes room.
//
// It imports the standard library and internal/halfopen only. It must never wait for a
// connection that was refused before it accepts the next one.
package connshare
