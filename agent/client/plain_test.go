package client_test

import (
	"errors"
	"testing"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// greetWith exchanges HELLO, with features beside LOCAL, and gives the engine's.
func (d *daemon) greetWith(features uint64) link.Hello {
	_, p, _ := d.next()
	h, err := link.Parse[link.Hello](p)
	if err != nil {
		d.t.Error(err)
	}
	d.write(message(link.TypeHello, 0, link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal | features}))
	return h
}

func TestPlainCountsWhereBothSidesHaveIt(t *testing.T) {
	for name, c := range map[string]struct{ features uint64 }{"new daemon": {link.FeaturePlain}, "old daemon": {}} {
		t.Run(name, func(t *testing.T) {
			plain := c.features != 0
			e, err := client.DialEngine(ctx, serve(t, func(d *daemon) {
				if h := d.greetWith(c.features); h.Features&link.FeaturePlain == 0 {
					t.Errorf("the engine's features: %#x", h.Features)
				}
				d.split.Plain = plain // next says what is wrong with a checksum
				for {
					f, _, ok := d.next()
					if !ok {
						return
					}
					d.write(link.AppendLocal(nil, plain, link.Frame{Type: link.TypeEnd, Req: f.Req}, link.End{}))
				}
			}), client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for range 3 {
				if err := e.Ping(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Finish(ctx, 7, false); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAChecksumFromADaemonWithPlainIsCRC(t *testing.T) {
	e, err := client.DialEngine(ctx, serve(t, func(d *daemon) {
		d.greetWith(link.FeaturePlain)
		d.split.Plain = true
		if f, _, ok := d.next(); ok {
			d.write(message(link.TypeEnd, f.Req, link.End{}))
		}
		d.untilGone()
	}), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Ping(ctx); !errors.Is(err, wire.CodeCRC) {
		t.Errorf("%v, want CRC", err)
	}
}
