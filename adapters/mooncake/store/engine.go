package store

import (
	"context"

	"meridian/adapters/mooncake/engine"
)

// Engine moves bytes from and to memory of peers. Segment is the name that a peer's
// memory is opened by, address is one that the peer gave out.
type Engine interface {
	Read(ctx context.Context, segment string, address uint64, to []byte) error
	Write(ctx context.Context, segment string, address uint64, from []byte) error
}

// Over is the Engine of an initiator.
func Over(in *engine.Initiator) Engine { return over{in} }

type over struct{ in *engine.Initiator }

func (o over) Read(ctx context.Context, segment string, address uint64, to []byte) error {
	return o.move(ctx, segment, address, to, (*engine.Segment).Read)
}

func (o over) Write(ctx context.Context, segment string, address uint64, from []byte) error {
	return o.move(ctx, segment, address, from, (*engine.Segment).Write)
}

func (o over) move(ctx context.Context, segment string, address uint64, b []byte, by func(*engine.Segment, context.Context, []engine.Op)) error {
	s, err := o.in.Open(ctx, segment)
	if err != nil {
		return err
	}
	ops := []engine.Op{{Addr: address, B: b}}
	by(s, ctx, ops)
	return ops[0].Err
}
