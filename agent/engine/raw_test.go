package engine_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"meridian/wire"
	"meridian/wire/link"
)

// raw is an engine that sends what a client library would not.
type raw struct {
	t     testing.TB
	c     *net.UnixConn
	split link.Splitter
	buf   []byte
	left  []byte
}

type frame struct {
	f link.Frame
	p []byte
}

func (n *node) raw(t testing.TB) *raw {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: n.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &raw{t: t, c: c, buf: make([]byte, 64<<10)}
}

// hello is HELLO as an engine sends it.
func hello() []byte {
	return link.AppendMessage(nil, link.Frame{Type: link.TypeHello, Flags: link.FlagCritical},
		link.Hello{Min: 1, Max: 1, Features: link.FeatureLocal})
}

// greeted is a raw engine behind HELLO.
func (n *node) greeted(t testing.TB) *raw {
	t.Helper()
	r := n.raw(t)
	r.write(hello())
	if got := r.next(); got.f.Type != link.TypeHello {
		t.Fatalf("%s instead of HELLO", got.f.Type)
	}
	return r
}

// opened is a raw engine with namespace 0 of a tenant open. It returns what MAP
// said.
func (n *node) opened(t testing.TB, tenant string) (*raw, []link.Seg) {
	t.Helper()
	r := n.greeted(t)
	r.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest(tenant).Append(nil)}))
	var segs []link.Seg
	for {
		got := r.next()
		switch got.f.Type {
		case link.TypeMap:
			m, err := link.Parse[link.Map](got.p)
			if err != nil {
				t.Fatal(err)
			}
			segs = append(segs, m.Segs...)
		case link.TypeEnd:
			if e := r.end(got, 1); e.Code != wire.CodeOK {
				t.Fatalf("OPEN: %s", e.Code)
			}
			return r, segs
		}
	}
}

func message[M link.Message](typ link.Type, req uint64, m M) []byte {
	return link.AppendMessage(nil, link.Frame{Type: typ, Req: req}, m)
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.c.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// read returns the next frame, or io.EOF.
func (r *raw) read() (frame, error) {
	for {
		for len(r.left) > 0 {
			n, ev, err := r.split.Next(r.left)
			if err != nil {
				return frame{}, err
			}
			r.left = r.left[n:]
			if ev.Kind == link.EventMessage {
				return frame{ev.Frame, append([]byte(nil), ev.Payload...)}, nil
			}
		}
		n, err := r.c.Read(r.buf)
		if err != nil {
			return frame{}, err
		}
		r.left = r.buf[:n]
	}
}

func (r *raw) next() frame {
	r.t.Helper()
	f, err := r.read()
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// end asserts that f is END of req.
func (r *raw) end(f frame, req uint64) link.End {
	r.t.Helper()
	if f.f.Type != link.TypeEnd || f.f.Req != req {
		r.t.Fatalf("%s of request %d, want END of %d", f.f.Type, f.f.Req, req)
	}
	e, err := link.Parse[link.End](f.p)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// refusedWith asserts that ERROR comes, after any answers, and then the end.
func (r *raw) refusedWith(codes ...wire.Code) link.Error {
	r.t.Helper()
	for {
		f := r.next()
		if f.f.Type != link.TypeError {
			continue
		}
		e, err := link.Parse[link.Error](f.p)
		if err != nil {
			r.t.Fatal(err)
		}
		ok := false
		for _, c := range codes {
			ok = ok || e.Code == c
		}
		if !ok {
			r.t.Fatalf("ERROR %s (%s), want one of %v", e.Code, e.Text, codes)
		}
		if _, err := r.read(); !errors.Is(err, io.EOF) {
			r.t.Fatalf("after ERROR: %v, want the end", err)
		}
		return e
	}
}
