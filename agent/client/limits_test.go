package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// with is a client of a daemon that grants what it says, and then does as script.
func with(t *testing.T, l link.Limits, script func(*daemon)) *client.Engine {
	t.Helper()
	path := serve(t, func(d *daemon) {
		d.next()
		d.write(message(link.TypeHello, 0, link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal | link.FeatureRing, Limits: l}))
		script(d)
		d.untilGone()
	})
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// A batch has as many items as the daemon granted, and not one more; a daemon that
// grants more than the protocol has granted that.
func TestABatchHasWhatTheDaemonGrants(t *testing.T) {
	for _, c := range []struct{ granted, most int }{{3, 3}, {link.MaxItems + 1, link.MaxItems}, {0, link.MaxItems}} {
		got := make(chan link.Has, 1)
		e := with(t, link.Limits{Items: uint32(c.granted)}, func(d *daemon) {
			f, p, _ := d.next()
			var x link.Has
			if err := x.Parse(p); err != nil {
				t.Error(err)
			}
			got <- x
			d.write(message(link.TypeTable, f.Req, link.Table{Items: make([]link.Have, len(x.Items))}), message(link.TypeEnd, f.Req, link.End{}))
		})
		if _, err := e.Has(ctx, 0, make([]wire.Key, c.most+1), false); !errors.Is(err, wire.CodeTooLarge) {
			t.Errorf("%d granted: a batch of %d: %v", c.granted, c.most+1, err)
		}
		if _, err := e.Has(ctx, 0, make([]wire.Key, c.most), false); err != nil {
			t.Errorf("%d granted: a batch of %d: %v", c.granted, c.most, err)
		}
		x := <-got
		if len(x.Items) != c.most || x.DeadlineMS != uint32(client.DefaultDeadline.Milliseconds()) {
			t.Errorf("HAS of %d with %d ms", len(x.Items), x.DeadlineMS)
		}
	}
}

// As many requests run as the daemon granted; one more is not sent.
func TestAsManyRequestsRunAsTheDaemonGrants(t *testing.T) {
	running, more, sent := make(chan struct{}), make(chan struct{}), make(chan link.Type, 8)
	e := with(t, link.Limits{Reqs: 1}, func(d *daemon) {
		f, _, _ := d.next()
		close(running)
		<-more
		d.write(message(link.TypeEnd, f.Req, link.End{}))
		defer close(sent)
		for {
			f, _, ok := d.next()
			if !ok {
				return
			}
			sent <- f.Type
		}
	})
	first := make(chan error, 1)
	go func() { first <- e.Ping(ctx) }()
	<-running
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Ping(over); !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("a request more: %v", err)
	}
	close(more)
	if err := <-first; err != nil {
		t.Error(err)
	}
	e.Close()
	for typ := range sent {
		t.Errorf("%s was sent while one request ran, and one was granted", typ)
	}
}

// An ERROR that names a place says it, and one that names none does not.
func TestARefusalSaysWhereItWas(t *testing.T) {
	for offset, want := range map[uint64]bool{0: false, 7: true} {
		e := with(t, link.Limits{}, func(d *daemon) {
			d.write(message(link.TypeError, 0, link.Error{Code: wire.CodeLength, Offset: offset, Text: "too long"}))
		})
		<-e.Gone()
		if s := e.Err().Error(); strings.Contains(s, "at byte") != want || want && !strings.Contains(s, "at byte 7") || !strings.Contains(s, "too long") {
			t.Errorf("offset %d: %q", offset, s)
		}
	}
}

// RELEASE is answered by END alone.
func TestTheAnswerToARelease(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(req uint64) []byte
		good   bool
	}{
		"END":   {func(req uint64) []byte { return message(link.TypeEnd, req, link.End{}) }, true},
		"TABLE": {func(req uint64) []byte { return message(link.TypeTable, req, link.Table{}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := with(t, link.Limits{}, func(d *daemon) {
				f := d.grant(t)
				d.write(message(link.TypeEnd, f.Req, link.End{}))
				if f, _, _ = d.next(); f.Type != link.TypeRelease {
					t.Errorf("%s, want RELEASE", f.Type)
				}
				d.write(c.answer(f.Req))
				if f, _, ok := d.next(); ok {
					d.write(message(link.TypeEnd, f.Req, link.End{}))
				}
			})
			l, err := e.Acquire(ctx, 0, make([]wire.Key, 2), client.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if b := &l.Blocks[0]; b.Err != nil || string(b.Body) != "body" || b.Head.BodyLen != 4 {
				t.Errorf("a good block: %q, %v", b.Body, b.Err)
			}
			if b := &l.Blocks[1]; !errors.Is(b.Err, wire.CodeMagic) || b.Body != nil {
				t.Errorf("a block without a header: %q, %v", b.Body, b.Err)
			}
			l.Release()
			if !c.good {
				<-e.Gone()
				if err := e.Err(); !errors.Is(err, wire.CodeState) {
					t.Errorf("the connection: %v", err)
				}
				return
			}
			if err := e.Ping(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// grant answers ACQUIRE but for its END: a block, and one with a header of zeros.
func (d *daemon) grant(t *testing.T) link.Frame {
	payload, err := wire.AppendPayload(make([]byte, 0, 64), wire.ThinkComplete, []byte("body"))
	if err != nil {
		t.Error(err)
	}
	bytes, gens := sealed(t, 4096, unix.F_SEAL_SHRINK), sealed(t, 4096, unix.F_SEAL_SHRINK)
	if _, err := unix.Pwrite(bytes, payload, 0); err != nil {
		t.Error(err)
	}
	if _, err := unix.Pwrite(gens, []byte{2}, 8); err != nil {
		t.Error(err)
	}
	f, _, _ := d.next()
	d.announce([]link.Seg{{ID: 1, Size: 4096, Kind: link.SegBytes}, {ID: 1, Size: 4096, Kind: link.SegGens}}, bytes, gens)
	unix.Close(bytes)
	unix.Close(gens)
	at := link.Place{Slot: 1, Gen: 2, Seg: 1, Len: 4, Off: wire.HeaderLen, GenOff: 8}
	empty := at
	empty.Off = 1024
	d.write(message(link.TypeAcquired, f.Req, link.Acquired{Lease: [16]byte{7}, Items: []link.Place{at, empty}}))
	return f
}

// A step has at most as many rows and tokens as the protocol, to the last one.
func TestAStepAtItsLimits(t *testing.T) {
	columns := func(rows int, each uint8) ([]uint32, []uint8, []int32) {
		n := make([]uint8, rows)
		for i := range n {
			n[i] = each
		}
		return make([]uint32, rows), n, make([]int32, rows*int(each))
	}
	e := with(t, link.Limits{}, func(*daemon) {})
	for _, c := range []struct {
		rows int
		each uint8
		good bool
	}{
		{link.MaxRows, 1, true}, {link.MaxRows + 1, 1, false},
		{link.MaxTokens / 16, 16, true}, {link.MaxTokens/16 - 1, 17, false},
	} {
		req, n, tok := columns(c.rows, c.each)
		if err := e.Tokens(req, n, tok); (err == nil) != c.good || !c.good && !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%d rows of %d tokens: %v", c.rows, c.each, err)
		}
	}
}
