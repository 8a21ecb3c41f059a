// Package synthetic is the fabric `nixl-synth`: it keeps real bytes in the
// memory of this process, checks them on the way in and on the way out, and
// breaks on demand. It needs no network, no library and no device, so a test
// of two agents can run inside one process, and inside a synctest bubble.
//
// New makes a world with one endpoint; Join adds endpoints to the same world.
// All endpoints see the same blocks. The windows of a table that an endpoint Serves
// are reached by the endpoint's name. Handles count from 1 in a world, in the
// first eight bytes, little-endian; 0 is reserved; a handle is never reused.
// Nothing is evicted: beyond the capacity a push fails with CodeFull.
//
// # Faults
//
// A Fault is a rule: which accesses it hits, and what happens to them. Whether
// the n-th access that a rule matches is hit depends on the seed, the rule's
// place and n alone, so a run of one caller repeats exactly. See Kind for the
// kinds. The fabric tells a caller that breaks the rules of package fabric:
// Stats.Reused counts memory that was changed while an item was loose.
//
// All waiting is done by package time, or by Options.Wait, so a synctest bubble
// or an injected clock decides how long it really takes. The fabric starts
// goroutines only for late accesses with a delay of their own, at most MaxLoose.
//
// It imports the standard library, fabric, wire and blocks/window. It must never be a default
// in production: a route has to name it.
package synthetic
