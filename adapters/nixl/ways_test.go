package nixl

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// What UCX prints is what is told: of each item, of the peer, and of a probe.
func TestTheTransportThatUCXChoseIsTold(t *testing.T) {
	for tls, want := range map[string]struct{ write, read, both string }{
		"tcp":     {"tcp", "tcp-emulated", "tcp+tcp-emulated"},
		"tcp,cma": {"cma", "cma", "cma"},
	} {
		t.Run(tls, func(t *testing.T) {
			far := newLender(t, "far", 1<<20)
			cfg := config(t, PeerConfig{"far", far.addr})
			cfg.Helper.Environment = []string{"UCX_TLS=" + tls}
			n := newNode(t, cfg)
			lends(t, n, "far")
			if p := n.Peers()[0]; p.Via != viaUnknown || p.Memory != 1<<20 {
				t.Errorf("before the first transfer: over %s, %d bytes lent", p.Via, p.Memory)
			}
			list := []fabric.Item{item(t, 1, 10_000)}
			if n.Push(t.Context(), list); list[0].Err != nil || list[0].Via != want.write {
				t.Errorf("a write over %s, want %s: %v", list[0].Via, want.write, list[0].Err)
			}
			if n.Pull(t.Context(), list); list[0].Err != nil || list[0].Via != want.read {
				t.Errorf("a read over %s, want %s: %v", list[0].Via, want.read, list[0].Err)
			}
			if p := n.Peers()[0]; p.Via != want.both {
				t.Errorf("the peer is reached over %s, want %s", p.Via, want.both)
			}
			if via, _, err := n.Probe(t.Context(), "far"); err != nil || via != want.both {
				t.Errorf("a probe over %s, %v", via, err)
			}
		})
	}
	t.Run("UCX says nothing", func(t *testing.T) {
		far := newLender(t, "far", 1<<20)
		cfg := config(t, PeerConfig{"far", far.addr})
		cfg.Helper.Environment = []string{"UCX_PROTO_INFO=n"}
		n := newNode(t, cfg)
		lends(t, n, "far")
		list := []fabric.Item{item(t, 1, 10_000)}
		if n.Push(t.Context(), list); list[0].Err != nil || list[0].Via != viaUnknown {
			t.Errorf("over %s: %v", list[0].Via, list[0].Err)
		}
	})
}

// A peer whose memory can be read by emulation only is refused where that is asked for: no
// byte is read, a route that requires it fails with the reason, and notifications go on.
func TestEmulationIsRefused(t *testing.T) {
	app := wheel.Listen(t, "app", 1<<20)
	cfg := config(t, PeerConfig{"app", app.Listen})
	cfg.Helper.Environment, cfg.Helper.RefuseEmulation = []string{"UCX_TLS=tcp,self"}, true
	n := newNode(t, cfg)
	from := ""
	testbed.Until(t, "the application is told of its window", func() bool {
		for _, told := range app.Notifs() {
			from = told[0]
		}
		return from != ""
	})
	app.Notify(from, message{verb: verbLend, addr: app.Addr, n: 1 << 20}.String())
	lends(t, n, "app")
	list := []fabric.Item{item(t, 1, 10_000)}
	if n.Push(t.Context(), list); list[0].Err != nil || list[0].Via != "tcp" {
		t.Fatalf("a write over %s: %v", list[0].Via, list[0].Err)
	}
	list[0].M.B = make([]byte, len(list[0].M.B))
	if n.Pull(t.Context(), list); list[0].Err == nil || list[0].Via != viaNone {
		t.Errorf("a read over %s: %v", list[0].Via, list[0].Err)
	}
	if !bytes.Equal(list[0].M.B, make([]byte, len(list[0].M.B))) {
		t.Error("bytes were read")
	}
	const why = `UCX has no transport for reads of peer app without emulation, which emulation = "refuse" forbids`
	said := func(err error) bool {
		return errors.Is(err, wire.CodeUnsupported) && strings.Contains(err.Error(), why)
	}
	// NIXL forgets a peer whose transfer has failed.
	testbed.Until(t, "the peer is lost", func() bool { return n.Peers()[0].State != fabric.PeerReady })
	testbed.Until(t, "the peer is connected again", func() bool { return n.Peers()[0].State == fabric.PeerReady })
	if err := n.Usable(wire.Namespace{}); !said(err) {
		t.Errorf("it can be used: %v", err)
	}
	if _, _, err := n.Probe(t.Context(), "app"); !said(err) {
		t.Errorf("a probe: %v", err)
	}
	list = []fabric.Item{item(t, 2, 10_000)}
	if n.Push(t.Context(), list); !said(list[0].Err) {
		t.Errorf("another push: %v", list[0].Err)
	}
	var reg fabric.Registry
	if err := reg.Add("nixl", n); err != nil {
		t.Fatal(err)
	}
	routes, err := fabric.NewRoutes(&reg, []fabric.Route{{Fabric: "nixl", Require: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := routes.Pick(fabric.Query{Bytes: 100}); !errors.Is(err, wire.CodeUnsupported) || !strings.Contains(err.Error(), why) {
		t.Errorf("a route that requires it: %v", err)
	}
}
