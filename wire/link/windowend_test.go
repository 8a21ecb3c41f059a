package link

import (
	"testing"

	"meridian/wire"
)

var windowEndKind = newKind[WindowEnd](TypeWindowEnd,
	sample{"commit", Frame{Req: 55}, WindowEnd{Addr: 1 << 46, Commit: true, Items: []PutItem{{NS: 1, Tier: wire.ThinkActive, Len: 4096, Off: 64, Key: fill[wire.Key](3), Req: 4}}}},
	sample{"throw away", Frame{Req: 57}, WindowEnd{Addr: 1 << 46}},
)

func TestWindowEnd(t *testing.T) { windowEndKind.check(t) }

func TestWindowEndRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := windowEndKind.payload(0)
	windowEndKind.refuse(t, "commit 2", with(p, 8, 2), wire.CodeInvalid, 8)
	windowEndKind.refuse(t, "reserved", with(p, 11, 1), wire.CodeInvalid, 11)
	windowEndKind.refuse(t, "tier 3", with(p, 16+2, 3), wire.CodeInvalid, 18)
}
