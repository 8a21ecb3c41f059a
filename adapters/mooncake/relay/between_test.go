package relay

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/pipenet"
	"meridian/wire"
)

const (
	base     = 0x7f00_0000_0000
	fine     = "\x00\x00\x00\x00VTCM"
	rejected = "\x01\x00\x00\x00VTCM"
)

// plane says what the test wants to be the target.
type plane struct {
	metadata.Plane
	hang bool
	mu   sync.Mutex
	d    segment.Descriptor
	err  error
}

func (p *plane) Endpoint(context.Context, string) (metadata.Endpoint, error) {
	return metadata.Endpoint{Host: "192.0.2.9", Port: 9}, nil
}

func (p *plane) Get(ctx context.Context, _ string) (segment.Descriptor, string, error) {
	if p.hang {
		<-ctx.Done()
		return segment.Descriptor{}, "", ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.d, "192.0.2.9", p.err
}

func (p *plane) Close() error { return nil }

func (p *plane) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// asks is how many probes and notifies there may be at the target.
const asks = 128

// limited has limits of all, half of which one source may have.
func limited(all map[quota.Resource]uint64) *door.Common {
	var book quota.Book
	for r, n := range all {
		book.SetLimit(r, quota.Source, n/2)
		book.SetLimit(r, quota.All, n)
	}
	return door.NewCommon(&book)
}

// between is a relay under a fake clock. The test is its sources and its target.
type between struct {
	*pipenet.Listener // for sources
	r                 *Relay
	l                 *life
	plane             *plane
	calls             chan net.Conn // what the relay dialled

	mu      sync.Mutex
	refused []error
}

func bubble(t *testing.T, proto int, run func(t *testing.T, b *between)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &between{Listener: pipenet.New(), calls: make(chan net.Conn, 64)}
		b.plane = &plane{d: segment.Descriptor{
			Name: "far", Protocols: []string{segment.TCP}, DataPort: 9, Proto: proto,
			Buffers: []segment.Buffer{{Name: "a", Addr: base, Len: 4 << 20}, {Name: "b", Addr: base + 4<<20, Len: 4 << 20}},
		}}
		sources := []Source{{From: netip.MustParsePrefix("192.0.2.0/24")}}
		b.r = prepare(t.Context(), Config{Label: "relay", Sources: sources, Doors: limited(map[quota.Resource]uint64{quota.DataConns: 8, quota.RelayBytes: 4 * pieceLen, quota.RelayCalls: asks}), Refused: func(_ string, _ bool, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, err)
		}})
		b.r.plane = b.plane
		b.r.connect = func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			b.calls <- there
			return here, nil
		}
		b.l = b.r.newLife("192.0.2.9:9", b.plane.d)
		b.r.target.now, b.r.target.err = b.l, nil
		b.l.door.Open(b.Listener)
		defer b.close(t)
		run(t, b)
	})
}

func (b *between) close(t *testing.T) {
	t.Helper()
	if err := b.r.Close(); err != nil {
		t.Error(err)
	}
	if n := b.r.pieces.Used(); n != 0 {
		t.Errorf("%d bytes are never given back", n)
	}
}

func (b *between) source(t *testing.T, from string) net.Conn {
	t.Helper()
	c, err := b.From(t.Context(), from+":9")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// target is the connection that the relay made for a request.
func (b *between) target(t *testing.T) net.Conn {
	t.Helper()
	c := <-b.calls
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// only is the one refusal that was told.
func (b *between) only(t *testing.T, code wire.Code, text string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.refused) != 1 || wire.CodeOf(b.refused[0]) != code || !strings.Contains(b.refused[0].Error(), text) {
		t.Errorf("refused %v, want %v %q", b.refused, code, text)
	}
	if n := b.r.counts[Others].n.Refused[code]; n == 0 {
		t.Errorf("%v was not counted", code)
	}
	b.refused = nil
}

func head(op byte, addr, size uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, size)
	b = binary.LittleEndian.AppendUint64(b, addr)
	return append(b, op, 0xde, 0xad, 0, 0, 0, 0, 0xff) // Mooncake leaves the padding as it was in memory
}

func send(t *testing.T, c net.Conn, parts ...[]byte) {
	t.Helper()
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, c net.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if m, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("%d of %d bytes: %v", m, n, err)
	}
	return b
}

// ends reads what is left of a connection.
func ends(t *testing.T, c net.Conn, want string) {
	t.Helper()
	if got, err := io.ReadAll(c); err != nil || string(got) != want {
		t.Errorf("the rest is % x (%v), want % x", got, err, want)
	}
}
