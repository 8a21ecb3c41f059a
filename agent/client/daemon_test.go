package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

var ctx = context.Background()

// daemon is one that a test scripts: what a real one would never send.
type daemon struct {
	t     *testing.T
	path  string
	c     *net.UnixConn
	split link.Splitter
	left  []byte
}

// serve listens, and runs script with the first engine, behind HELLO.
func serve(t *testing.T, script func(*daemon)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrdn")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, path: filepath.Join(dir, "s")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if d.c, err = l.AcceptUnix(); err != nil {
			return
		}
		defer d.c.Close()
		script(d)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		os.RemoveAll(dir)
	})
	return d.path
}

func message[M link.Message](typ link.Type, req uint64, m M) []byte {
	return link.AppendMessage(nil, link.Frame{Type: typ, Req: req}, m)
}

func (d *daemon) write(b ...[]byte) {
	for _, p := range b {
		if _, err := d.c.Write(p); err != nil {
			return // the engine has gone
		}
	}
}

// next is the next frame of the engine; ok is false at its end.
func (d *daemon) next() (f link.Frame, p []byte, ok bool) {
	buf := make([]byte, 64<<10)
	for {
		for len(d.left) > 0 {
			n, ev, err := d.split.Next(d.left)
			if err != nil {
				d.t.Errorf("the engine sent: %v", err)
				return f, nil, false
			}
			d.left = d.left[n:]
			if ev.Kind == link.EventMessage {
				return ev.Frame, ev.Payload, true
			}
		}
		n, err := d.c.Read(buf)
		if err != nil {
			return f, nil, false
		}
		d.left = buf[:n]
	}
}

// greet exchanges HELLO.
func (d *daemon) greet() {
	d.next()
	d.write(message(link.TypeHello, 0, link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal}))
}

// untilGone reads until the engine closes.
func (d *daemon) untilGone() {
	for {
		if _, _, ok := d.next(); !ok {
			return
		}
	}
}

// sealed makes a memfd of n bytes.
func sealed(t *testing.T, n int, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// announce sends MAP with descriptors.
func (d *daemon) announce(segs []link.Seg, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := d.c.WriteMsgUnix(message(link.TypeMap, 0, link.Map{Segs: segs}), oob, nil); err != nil {
		d.t.Error(err)
	}
}

// Whatever a daemon sends, the engine's process survives: the connection ends with
// an error that says what was wrong.
func TestNumbersFromTheDaemonAreChecked(t *testing.T) {
	const size = 1 << 16
	good := link.Place{Slot: 1, Gen: 2, Seg: 1, Len: 100, Off: 64, GenOff: 8}
	for name, c := range map[string]struct {
		place link.Place
		code  wire.Code
	}{
		"unknown segment":    {link.Place{Seg: 9, Len: 1, Off: 64}, wire.CodeState},
		"behind the end":     {link.Place{Seg: 1, Len: 100, Off: size - 99}, wire.CodeLength},
		"far behind the end": {link.Place{Seg: 1, Len: 1<<32 - 1, Off: 1<<64 - 2}, wire.CodeLength},
		"no room for header": {link.Place{Seg: 1, Len: 1, Off: 31}, wire.CodeLength},
		"generation outside": {link.Place{Seg: 1, Len: 1, Off: 64, GenOff: 4096}, wire.CodeLength},
		"generation odd":     {link.Place{Seg: 1, Len: 1, Off: 64, GenOff: 9}, wire.CodeLength},
	} {
		t.Run(name, func(t *testing.T) {
			released := make(chan [16]byte, 1)
			path := serve(t, func(d *daemon) {
				d.greet()
				bytes, gens := sealed(t, size, unix.F_SEAL_SHRINK), sealed(t, 4096, unix.F_SEAL_SHRINK)
				d.announce([]link.Seg{{ID: 1, Size: size, Kind: link.SegBytes}, {ID: 1, Size: 4096, Kind: link.SegGens}}, bytes, gens)
				unix.Close(bytes)
				unix.Close(gens)
				f, _, _ := d.next()
				d.write(message(link.TypeAcquired, f.Req, link.Acquired{Lease: [16]byte{7}, Items: []link.Place{good, c.place}}), message(link.TypeEnd, f.Req, link.End{}))
				for {
					f, p, ok := d.next()
					if !ok {
						return
					}
					if f.Type == link.TypeRelease {
						x, _ := link.Parse[link.Release](p)
						released <- x.Leases[0]
						d.write(message(link.TypeEnd, f.Req, link.End{}))
					}
				}
			})
			e, err := client.DialEngine(ctx, path, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Acquire(ctx, 0, make([]wire.Key, 2), client.AcquireOptions{})
			if !errors.Is(err, c.code) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			if got := <-released; got != ([16]byte{7}) {
				t.Errorf("lease %x was released", got)
			}
			e.Close()
		})
	}
}

func TestMapsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		size  uint64
		seals int
		fds   int
		code  wire.Code
	}{
		"no descriptor":        {4096, unix.F_SEAL_SHRINK, 0, wire.CodeState},
		"larger than file":     {8192, unix.F_SEAL_SHRINK, 1, wire.CodeLength},
		"empty":                {0, unix.F_SEAL_SHRINK, 1, wire.CodeLength},
		"file that can shrink": {4096, 0, 1, wire.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(d *daemon) {
				d.greet()
				var fds []int
				for range c.fds {
					fds = append(fds, sealed(t, 4096, c.seals))
				}
				d.announce([]link.Seg{{ID: 1, Size: c.size, Kind: link.SegBytes}}, fds...)
				for _, fd := range fds {
					unix.Close(fd)
				}
				d.untilGone()
			})
			e, err := client.DialEngine(ctx, path, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			<-e.Gone()
			if err := e.Err(); !errors.Is(err, c.code) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			e.Close()
		})
	}
}

func TestAnswersOutOfPlaceEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		send func(req uint64) []byte
		code wire.Code
	}{
		"END of nothing": {func(req uint64) []byte { return message(link.TypeEnd, req+2, link.End{}) }, wire.CodeState},
		"END of another": {func(uint64) []byte { return message(link.TypeEnd, 1<<63|1, link.End{}) }, wire.CodeState},
		"even END":       {func(req uint64) []byte { return message(link.TypeEnd, req+1, link.End{}) }, wire.CodeState},
		"GRANT":          {func(req uint64) []byte { return message(link.TypeGrant, req, link.Grant{}) }, wire.CodeState},
		"DATA":           {func(req uint64) []byte { return append(link.AppendData(nil, link.Frame{Req: req}, 0, 1), 0) }, wire.CodeFlowViolation},
		"flipped byte":   {func(req uint64) []byte { b := message(link.TypeEnd, req, link.End{}); b[30] ^= 1; return b }, wire.CodeCRC},
		"ERROR": {func(uint64) []byte {
			return message(link.TypeError, 0, link.Error{Code: wire.CodeInvalid, Text: "why"})
		}, wire.CodeInvalid},
		"nothing, the end": {func(uint64) []byte { return nil }, wire.CodeLaneLost},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(d *daemon) {
				d.greet()
				f, _, _ := d.next()
				if b := c.send(f.Req); b != nil {
					d.write(b)
					d.untilGone()
				}
			})
			e, err := client.DialEngine(ctx, path, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = e.Ping(ctx)
			var closed *client.ClosedError
			if !errors.As(err, &closed) || !errors.Is(err, c.code) {
				t.Errorf("error %v, want a closed connection with %s", err, c.code)
			}
			e.Close()
		})
	}
}

// Two descriptors in one read, and frames cut anywhere: a stream has no borders.
func TestFramesInPieces(t *testing.T) {
	path := serve(t, func(d *daemon) {
		d.greet()
		f, _, _ := d.next()
		for _, b := range message(link.TypeEnd, f.Req, link.End{}) {
			d.write([]byte{b})
		}
		d.untilGone()
	})
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestCancelIsSentAndEndIsAwaited(t *testing.T) {
	released := make(chan struct{})
	path := serve(t, func(d *daemon) {
		d.greet()
		first, _, _ := d.next()
		f, _, _ := d.next()
		if f.Type != link.TypeCancel || f.Req != first.Req {
			t.Errorf("%s of %d, want CANCEL of %d", f.Type, f.Req, first.Req)
		}
		// The lease was granted before CANCEL came: it has to come back.
		d.write(message(link.TypeAcquired, first.Req, link.Acquired{Lease: [16]byte{3}, Items: make([]link.Place, 1)}), message(link.TypeEnd, first.Req, link.End{}))
		f, p, _ := d.next()
		x, err := link.Parse[link.Release](p)
		if f.Type != link.TypeRelease || err != nil || x.Leases[0] != ([16]byte{3}) {
			t.Errorf("%s %x, want RELEASE of the lease", f.Type, x.Leases)
		}
		close(released)
		d.untilGone()
	})
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err = e.Acquire(c, 0, make([]wire.Key, 1), client.AcquireOptions{})
	if !errors.Is(err, wire.CodeDeadline) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	<-released
	e.Close()
}

func TestDialSaysWhyNot(t *testing.T) {
	_, err := client.DialEngine(ctx, filepath.Join(t.TempDir(), "none"), client.Options{})
	if !errors.Is(err, wire.CodeUnreachable) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	path := serve(t, func(d *daemon) {
		d.next()
		d.write(message(link.TypeHello, 0, link.Hello{Min: 5, Max: 6, Features: link.FeatureLocal}))
	})
	if _, err = client.DialEngine(ctx, path, client.Options{}); !errors.Is(err, wire.CodeLinkVersion) {
		t.Errorf("other version: %v", err)
	}
	path = serve(t, func(d *daemon) {
		d.next()
		d.write(message(link.TypeHello, 0, link.Hello{Min: 1, Max: 1}))
	})
	if _, err = client.DialEngine(ctx, path, client.Options{}); !errors.Is(err, wire.CodeUnsupported) {
		t.Errorf("no LOCAL: %v", err)
	}
	c, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	path = serve(t, func(d *daemon) { d.untilGone() })
	if _, err = client.DialEngine(c, path, client.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent daemon: %v", err)
	}
}

func TestPhaseCallbackMayCallTheEngine(t *testing.T) {
	path := serve(t, func(d *daemon) {
		d.greet()
		for i := range uint32(100) {
			d.write(message(link.TypePhase, 0, link.Phase{Req: i, Kind: uint8(client.EnterThink)}))
		}
		for {
			f, _, ok := d.next()
			if !ok {
				return
			}
			d.write(message(link.TypeEnd, f.Req, link.End{}))
		}
	})
	got := make(chan uint32, 100)
	ready := make(chan *client.Engine, 1)
	var e *client.Engine
	e, err := client.DialEngine(ctx, path, client.Options{OnPhase: func(p client.Phase) {
		if p.Req == 0 {
			e := <-ready
			if err := e.Ping(ctx); err != nil {
				t.Error(err)
			}
		}
		got <- p.Req
	}})
	if err != nil {
		t.Fatal(err)
	}
	ready <- e
	for i := range uint32(100) {
		if p := <-got; p != i {
			t.Fatalf("advice about %d, want %d: in order", p, i)
		}
	}
	e.Close()
}

func TestColumnsMustFit(t *testing.T) {
	path := serve(t, func(d *daemon) { d.greet(); d.untilGone() })
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, x := range []link.Tokens{
		{Req: []uint32{1}, N: nil, Tok: nil},
		{Req: []uint32{1}, N: []uint8{2}, Tok: []int32{1}},
		{Req: make([]uint32, link.MaxRows+1), N: make([]uint8, link.MaxRows+1)},
	} {
		if err := e.Tokens(x.Req, x.N, x.Tok); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("error %v", err)
		}
	}
}
