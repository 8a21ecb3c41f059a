package link

import (
	"testing"

	"meridian/wire"
)

var hasKind = newKind[Has](TypeHas,
	sample{"chain", Frame{Req: 9}, Has{DeadlineMS: 250, Items: []Want{{NS: 1, Key: fill[wire.Key](1)}, {NS: 1, Key: fill[wire.Key](2)}, {NS: 2, Key: fill[wire.Key](3)}}}},
	sample{"none", Frame{Req: 11}, Has{DeadlineMS: 1}},
)

var statKind = newKind[Has](TypeStat,
	sample{"by reference", Frame{Req: 13}, Has{DeadlineMS: 1000, Items: []Want{{NS: 3, Slot: 77, Gen: 5}}}},
)

func TestHas(t *testing.T) { hasKind.check(t) }

func TestStat(t *testing.T) { statKind.check(t) }
