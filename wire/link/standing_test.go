package link

import (
	"testing"

	"meridian/wire"
)

var standingKind = newKind[Standing](TypeStanding,
	sample{"64 homes of 64 KiB", Frame{}, Standing{NS: 3, Tier: wire.OutputCritical, N: 64, Len: 64 << 10}},
	sample{"none any more", Frame{}, Standing{NS: 65535}},
)

func TestStanding(t *testing.T) { standingKind.check(t) }

func TestStandingRefusesWhatVersion1DoesNotDefine(t *testing.T) {
	p := standingKind.payload(0)
	standingKind.refuse(t, "tier 3", with(p, 2, 3), wire.CodeInvalid, 2)
	standingKind.refuse(t, "reserved", with(p, 3, 1), wire.CodeInvalid, 3)
	standingKind.refuse(t, "4097 homes", with(with(p, 4, 1), 5, 16), wire.CodeLength, 4)
}
