package client_test

import (
	"bytes"
	"errors"
	"testing"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// helloed dials a daemon that answers HELLO with h, and gives the engine's.
func helloed(t *testing.T, g *client.Group, h link.Hello) (*client.Engine, link.Hello, error) {
	t.Helper()
	theirs := make(chan link.Hello, 1)
	path := serve(t, func(d *daemon) {
		_, p, _ := d.next()
		x, err := link.Parse[link.Hello](bytes.Clone(p))
		if err != nil {
			t.Error(err)
		}
		theirs <- x
		h.Min, h.Max, h.Features = 1, 1, h.Features|link.FeatureLocal
		d.write(message(link.TypeHello, 0, h))
		d.untilGone()
	})
	e, err := client.DialEngine(ctx, path, client.Options{Group: g})
	if err == nil {
		t.Cleanup(func() { e.Close() })
	}
	return e, <-theirs, err
}

func TestASessionSaysItsGroup(t *testing.T) {
	made := bytes.Repeat([]byte{7}, link.GroupSecret)
	with := link.Hello{Features: link.FeatureGroup}
	asked := link.Hello{Features: link.FeatureGroup, Auth: []link.TLV{{Type: link.AuthGroup, Value: made}}}
	secret := [link.GroupSecret]byte(bytes.Repeat([]byte{9}, link.GroupSecret))
	for name, c := range map[string]struct {
		group   client.Group
		daemon  link.Hello
		element []byte // nil: none
		secret  []byte
	}{
		"without a secret": {client.Group{Agent: [16]byte{1}, Inc: 2}, with, nil, nil},
		"asks for one":     {client.Group{Agent: [16]byte{1}, Inc: 2, AskSecret: true}, asked, []byte{}, made},
		"has one":          {client.Group{Agent: [16]byte{1}, Inc: 2, Secret: &secret, AskSecret: true}, with, secret[:], secret[:]},
	} {
		t.Run(name, func(t *testing.T) {
			e, h, err := helloed(t, &c.group, c.daemon)
			if err != nil {
				t.Fatal(err)
			}
			v, ok := h.Find(link.AuthGroup)
			if h.Agent != c.group.Agent || h.Inc != 2 || h.Features&link.FeatureGroup == 0 || ok != (c.element != nil) || !bytes.Equal(v, c.element) {
				t.Errorf("HELLO %+v", h)
			}
			if got, ok := e.GroupSecret(); ok != (c.secret != nil) || ok && !bytes.Equal(got[:], c.secret) {
				t.Errorf("secret %x, %v, want %x", got, ok, c.secret)
			}
			if !e.Grouped() {
				t.Error("no group")
			}
		})
	}
}

func TestWithoutAGroupHelloIsAsItWas(t *testing.T) {
	e, h, err := helloed(t, nil, link.Hello{Features: link.FeatureGroup})
	if err != nil {
		t.Fatal(err)
	}
	_, secret := h.Find(link.AuthGroup)
	if h.Features&link.FeatureGroup != 0 || h.Agent != [16]byte{} || h.Inc != 0 || secret || e.Grouped() {
		t.Errorf("HELLO %+v, grouped %v", h, e.Grouped())
	}
	unsupported(t, e.Process(ctx, 0))
}

// A daemon that is older than groups is told apart by its HELLO.
func TestAnOlderDaemonHasNoGroups(t *testing.T) {
	e, h, err := helloed(t, &client.Group{Agent: [16]byte{1}, Inc: 2, AskSecret: true}, link.Hello{})
	if err != nil || h.Features&link.FeatureGroup == 0 {
		t.Fatal(err)
	}
	if _, ok := e.GroupSecret(); ok || e.Grouped() {
		t.Error("a group, or a secret of it")
	}
	unsupported(t, e.Process(ctx, 0))
}

func unsupported(t *testing.T, err error) {
	t.Helper()
	var r *client.RequestError
	if !errors.As(err, &r) || r.Code != wire.CodeUnsupported || r.Text == "" {
		t.Errorf("%v, want UNSUPPORTED with a text", err)
	}
}

func TestADaemonThatGivesNoSecretIsRefused(t *testing.T) {
	for name, auth := range map[string][]link.TLV{"none": nil, "an empty one": {{Type: link.AuthGroup}}, "31 bytes": {{Type: link.AuthGroup, Value: make([]byte, 31)}}} {
		if _, _, err := helloed(t, &client.Group{Agent: [16]byte{1}, Inc: 2, AskSecret: true}, link.Hello{Features: link.FeatureGroup, Auth: auth}); !errors.Is(err, wire.CodeAuth) {
			t.Errorf("%s: %v, want AUTH", name, err)
		}
	}
}

// PHASEAT and EVICTED come to their callbacks in the order in which they were sent; an
// engine without a group takes them for unknown types.
func TestAdviceOfAGroup(t *testing.T) {
	for name, grouped := range map[string]bool{"group": true, "no group": false} {
		t.Run(name, func(t *testing.T) {
			var o client.Options
			if grouped {
				o.Group = &client.Group{Agent: [16]byte{1}, Inc: 1}
			}
			var phases []client.Phase
			var gone []client.Evicted
			last := make(chan struct{})
			o.OnPhase = func(p client.Phase) {
				if phases = append(phases, p); p.Kind == client.Completed {
					close(last)
				}
			}
			o.OnEvicted = func(l []client.Evicted) { gone = append(gone, l...) }
			e, err := client.DialEngine(ctx, serve(t, func(d *daemon) {
				d.greetWith(link.FeatureGroup)
				d.write(
					message(link.TypePhaseAt, 0, link.PhaseAt{Req: 7, Kind: 1, Pos: 100}),
					message(link.TypeEvicted, 0, link.Evicted{}),
					message(link.TypeEvicted, 0, link.Evicted{Items: []link.EvictedItem{{Req: 7, NS: 3, Key: wire.Key{1}}, {Req: 8}}}),
					message(link.TypePhase, 0, link.Phase{Req: 7, Kind: 4, Used: 5}),
				)
				d.untilGone()
			}), o)
			if err != nil {
				t.Fatal(err)
			}
			<-last
			e.Close()
			want := []client.Phase{{Req: 7, Kind: client.Completed, Used: 5}}
			if grouped {
				want = append([]client.Phase{{Req: 7, Kind: client.EnterThink, Pos: 100}}, want...)
			}
			if len(phases) != len(want) || phases[0].Kind != want[0].Kind || phases[0].Pos != want[0].Pos {
				t.Errorf("phases %+v, want %+v", phases, want)
			}
			if grouped != (len(gone) == 2) || grouped && gone[0] != (client.Evicted{Req: 7, NS: 3, Key: wire.Key{1}}) {
				t.Errorf("evicted %+v", gone)
			}
		})
	}
}
