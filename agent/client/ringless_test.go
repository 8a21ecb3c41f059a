package client_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// A daemon of before RING gives the ring with the first OPENED. It is never asked
// for another one, which it would end the connection for.
func TestADaemonThatIsNotAskedForTheRing(t *testing.T) {
	const size = 1 << 16
	asked := make(chan link.Type, 8)
	path := serve(t, func(d *daemon) {
		d.greet()
		f, _, _ := d.next()
		fd := sealed(t, size, unix.F_SEAL_SHRINK)
		d.announce([]link.Seg{{Size: size, Kind: link.SegStaging}}, fd)
		unix.Close(fd)
		d.write(message(link.TypeOpened, f.Req, link.Opened{}), message(link.TypeEnd, f.Req, link.End{}))
		for {
			f, p, ok := d.next()
			if !ok {
				return
			}
			asked <- f.Type
			x, err := link.Parse[link.Put](p)
			if err != nil {
				t.Error(err)
				return
			}
			d.write(message(link.TypeEnd, f.Req, link.End{Status: make([]wire.Code, len(x.Items))}))
		}
	})
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	block := client.Block{Key: wire.Key{1}, Body: make([]byte, 1000)}
	if err := e.Put(ctx, []client.Block{block})[0]; !errors.Is(err, wire.CodeState) {
		t.Errorf("before a namespace is open: %v", err)
	}
	if _, err := e.Open(ctx, wire.Manifest{Tenant: "t", Model: "m", Role: "kv", BlockBytes: 1 << 20, BlockTokens: 1}); err != nil {
		t.Fatal(err)
	}
	block.Body = make([]byte, size+1)
	if err := e.Put(ctx, []client.Block{block})[0]; !errors.Is(err, wire.CodeTooLarge) {
		t.Errorf("a block larger than the ring: %v", err)
	}
	block.Body = make([]byte, size)
	if err := e.Put(ctx, []client.Block{block})[0]; err != nil {
		t.Error(err)
	}
	if got := <-asked; got != link.TypePut {
		t.Errorf("the daemon was sent %s", got)
	}
}

// A daemon that grants a ring and sends none, or a smaller one, ends the call with
// an error, and nobody waits.
func TestARingThatWasGrantedAndDidNotCome(t *testing.T) {
	for name, size := range map[string]int{"none": 0, "a smaller one": 4096} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(d *daemon) {
				d.next()
				d.write(message(link.TypeHello, 0, link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal | link.FeatureRing}))
				f, _, _ := d.next()
				if size > 0 {
					fd := sealed(t, size, unix.F_SEAL_SHRINK)
					d.announce([]link.Seg{{Size: uint64(size), Kind: link.SegStaging}}, fd)
					unix.Close(fd)
				}
				d.write(message(link.TypeEnd, f.Req, link.End{}))
				d.untilGone()
			})
			e, err := client.DialEngine(ctx, path, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err := e.Stage(ctx, 8192); !errors.Is(err, wire.CodeState) {
				t.Errorf("got %v", err)
			}
		})
	}
}
