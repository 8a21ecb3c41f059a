package link

import (
	"testing"
)

var releaseKind = newKind[Release](TypeRelease,
	sample{"two", Frame{Req: 43}, Release{Leases: [][16]byte{fill[[16]byte](1), fill[[16]byte](0xf0)}}},
	sample{"none", Frame{Req: 45}, Release{}},
)

func TestRelease(t *testing.T) { releaseKind.check(t) }
