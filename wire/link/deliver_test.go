package link

import (
	"testing"

	"meridian/wire"
)

// DELIVER has the fields of PUSH.
var deliverKind = newKind[Push](TypeDeliver,
	sample{"one block", Frame{Req: 35, Class: ClassSoon}, Push{DeadlineMS: 700, Items: []PushItem{
		{NS: 4, Key: fill[wire.Key](9), Have: Have{Tier: wire.ThinkActive, Att: wire.AttestProducer, Len: 5, Head: fill[[32]byte](8)}}}}},
	sample{"none", Frame{Req: 37}, Push{}},
)

func TestDeliver(t *testing.T) { deliverKind.check(t) }
