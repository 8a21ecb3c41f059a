package fabric

import (
	"context"

	"meridian/wire"
)

// Hop is who brings a block to this daemon, or asks it for one.
type Hop struct {
	Fabric string // registry name, without the peer
	Peer   string
	Hops   int // daemons that it came through before, as far as the fabric tells
}

// Name is the registry name of the peer.
func (h Hop) Name() string { return PeerName(h.Fabric, h.Peer) }

// Brought is a block that a peer brings, before it is published.
type Brought struct {
	NS    wire.Namespace
	Key   wire.Key
	Tier  wire.Tier
	Bytes uint64 // of the body
}

// Gateway is what a daemon lends to a fabric that serves its peers by itself: what they
// bring goes on to other fabrics, and what they ask for is looked for there, as the
// routes say.
type Gateway interface {
	// Bring is asked before a block is published. It never waits. An error refuses the
	// block: BUSY while what waits to be sent on has its share, TOO_LARGE where the block
	// would never fit.
	Bring(from Hop, b Brought) (Passage, error)
	// Looks reports whether Look may bring anything to a peer. It never waits.
	Looks(by Hop) bool
	// Look makes blocks present that a peer asks for and that are not here, where the
	// routes allow to look elsewhere, and returns when that has ended or ctx has. It
	// says nothing: the caller looks at its store again.
	Look(ctx context.Context, by Hop, ns wire.Namespace, keys []wire.Key)
}

// Passage is a block that a Gateway has let in.
type Passage interface {
	// Through may be asked once, when the block has a home: whether it goes on while its
	// bytes come. It never waits. nil: it is stored first.
	Through(c Coming) *Growing
	// End is called once, with what became of the publishing: nil and EXISTS send the block
	// on. It never waits.
	End(err error)
}

// Stays is the passage of a block that does not go on.
type Stays struct{}

// Through implements Passage.
func (Stays) Through(Coming) *Growing { return nil }

// End implements Passage.
func (Stays) End(error) {}

// NoGateway sends nothing on and looks nowhere.
type NoGateway struct{}

// Bring implements Gateway.
func (NoGateway) Bring(Hop, Brought) (Passage, error) { return Stays{}, nil }

// Looks implements Gateway.
func (NoGateway) Looks(Hop) bool { return false }

// Look implements Gateway.
func (NoGateway) Look(context.Context, Hop, wire.Namespace, []wire.Key) {}

type hopsKey struct{}

// WithHops says of calls with the context how many daemons their blocks, or their
// question, have come through, this one too.
func WithHops(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, hopsKey{}, n)
}

// HopsOf is what WithHops set; 0 for what begins here.
func HopsOf(ctx context.Context) int {
	n, _ := ctx.Value(hopsKey{}).(int)
	return n
}
