package link

import "testing"

var handoffKind = newKind[Handoff](TypeHandoff, sample{"for 20 s", Frame{Req: 69}, Handoff{Req: 7, KeepMS: 20000}})

func TestHandoff(t *testing.T) { handoffKind.check(t) }
