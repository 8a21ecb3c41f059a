// Package httpguard decides which HTTP requests a daemon answers at all.
//
// A web page that a user looks at can reach a port of the user's machine, a
// loopback one too, in two ways: by requests of its own, which carry an Origin
// header, and by a name of its own that it lets resolve to this machine (DNS
// rebinding), which shows in the Host header. A Guard refuses both. It also
// checks a bearer token where one is set.
//
// Every HTTP listener of the daemon has one Guard in front of all its paths:
// the operator's (metrics, health, status) and the OpenAI front's (generation,
// and prefills for a partner).
//
// It imports only the standard library. It must never open a connection, read a
// body, or log.
package httpguard
