package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

func TestStagedBodiesAreNotCopiedAndComeBack(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	for round := range 20 { // 20 x 900 KiB through a ring of 1 MiB
		b, err := e.Stage(ctx, 900<<10)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, body(byte(round), len(b)))
		name := fmt.Sprint(round)
		put(t, e, client.Block{NS: ns, Key: keyOf(name), Body: b[:1000+round]})
		l := acquire(t, e, ns, client.AcquireOptions{}, name)
		if !bytes.Equal(l.Blocks[0].Body, body(byte(round), 1000+round)) {
			t.Error("other bytes")
		}
		l.Release()
	}
	b, err := e.Stage(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	e.Unstage(b)
	_, err = e.Stage(ctx, 2<<20)
	is(t, err, wire.CodeTooLarge)
	is(t, e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("big"), Body: make([]byte, 2<<20)}})[0], wire.CodeTooLarge)
}

func TestStageNeedsAnOpenNamespace(t *testing.T) {
	n := startNode(t, nil)
	e := n.dial(t, client.Options{})
	_, err := e.Stage(ctx, 1)
	is(t, err, wire.CodeState)
	is(t, e.Put(ctx, []client.Block{{Body: []byte{1}}})[0], wire.CodeState)
}

func TestPlacesOutsideTheRingAreRefused(t *testing.T) {
	n := startNode(t, nil)
	r, _ := n.opened(t, "acme")
	const ring = 1 << 20
	items := []link.PutItem{
		{Off: ring, Len: 1, Key: keyOf("a")},
		{Off: ring - 1, Len: 2, Key: keyOf("b")},
		{Off: 1<<64 - 1, Len: 2, Key: keyOf("c")},
		{Off: 0, Len: 1<<32 - 1, Key: keyOf("d")},
		{Off: ring, Len: 0, Key: keyOf("e")},
		{Off: ring - 5, Len: 5, Key: keyOf("f")},
		{NS: 9, Len: 1, Key: keyOf("g")},
	}
	r.write(message(link.TypePut, 3, link.Put{DeadlineMS: 1000, Items: items}))
	e := r.end(r.next(), 3)
	want := []wire.Code{wire.CodeInvalid, wire.CodeInvalid, wire.CodeInvalid, wire.CodeInvalid, wire.CodeOK, wire.CodeOK, wire.CodeNSUnknown}
	if fmt.Sprint(e.Status) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", e.Status, want)
	}
}

func scribble(ring []byte, n int, v byte) {
	b := unsafe.Slice(&ring[0], n)
	for i := 0; i < len(b); i += 61 {
		b[i] = v
	}
}

func TestScribblingOnTheRingNeverPublishesAWrongBlock(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	const size = 200 << 10
	for round := range 40 {
		b, err := e.Stage(ctx, size)
		if err != nil {
			t.Fatal(err)
		}
		ring := b[:1]
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for v := byte(0); ; v++ {
				select {
				case <-stop:
					return
				default:
				}
				scribble(ring, size, v)
			}
		}()
		name := fmt.Sprint(round)
		put(t, e, client.Block{NS: ns, Key: keyOf(name), Body: b})
		close(stop)
		<-stopped
		l := acquire(t, e, ns, client.AcquireOptions{}, name)
		if err := l.Blocks[0].Head.Check(l.Blocks[0].Body); err != nil {
			t.Fatal(err)
		}
		if err := n.store.Verify(blocks.View{NS: manifest("acme").Namespace(), Key: keyOf(name)}); err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
}

func TestDescriptorsCannotBeReopenedForWriting(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 100)})
	seg := n.store.Segments(manifest("acme").TenantID())[0]
	for _, gen := range []bool{false, true} {
		fd, size, err := n.store.FD(seg, gen)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("the descriptor itself maps for writing")
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
		if err != nil {
			continue // refused already
		}
		defer f.Close()
		if _, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("a descriptor opened again maps for writing")
		}
		if _, err := f.WriteAt([]byte{1}, 0); err == nil {
			t.Error("a descriptor opened again writes")
		}
		if err := f.Truncate(0); err == nil {
			t.Error("a descriptor opened again truncates")
		}
	}
}

func TestPutsOfOneEngineAreCopiedSideBySide(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, c *engine.Config) {
		b.Capacity, c.Limits.StagingBytes = 64<<20, 16<<20
	})
	e, ns := n.open(t)
	const size, batch = 96 << 10, 8 // a batch is more than the reader copies itself
	name := func(k int) string { return fmt.Sprint("side by side ", k) }
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 8 {
				in := make([]client.Block, batch)
				for j := range in {
					k := (3*g + i + j) % 24
					in[j] = client.Block{NS: ns, Key: keyOf(name(k)), Tier: wire.OutputCritical, Body: body(byte(k), size)}
				}
				ctx, cancel := context.WithCancel(ctx)
				if given := g == 0; given {
					time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
				}
				for _, err := range e.Put(ctx, in) {
					if err != nil && !errors.Is(err, wire.CodeExists) && !(g == 0 && errors.Is(err, wire.CodeCancelled)) {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	keys := make([]wire.Key, 24)
	for k := range keys {
		keys[k] = keyOf(name(k))
	}
	l, err := e.Acquire(ctx, ns, keys, client.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	for k := range keys {
		b := &l.Blocks[k]
		if b.Err != nil || !bytes.Equal(b.Body, body(byte(k), size)) {
			t.Errorf("block %d: %v, or other bytes", k, b.Err)
			continue
		}
		if err := b.Head.Check(b.Body); err != nil {
			t.Errorf("block %d: %v", k, err)
		}
	}
}
