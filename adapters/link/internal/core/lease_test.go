package core

import (
	"testing"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// A peer that gives a lease back, or shortens it, while the bodies that it covers
// are on their way does not take the pins away from under them.
func TestALeaseOutlivesThePullThatItCameWith(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(lease [16]byte) []byte
		kept bool
	}{
		{"RELEASE", func(l [16]byte) []byte {
			return frameOf(proto.TypeRelease, 901, proto.Release{Leases: [][16]byte{{9}, l, l}})
		}, false},
		{"RENEW", func(l [16]byte) []byte { return frameOf(proto.TypeRenew, 901, proto.Renew{Lease: l, MS: 1}) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, proto.Limits{})
			r.quiet = true
			num := r.open(0)
			r.put(1, 600_000, "x")
			call := &Call{Type: proto.TypePull, Timeout: 30 * time.Second, LeaseFor: 5 * time.Second,
				Items: []Item{{NS: num, Flags: proto.WantKeepLease, Key: r.key("x"), Room: make([]byte, 600_000)}}}
			r.end[0].Start(r.now, call)
			r.move(0, 1, 1<<20)
			r.move(1, 1, 100_000) // TABLE, and the beginning of DATA
			h := r.store[1]
			if call.Lease == ([16]byte{}) || h.leases[call.Lease] == nil {
				t.Fatalf("no lease: %x", call.Lease)
			}
			h.renewed = map[Lease]time.Duration{}
			r.feed(0, c.send(call.Lease))
			if code, errors, ends := r.said(0); errors != 0 || ends != 1 {
				t.Fatalf("ERROR %v, %d END", code, ends)
			}
			if h.leases[call.Lease] == nil || len(h.renewed) != 0 {
				t.Fatalf("the pins are gone, or lapse, in the middle of the transfer: %v", h.renewed)
			}
			r.run()
			wantCodes(t, call, wire.CodeOK)
			if kept := h.leases[call.Lease] != nil; kept != c.kept {
				t.Errorf("after END the lease lives: %v, want %v", kept, c.kept)
			}
			if c.kept && h.renewed[call.Lease] != time.Millisecond {
				t.Errorf("it lives for %v, want what RENEW said", h.renewed[call.Lease])
			}
		})
	}
}
