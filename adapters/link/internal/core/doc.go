// Package core is the link's state machine: sessions, lanes, requests.
//
// Bytes and ticks go in, bytes and finished calls come out. A Session has no
// sockets, no clock, no goroutines and no locks: the caller passes the time,
// asks a Lane where the next bytes shall go (RxWant) or which bytes are to be
// sent (TxWant), moves them, and says how many there were (RxGot, TxDid). Each
// Want is followed by exactly one Got or Did, and between the two the session
// may be used for anything else; memory of a request that ends meanwhile is
// given back when the Got or Did arrives, never before.
//
// The package may import wire, wire/link and the standard library's pure
// parts. It must never import net, os, sync or call time.Now.
package core
