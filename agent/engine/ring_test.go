package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

// asking is HELLO of an engine that asks for its ring.
func asking() []byte {
	return link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal | link.FeatureRing})
}

// sized is acme's manifest with blocks of n bytes.
func sized(n uint32) wire.Manifest {
	m := manifest("acme")
	m.BlockBytes = n
	m.Revision = fmt.Sprint(n)
	return m
}

// Engines that only look and read take nothing of the staging rings.
func TestTheFirstPutTakesARing(t *testing.T) {
	n := startNode(t, nil)
	writer, ns := n.open(t)
	reader, rns := n.open(t)
	if _, err := reader.Has(ctx, rns, []wire.Key{keyOf("a")}, false); err != nil {
		t.Fatal(err)
	}
	put(t, writer, client.Block{NS: ns, Key: keyOf("empty")})
	if got := n.store.Stats().StagingBytes; got != 0 {
		t.Errorf("%d bytes of rings before the first body", got)
	}
	put(t, writer, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	if got := n.store.Stats().StagingBytes; got != 1<<20 {
		t.Errorf("a ring of %d bytes, the limit is %d", got, 1<<20)
	}
	acquire(t, reader, rns, client.AcquireOptions{}, "a").Release()
	if got := n.store.Stats().StagingBytes; got != 1<<20 {
		t.Errorf("%d bytes of rings after a reader read", got)
	}
	writer.Close()
	n.wait(1)
	if got := n.store.Stats().StagingBytes; got != 0 {
		t.Errorf("%d bytes of rings after the writer left", got)
	}
}

// A ring that was made for small blocks grows for a namespace of larger ones, and
// what is staged stays valid.
func TestARingGrowsForLargerBlocks(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, c *engine.Config) { b.StagingBytes, c.Limits.StagingBytes = 1<<20, 1<<20 })
	e := n.dial(t, client.Options{})
	small, err := e.Open(ctx, sized(4<<10))
	if err != nil {
		t.Fatal(err)
	}
	staged, err := e.Stage(ctx, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.store.Stats().StagingBytes; got != 512<<10 {
		t.Fatalf("the first ring has %d bytes", got)
	}
	copy(staged, body(1, 4<<10))
	large, err := e.Open(ctx, sized(700<<10))
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, client.Block{NS: large, Key: wire.Key{9}, Body: body(2, 700<<10)})
	put(t, e, client.Block{NS: small, Key: wire.Key{8}, Body: staged})
	l, err := e.Acquire(ctx, small, []wire.Key{{8}}, client.AcquireOptions{})
	if err != nil || !bytes.Equal(l.Blocks[0].Body, body(1, 4<<10)) {
		t.Errorf("what was staged before the ring grew is something else, %v", err)
	}
	l.Release()
	l, err = e.Acquire(ctx, large, []wire.Key{{9}}, client.AcquireOptions{})
	if err != nil || !bytes.Equal(l.Blocks[0].Body, body(2, 700<<10)) {
		t.Errorf("a block larger than the first ring is something else, %v", err)
	}
	l.Release()
}

// The connections of one process share a share. Who finds it used up is told which
// one, may ask again, and finds room when another connection ends.
func TestAProcessHasAShareOfTheRings(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.StagingBytes, b.Shares.EngineStaging = 4<<20, 0.5 })
	type conn struct {
		e  *client.Engine
		ns client.NS
	}
	var got []conn
	for i := range 13 {
		e := n.dial(t, client.Options{})
		ns, err := e.Open(ctx, manifest("acme"))
		if err != nil {
			t.Fatalf("connection %d opens nothing: %v", i, err)
		}
		got = append(got, conn{e, ns})
	}
	full := client.Block{Key: keyOf("a"), Body: body(1, 1<<20)}
	for i, c := range got {
		full.NS = c.ns
		err := c.e.Put(ctx, []client.Block{full, full})[1]
		if i < 2 {
			if !errors.Is(err, wire.CodeExists) {
				t.Errorf("connection %d: a full block: %v", i, err)
			}
			continue
		}
		refusedRing(t, err, "2 MiB of staging rings", "1 MiB more", "quota.engine_staging_share")
		if _, err := c.e.Stage(ctx, 1); err == nil {
			t.Error("a ring too small for a full block was given")
		}
	}
	got[0].e.Close()
	n.wait(1)
	full.NS, full.Key = got[12].ns, keyOf("b")
	put(t, got[12].e, full)
}

func refusedRing(t *testing.T, err error, parts ...string) {
	t.Helper()
	var re *client.RequestError
	if !errors.As(err, &re) || re.Code != wire.CodeBusy || re.RetryMS == 0 {
		t.Fatalf("got %v, want BUSY with a time to ask again", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

// An engine of before RING gets its ring with its first OPENED, and a larger one
// with an OPENED that needs it. Where there is none, OPEN is refused and says why.
func TestAnEngineThatCannotAskGetsItsRingWithOpened(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.StagingBytes = 1 << 20 })
	r := n.greeted(t)
	open := func(req uint64, m wire.Manifest) (ring uint64, o link.Opened, e link.End) {
		r.write(message(link.TypeOpen, req, link.Open{Manifest: m.Append(nil)}))
		for {
			got := r.next()
			switch got.f.Type {
			case link.TypeMap:
				m, err := link.Parse[link.Map](got.p)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range m.Segs {
					if s.Kind == link.SegStaging {
						ring = s.Size
					}
				}
			case link.TypeOpened:
				if err := o.Parse(got.p); err != nil {
					t.Fatal(err)
				}
			default:
				return ring, o, r.end(got, req)
			}
		}
	}
	if ring, _, e := open(1, sized(4<<10)); ring != 512<<10 || e.Code != wire.CodeOK {
		t.Errorf("a ring of %d bytes, %v", ring, e)
	}
	if ring, _, e := open(3, sized(8<<10)); ring != 0 || e.Code != wire.CodeOK {
		t.Errorf("again a ring of %d bytes, %v", ring, e)
	}
	if ring, _, e := open(5, sized(600<<10)); ring < 600<<10 || e.Code != wire.CodeOK {
		t.Errorf("a ring of %d bytes for larger blocks, %v", ring, e)
	}
	before := n.host.open.Load()
	r = n.greeted(t)
	_, o, e := open(1, sized(1<<20))
	if o.Status != wire.CodeBusy || e.Code != wire.CodeBusy || e.RetryMS == 0 || !strings.Contains(e.Text, "quota.staging_share") {
		t.Errorf("OPENED %s, END %+v", o.Status, e)
	}
	if now := n.host.open.Load(); now != before {
		t.Errorf("%d namespaces are open after the refusal, %d before", now, before)
	}
}

// What an engine asks of a ring is checked before a byte is taken.
func TestRequestsForARing(t *testing.T) {
	n := startNode(t, nil)
	ring := func(size uint64) link.Map { return link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: size}}} }
	r := n.raw(t)
	r.write(asking())
	r.next()
	r.write(message(link.TypeMap, 1, ring(1)))
	if e := r.end(r.next(), 1); e.Code != wire.CodeState || e.Text == "" {
		t.Errorf("a ring without a namespace: %+v", e)
	}
	r.write(message(link.TypeOpen, 3, link.Open{Manifest: manifest("acme").Append(nil)}))
	if got := r.next(); got.f.Type != link.TypeOpened {
		t.Errorf("%s comes before OPENED", got.f.Type)
	}
	r.end(r.next(), 3)
	for i, size := range []uint64{1<<20 + 1, 1<<64 - 1} {
		r.write(message(link.TypeMap, 5+2*uint64(i), ring(size)))
		if e := r.end(r.next(), 5+2*uint64(i)); e.Code != wire.CodeTooLarge || !strings.Contains(e.Text, "engine.staging_bytes is 1048576") {
			t.Errorf("a ring of %d bytes: %+v", size, e)
		}
	}
	if got := n.store.Stats().StagingBytes; got != 0 {
		t.Errorf("refused rings have %d bytes", got)
	}
	for req := uint64(9); req < 15; req += 2 { // asked again, it comes again
		r.write(message(link.TypeMap, req, ring(0)))
		if got := r.next(); got.f.Type != link.TypeMap || got.f.Req != req {
			t.Fatalf("%s of %d", got.f.Type, got.f.Req)
		}
		r.end(r.next(), req)
	}
	if got := n.store.Stats().StagingBytes; got != 1<<20 {
		t.Errorf("a ring of %d bytes", got)
	}
	two := link.Map{Segs: append(ring(1).Segs, ring(1).Segs...)}
	r.write(message(link.TypeMap, 15, two))
	r.refusedWith(wire.CodeState)
	old, _ := n.opened(t, "acme")
	old.write(message(link.TypeMap, 3, ring(1)))
	old.refusedWith(wire.CodeState)
}

// A daemon that leaves gives no ring: nothing would be put there.
func TestADrainingDaemonGivesNoRing(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	if err := n.srv.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	_, err := e.Stage(ctx, 1)
	is(t, err, wire.CodeDraining)
	is(t, e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("a"), Body: []byte{1}}})[0], wire.CodeDraining)
	if got := n.store.Stats().StagingBytes; got != 0 {
		t.Errorf("%d bytes of rings", got)
	}
}
