// Package client talks to a Meridian daemon. This part is the inference engine's
// side of the block socket: it maps the daemon's segments, puts blocks into the
// staging ring and reads leased ones where they lie.
//
//	e, err := client.DialEngine(ctx, path, client.Options{})
//	ns, err := e.Open(ctx, manifest)
//	errs := e.Put(ctx, []client.Block{{NS: ns, Key: key, Tier: wire.OutputCritical, Body: kv}})
//	l, err := e.Acquire(ctx, ns, keys, client.AcquireOptions{Fetch: true})
//	for i := range l.Blocks {
//		b := &l.Blocks[i]       // b.Err first: a batch never fails as a whole for one item
//		err := b.CopyTo(dst[i]) // or use b.Body in place, and b.Check() afterwards
//	}
//	l.Release()
//
// Load is Acquire in parts, in the order asked, for an Engine with Options.Group. It may
// wait for blocks that somebody is about to put, here or at a holder that it names:
//
//	var load client.Load
//	err := e.LoadInto(ctx, &load, ns, keys, client.LoadOptions{Wait: true, Holder: prefill})
//	for first, err := load.Next(ctx, &part); err == nil; first, err = load.Next(ctx, &part) {
//		... part.Blocks are keys[first], keys[first+1], ...
//		part.Release()
//	}
//	load.Close()
//
// # Reading mapped bytes
//
// Body points into memory that the daemon will use again. A timed lease lapses: a
// reader checks the block's generation before and after it copied, which CopyTo
// does, and takes a failed second check for a miss (STALE). A hold lease does not
// lapse while the process lives, for readers that cannot check, such as a device
// that copies by itself; there is a cap on the bytes that one engine may hold.
// A Body may not be touched after Release, and is never written to.
//
// # An engine of several processes
//
// Options.Group makes a connection one session of such an engine: a scheduler leases
// for a rank, a rank puts blocks of the scheduler's request, and each of them gets the
// daemon's advice.
//
// Such an engine may also have the daemon choose a block's tier by its position
// (Block.Auto), keep blocks for a peer (Block.Pin, Engine.Handoff) and go on with a
// request that another daemon has followed (Engine.Resume). Engine.PutInPlace and
// Engine.Reserve have it write bodies into the staging ring itself, and none for a key that is
// stored already.
//
// # What an engine's step may call
//
// Tokens, BeginAsync, FinishAsync and Lease.Release never wait for the daemon, also
// while it is stopped, or another call waits for it. TOKENS that its socket does not
// take are dropped and counted (Engine.Dropped).
//
// # Errors
//
// Every error matches a [wire.Code] by errors.Is. When the daemon goes, each call
// fails with a *ClosedError (LANE_LOST, or the code that the daemon gave), and
// all leases are void; dialling again is the caller's business.
//
// # Goroutines
//
// An Engine is safe for concurrent use. A caller that waits for its answer reads
// the socket itself, for others too, by blocking calls: a context that ends is
// noticed some milliseconds late then. It has one goroutine that reads what comes
// while nobody calls, one for callbacks if there are any, one that sends while the
// socket is full, and a timer while leases are renewed or released lazily.
//
// # Imports
//
// wire, wire/link, internal/unixsend, x/sys; nothing of the daemon. It must never trust a number
// from the socket without holding it against the size of a map.
package client
