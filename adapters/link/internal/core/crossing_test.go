package core

import (
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// END CANCELLED, for a CANCEL that found nothing any more, may come while the
// bodies of the request are still being hashed: it is ignored as it is later.
// Any other answer is not.
func TestAnEndThatCrossedACancelIsIgnored(t *testing.T) {
	for typ, want := range map[proto.Type]wire.Code{
		proto.TypeEnd: wire.CodeOK, proto.TypeTable: wire.CodeState, proto.TypeGrant: wire.CodeState,
	} {
		r := newRig(t, 2, proto.Limits{})
		r.quiet = true
		num := r.open(1)
		r.put(0, 300, "x")
		r.held = true
		c := r.pull(1, proto.ClassUrgent, num, 300, "x")
		id := c.r.id
		r.run()
		if !c.r.ended || c.over {
			t.Fatalf("the pull has not ended, or is not held: %v", c.over)
		}
		idx := c.r.lane.idx
		r.feed(idx, frameOf(typ, id, map[proto.Type]proto.Message{
			proto.TypeEnd: proto.End{Code: wire.CodeCancelled}, proto.TypeTable: proto.Table{Items: make([]proto.Have, 1)},
			proto.TypeGrant: proto.Grant{Status: make([]wire.Code, 1)},
		}[typ]))
		code, _, _ := r.said(idx)
		if code != want {
			t.Errorf("%v after END: %v, want %v", typ, code, want)
		}
		r.held = false
		r.work(1)
		wantCodes(t, c, wire.CodeOK)
		r.lose(idx)
		r.settled()
	}
}
