package client_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

var aGroup = client.Options{Group: &client.Group{Agent: [16]byte{1}, Inc: 1}}

// absent is a part of n items that are not there.
func absent(req uint64, first uint32, n int) []byte {
	items := make([]link.Place, n)
	for i := range items {
		items[i].Status = wire.CodeAbsent
	}
	return message(link.TypeLoaded, req, link.Loaded{First: first, Items: items})
}

// Parts of a daemon that lies about a load end the connection: out of order, with a
// gap, beyond the end, of no load, in a place that was never announced.
func TestPartsOutOfPlaceEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		send func(d *daemon, req uint64)
		code wire.Code
	}{
		"a gap":      {func(d *daemon, req uint64) { d.write(absent(req, 1, 1)) }, wire.CodeState},
		"again":      {func(d *daemon, req uint64) { d.write(absent(req, 0, 1), absent(req, 0, 1)) }, wire.CodeState},
		"too many":   {func(d *daemon, req uint64) { d.write(absent(req, 0, 4)) }, wire.CodeState},
		"far beyond": {func(d *daemon, req uint64) { d.write(absent(req, 0, 1), absent(req, 1<<31, 1)) }, wire.CodeState},
		"too few":    {func(d *daemon, req uint64) { d.write(absent(req, 0, 2), message(link.TypeEnd, req, link.End{})) }, wire.CodeState},
		"of another": {func(d *daemon, req uint64) { d.write(absent(req+2*1<<20, 0, 1)) }, wire.CodeState},
		"after END": {func(d *daemon, req uint64) {
			d.write(absent(req, 0, 3), message(link.TypeEnd, req, link.End{}), absent(req, 0, 1))
		}, wire.CodeState},
		"ACQUIRED": {func(d *daemon, req uint64) { d.write(message(link.TypeAcquired, req, link.Acquired{})) }, wire.CodeState},
		"no segment": {func(d *daemon, req uint64) {
			d.write(message(link.TypeLoaded, req, link.Loaded{Lease: [16]byte{1}, Items: []link.Place{{Seg: 7, Off: 64}}}))
		}, wire.CodeState},
		"the end": {func(d *daemon, req uint64) { d.write(absent(req, 0, 1)); d.c.Close() }, wire.CodeLaneLost},
		"an empty one": {func(d *daemon, req uint64) {
			b := link.Loaded{Items: make([]link.Place, 1)}.Append(nil)
			clear(b[20:24])
			d.write(message(link.TypeLoaded, req, raw(b)))
		}, wire.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(d *daemon) {
				d.greetWith(link.FeatureGroup)
				f, p, _ := d.next()
				if x, err := link.Parse[link.Load](p); f.Type != link.TypeLoad || err != nil || len(x.Items) != 3 {
					t.Errorf("%s of %d items, %v", f.Type, len(x.Items), err)
				}
				c.send(d, f.Req)
				d.untilGone()
			})
			e, err := client.DialEngine(ctx, path, aGroup)
			if err != nil {
				t.Fatal(err)
			}
			var l client.Load
			if err := e.LoadInto(ctx, &l, 0, make([]wire.Key, 3), client.LoadOptions{Wait: true}); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				var part client.Lease
				_, err = l.Next(ctx, &part)
				part.Release()
			}
			if errors.Is(err, io.EOF) && name == "after END" {
				<-e.Gone()
				err = e.Err()
			}
			if !errors.Is(err, c.code) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			l.Close()
			e.Close()
		})
	}
}

// raw is a message that is its own bytes.
type raw []byte

func (r raw) Length() int            { return len(r) }
func (r raw) Append(b []byte) []byte { return append(b, r...) }

// A daemon that goes in the middle of a load has not said that all of it came: neither
// Next nor LoadAll takes the end of the connection for the end of the parts.
func TestADaemonThatGoesIsNotTheEndOfALoad(t *testing.T) {
	for name, goAway := range map[string]bool{"gone": false, "drained": true} {
		for _, all := range []bool{false, true} {
			path := serve(t, func(d *daemon) {
				d.greetWith(link.FeatureGroup)
				f, _, _ := d.next()
				if goAway {
					d.write(message(link.TypeGoAway, 0, link.GoAway{}))
				}
				d.write(message(link.TypeLoaded, f.Req, link.Loaded{Items: []link.Place{{Status: wire.CodeAbsent}}}))
			})
			e, err := client.DialEngine(ctx, path, aGroup)
			if err != nil {
				t.Fatal(err)
			}
			o := client.LoadOptions{Wait: true}
			if all {
				var got *client.Loaded
				if got, err = e.LoadAll(ctx, 0, make([]wire.Key, 3), o); err == nil {
					t.Errorf("%s: LoadAll of 3 blocks has %d, and no error", name, len(got.Blocks))
				}
			} else {
				l, err2 := e.Load(ctx, 0, make([]wire.Key, 3), o)
				for err = err2; err == nil; {
					var part client.Lease
					_, err = l.Next(ctx, &part)
					part.Release()
				}
				l.Close()
			}
			var closed *client.ClosedError
			if errors.Is(err, io.EOF) || !errors.As(err, &closed) {
				t.Errorf("%s, all %v: %v", name, all, err)
			}
			e.Close()
		}
	}
}

// Close of a load that has not ended cancels it, and what comes all the same is given
// back, whether it came before or after.
func TestWhatComesAfterCloseIsGivenBack(t *testing.T) {
	cancelled := make(chan struct{})
	path := serve(t, func(d *daemon) {
		d.greetWith(link.FeatureGroup)
		f, _, _ := d.next()
		req := f.Req
		lease := func(n byte) [16]byte { return [16]byte{n} }
		part := func(n byte, first uint32) []byte {
			return message(link.TypeLoaded, req, link.Loaded{Lease: lease(n), First: first, Items: []link.Place{{Status: wire.CodeAbsent}}})
		}
		d.write(part(1, 0), part(2, 1))
		back := map[[16]byte]bool{}
		sent := false
		for len(back) < 3 {
			f, p, ok := d.next()
			if !ok {
				t.Errorf("the engine has gone, %d leases came back", len(back))
				return
			}
			switch f.Type {
			case link.TypeCancel:
				if f.Req != req {
					t.Errorf("CANCEL of %d, want %d", f.Req, req)
				}
				if !sent {
					sent = true
					d.write(part(3, 2), message(link.TypeEnd, req, link.End{Code: wire.CodeCancelled}))
				}
			case link.TypeRelease:
				x, err := link.Parse[link.Release](p)
				if err != nil {
					t.Error(err)
				}
				for _, id := range x.Leases {
					back[id] = true
				}
				d.write(message(link.TypeEnd, f.Req, link.End{}))
			}
		}
		close(cancelled)
		d.untilGone()
	})
	e, err := client.DialEngine(ctx, path, aGroup)
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.Load(ctx, 0, make([]wire.Key, 4), client.LoadOptions{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	var part client.Lease
	if first, err := l.Next(ctx, &part); first != 0 || err != nil {
		t.Fatalf("%d, %v", first, err)
	}
	part.Release()
	over, cancel := context.WithCancel(ctx)
	cancel()
	var second client.Lease
	for { // the second part may be there already
		if _, err := l.Next(over, &second); err != nil {
			if !errors.Is(err, wire.CodeCancelled) {
				t.Error(err)
			}
			break
		}
		second.Release()
	}
	l.Close()
	l.Close()
	if _, err := l.Next(ctx, &part); !errors.Is(err, wire.CodeState) {
		t.Errorf("Next after Close: %v", err)
	}
	<-cancelled
	e.Close()
}

func TestALoadNeedsAGroup(t *testing.T) {
	path := serve(t, func(d *daemon) { d.greet(); d.untilGone() })
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Load(ctx, 0, make([]wire.Key, 1), client.LoadOptions{}); !errors.Is(err, wire.CodeUnsupported) {
		t.Errorf("error %v", err)
	}
}
