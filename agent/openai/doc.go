// Package openai is the OpenAI-compatible HTTP front of a node, and the client
// of the same API.
//
// A Front is an http.Handler over a Backend, which generates. It reads and
// checks requests, matches stop strings, keeps characters whole, frames answers
// as JSON or as server-sent events, and bounds what a client can hold: requests
// at a time, bytes of a body and of all that are read together (bodies.go), time of a
// write. Server wraps it, or any handler,
// with bounds of connections: their number, the time of a head and of a body.
// Client speaks the same API, and Remote is a Backend over it: another node's
// front.
//
// What is not built is refused by the name of its parameter, with status 400:
// it is never ignored in silence. Fields that no server of the API is known to
// have are named in the answer, as "ignored" of its member "meridian".
//
// How a request goes:
//
//  1. ServeHTTP (front.go) checks Host, Origin and the bearer token.
//  2. readBody and parse (read.go, request.go) make a Request, or an Error that
//     names the parameter.
//  3. enter (stats.go) takes one of MaxRequests places, or the answer is 429.
//  4. Backend.Generate runs in the handler's goroutine. Each Token goes through
//     a textCut (text.go), which holds back half characters and what may
//     become a stop string, to an answer (answer.go), which is an
//     object at the end or a chunk for each piece.
//  5. A stream that is silent for BeatEvery gets a comment (beats, front.go).
//  6. An error before the first byte of an answer is a status and an error
//     object; after it, an event that holds the error object, and the stream
//     ends without [DONE]. The Python client raises openai.APIError on that.
//
// It imports the standard library, internal/connshare, halfopen, httpguard and
// loglimit. It must never import
// another room of agent, open a connection other than the Client's, or start a
// goroutine that outlives its request.
package openai
