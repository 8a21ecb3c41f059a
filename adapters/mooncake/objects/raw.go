package objects

import (
	"context"
	"strings"

	"meridian/fabric"
	"meridian/wire"
)

// Object reads an object that is not a block of this fabric. Below the prefix are blocks,
// or what pretends to be one, so nothing is read there.
func (s *Store) Object(ctx context.Context, key string, limit uint64) (fabric.Object, error) {
	switch {
	case !s.cfg.Raw:
		return fabric.Object{}, s.error(wire.CodeDenied, "objects of other clients are not read here: set raw = true in [fabric."+s.cfg.Label+"]", nil)
	case key == "":
		return fabric.Object{}, s.error(wire.CodeInvalid, "no key", nil)
	case strings.HasPrefix(key, s.cfg.Prefix+"/"):
		return fabric.Object{}, s.error(wire.CodeDenied, "below "+s.cfg.Prefix+"/ are blocks, which an engine reads: mrdn block get", nil)
	}
	it := make([]fabric.Item, 1)
	ctx, leave := s.begin(ctx, it)
	defer leave()
	if it[0].Err != nil {
		return fabric.Object{}, it[0].Err
	}
	b, o, err := s.client.Get(ctx, key, limit)
	if err != nil {
		it[0].Err = s.said(ctx, err)
	}
	s.after(ctx, it)
	return fabric.Object{B: b, CRC64: o.Verified}, it[0].Err
}
