package link

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

// pick draws one of some values.
func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// drawLimits draws what a side grants, at the edges of what it may.
func drawLimits(rnd *rand.Rand, block uint32) proto.Limits {
	return proto.Limits{
		Reqs:          pick[uint32](rnd, 1, 2, 3, proto.MaxReqs),
		Items:         pick[uint32](rnd, 1, 2, 3, 7, proto.MaxItems),
		Frame:         pick[uint32](rnd, 4100, 4101, 65_536, proto.MaxData),
		BytesInFlight: pick(rnd, 1, block-1, block, block+1, 2*block, 3*block+1, proto.MaxBytesInFlight),
	}
}

// Whatever a peer grants, its own caller keeps to it: what does not fit in one
// request goes in several, no answer is BUSY, and only a body that can never fit
// is TOO_LARGE, with the limit in the text. In both directions of a session.
func TestACallerKeepsWhateverLimitsItsPeerGrants(t *testing.T) {
	const block = 6000
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			noLeaks(t)
			rnd := rand.New(rand.NewPCG(seed, 9))
			granted := [2]proto.Limits{drawLimits(rnd, block), drawLimits(rnd, block)}
			if seed == 0 {
				granted[1] = proto.Limits{Reqs: 1, Items: 1, Frame: 4100, BytesInFlight: block - 1}
			}
			b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
				c.Limits, c.Peers = granted[1], []PeerConfig{{Name: "agent1", Tenants: []string{"t"}}}
			})
			a := start(t, 1, 10, "", func(c *Config) {
				c.Limits, c.Peers = granted[0], []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
			})
			ready(t, a.Peer("b"))
			ready(t, b.Peer("agent1"))
			ns, err := a.ns.Add(testManifest("t"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.ns.Add(testManifest("t")); err != nil {
				t.Fatal(err)
			}
			keepsLimits(t, rnd, a.Peer("b"), a, b, ns, granted[1].BytesInFlight, block)
			keepsLimits(t, rnd, b.Peer("agent1"), b, a, ns, granted[0].BytesInFlight, block)
			for _, s := range []*side{a, b} {
				if st := s.Stats(); st.Refusals != 0 {
					t.Errorf("%s refused %d lanes; limits %+v", s.cfg.Name, st.Refusals, granted)
				}
				for _, ses := range s.allSessions() {
					ses.mu.Lock()
					busy := ses.core.Stats().Totals.Busy
					ses.mu.Unlock()
					if busy != 0 {
						t.Errorf("%s answered BUSY %d times; limits %+v", s.cfg.Name, busy, granted)
					}
				}
			}
		})
	}
}

// keepsLimits pushes, finds and pulls blocks of every size about a limit.
func keepsLimits(t *testing.T, rnd *rand.Rand, p *Peer, here, there *side, ns wire.Namespace, most uint32, block int) {
	t.Helper()
	ctx := testContext(t)
	sizes := []int{0, 1, block - 1, block, block + 1}
	for range 6 + rnd.IntN(20) {
		sizes = append(sizes, rnd.IntN(block+1))
	}
	fits := func(n int) bool { return n <= int(most) }
	refused := func(what string, i int, err error) {
		t.Helper()
		if !errors.Is(err, wire.CodeTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(most)) {
			t.Errorf("%s of %d bytes, limit %d: %v", what, sizes[i], most, err)
		}
	}
	push := make([]fabric.Item, len(sizes))
	for i, n := range sizes {
		k := wire.KeyOf(ns, fmt.Appendf(nil, "%s %d", here.cfg.Name, i))
		push[i] = fabric.Item{NS: ns, Key: k, Tier: wire.OutputCritical, M: payload(t, wire.OutputCritical, randomBody(n))}
	}
	p.Push(ctx, push)
	for i, n := range sizes {
		if !fits(n) {
			refused("push", i, push[i].Err)
			there.store.Add(ns, push[i].Key, wire.OutputCritical, push[i].M.B[wire.HeaderLen:])
		} else if push[i].Err != nil {
			t.Errorf("push of %d bytes, limit %d: %v", n, most, push[i].Err)
		}
	}
	byRef := rnd.IntN(2) == 0
	pull := make([]fabric.Item, len(sizes))
	for i := range pull {
		pull[i] = fabric.Item{NS: ns, Key: push[i].Key}
	}
	p.Find(ctx, pull)
	for i, n := range sizes {
		if pull[i].Err != nil || int(pull[i].Head.BodyLen) != n {
			t.Errorf("find of %d bytes: %v, %+v", n, pull[i].Err, pull[i].Head)
		}
		if !byRef {
			pull[i].H = fabric.Handle{}
		}
		pull[i].M.B = make([]byte, len(push[i].M.B)+rnd.IntN(2)*block) // room beyond the body does not count against it
	}
	p.Pull(ctx, pull)
	for i, n := range sizes {
		switch {
		case !fits(n):
			refused("pull", i, pull[i].Err)
		case pull[i].Err != nil || !bytes.Equal(pull[i].M.B[:wire.HeaderLen+n], push[i].M.B):
			t.Errorf("pull of %d bytes, limit %d: %v", n, most, pull[i].Err)
		}
	}
}
