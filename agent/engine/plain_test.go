package engine_test

import (
	"testing"

	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// withFeatures is HELLO of an engine that offers features beside LOCAL.
func withFeatures(features uint64) []byte {
	return link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal | features})
}

// plain is a raw engine behind HELLOs with PLAIN.
func (n *node) plain(t *testing.T) *raw {
	t.Helper()
	r := n.raw(t)
	r.write(withFeatures(link.FeaturePlain))
	h, err := link.Parse[link.Hello](r.next().p)
	if err != nil || h.Features&link.FeaturePlain == 0 {
		t.Fatalf("the agent's features %#x, %v", h.Features, err)
	}
	r.split.Plain = true
	return r
}

func plainMessage[M link.Message](typ link.Type, req uint64, m M) []byte {
	return link.AppendLocal(nil, true, link.Frame{Type: typ, Req: req}, m)
}

func TestWithPlainNeitherSideWritesChecksums(t *testing.T) {
	n := startNode(t, nil)
	r := n.plain(t)
	r.write(plainMessage(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	for got := r.next(); ; got = r.next() {
		if got.f.Type == link.TypeEnd {
			if e := r.end(got, 1); e.Code != wire.CodeOK {
				t.Fatal(e.Code, e.Text)
			}
			break
		}
	}
	key := keyOf("plain")
	r.write(append(plainMessage(link.TypeHas, 3, link.Has{DeadlineMS: 1000, Items: []link.Want{{Key: key}}}),
		plainMessage(link.TypeAcquire, 5, link.Acquire{DeadlineMS: 1000, Items: []link.Want{{Key: key}}})...))
	for i, want := range []link.Type{link.TypeTable, link.TypeEnd, link.TypeAcquired, link.TypeEnd} {
		if got := r.next(); got.f.Type != want {
			t.Fatalf("answer %d is %s, want %s", i, got.f.Type, want)
		}
	}
	r.write(plainMessage(77, 7, link.Empty{}))
	if e := r.end(r.next(), 7); e.Code != wire.CodeUnsupported {
		t.Errorf("an unknown type: %s", e.Code)
	}
}

func TestWithPlainAChecksumIsCRC(t *testing.T) {
	n := startNode(t, nil)
	for name, b := range map[string][]byte{
		"of both":        message(link.TypePing, 1, link.Empty{}),
		"of the header":  append(message(link.TypePing, 1, link.Empty{})[:link.FrameLen], 0, 0, 0, 0),
		"of the payload": append(plainMessage(link.TypePing, 1, link.Empty{})[:link.FrameLen], 1, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r := n.plain(t)
			r.write(b)
			r.refusedWith(wire.CodeCRC) // the ERROR has no checksums either: r reads it as plain
		})
	}
}

// Without PLAIN in the engine's HELLO a frame without checksums is what it was.
func TestWithoutPlainAFrameWithoutChecksumsIsCRC(t *testing.T) {
	n := startNode(t, nil)
	r := n.greeted(t)
	r.write(plainMessage(link.TypePing, 1, link.Empty{}))
	r.refusedWith(wire.CodeCRC)
}

// An ERROR in place of the agent's HELLO has its checksums: r reads it as any.
func TestWhoIsTurnedAwayAtHelloReadsChecksums(t *testing.T) {
	n := startNode(t, nil)
	r := n.raw(t)
	r.write(link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 1, Max: 1, Lane: 1, Features: link.FeatureLocal | link.FeaturePlain}))
	r.refusedWith(wire.CodeState)

	r = n.raw(t)
	r.write(link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 2, Max: 2, Features: link.FeatureLocal | link.FeaturePlain}))
	r.refusedWith(wire.CodeLinkVersion)

	full := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 1 })
	late := full.plain(t)
	full.open(t)
	late.write(plainMessage(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	late.refusedWith(wire.CodeTooMany) // behind HELLO: without
}
