package engine_test

import (
	"testing"

	"meridian/wire"
	"meridian/wire/link"
)

// A request with the number of one that runs would get the other's END: it is STATE,
// whatever it is, and nothing is done for it.
func TestASecondRequestOfOneNumberDoesNothing(t *testing.T) {
	want := func(num uint16, name string) link.Want {
		return link.Want{NS: num, Flags: link.WantFetch, Key: keyOf(name)}
	}
	for name, second := range map[string]func(num uint16) []byte{
		"PING": func(uint16) []byte { return message(link.TypePing, 3, link.Empty{}) },
		"HAS": func(n uint16) []byte {
			return message(link.TypeHas, 3, link.Has{DeadlineMS: 50, Items: []link.Want{{NS: n, Key: keyOf("a")}}})
		},
		"PUT": func(n uint16) []byte {
			return message(link.TypePut, 3, link.Put{DeadlineMS: 50, Items: []link.PutItem{{NS: n, Len: 10, Key: keyOf("b")}}})
		},
		"BEGIN":  func(uint16) []byte { return message(link.TypeBegin, 3, link.Begin{Req: 1}) },
		"FINISH": func(uint16) []byte { return message(link.TypeFinish, 3, link.Finish{Req: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nil)
			n.host.mu.Lock()
			n.host.gate = make(chan struct{})
			n.host.mu.Unlock()
			r, num := n.numbered(t)
			r.write(message(link.TypeAcquire, 3, link.Acquire{DeadlineMS: 60_000, Items: []link.Want{want(num, "far")}}))
			<-n.host.fetching
			r.write(second(num))
			r.refusedWith(wire.CodeState)
			if st := n.store.Stats(); st.Blocks[0]+st.Blocks[1]+st.Blocks[2] != 0 {
				t.Error("a block was stored")
			}
		})
	}
}
