package link

import (
	"testing"

	"meridian/wire"
)

var acquireKind = newKind[Acquire](TypeAcquire,
	sample{"timed", Frame{Req: 5}, Acquire{DeadlineMS: 1000, LeaseMS: 5000, Items: []Want{{NS: 1, Flags: WantFetch, Key: fill[wire.Key](1)}}}},
	sample{"held", Frame{Req: 7}, Acquire{DeadlineMS: 1000, Hold: true, Items: []Want{{NS: 1, Flags: WantFetch | WantTransient, Key: fill[wire.Key](1)}, {NS: 1, Slot: 4, Gen: 6}}}},
	sample{"none", Frame{Req: 9}, Acquire{}},
)

func TestAcquire(t *testing.T) { acquireKind.check(t) }

func TestAcquireRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := acquireKind.payload(0)
	acquireKind.refuse(t, "hold 2", with(p, 8, 2), wire.CodeInvalid, 8)
	acquireKind.refuse(t, "reserved", with(p, 9, 1), wire.CodeInvalid, 9)
}
