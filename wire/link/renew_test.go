package link

import (
	"testing"
)

var renewKind = newKind[Renew](TypeRenew,
	sample{"30 s", Frame{Req: 41}, Renew{Lease: fill[[16]byte](0x70), MS: 30000}},
)

func TestRenew(t *testing.T) { renewKind.check(t) }
