package link

import (
	"testing"

	"meridian/wire"
)

var grantKind = newKind[Grant](TypeGrant,
	sample{"mixed", Frame{Req: 31}, Grant{Status: []wire.Code{wire.CodeOK, wire.CodeExists, wire.CodeFull, 65535}}},
	sample{"none", Frame{Req: 33}, Grant{}},
)

func TestGrant(t *testing.T) { grantKind.check(t) }
