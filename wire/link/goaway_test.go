package link

import (
	"testing"

	"meridian/wire"
)

var goAwayKind = newKind[GoAway](TypeGoAway,
	sample{"draining", Frame{}, GoAway{MS: 10000, Code: wire.CodeDraining, Text: "upgrade"}},
	sample{"at once", Frame{}, GoAway{}},
)

func TestGoAway(t *testing.T) { goAwayKind.check(t) }
