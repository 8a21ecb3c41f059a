package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/realstore"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/store"
	"meridian/wire"
)

func openRaw(t *testing.T, master string, change func(*Config)) *Store {
	t.Helper()
	m, err := store.ParseMasters(master, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Label: "attic", Masters: m, Prefix: "mrdn", Raw: true}
	if change != nil {
		change(&c)
	}
	s := New(c)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// What the real client puts is read byte for byte, as proved only where the client left a
// CRC-64; what may be a block is not read, and nothing is where the table says so.
func TestObjectsOfARealClientAreReadAsOpaque(t *testing.T) {
	master := realstore.StartMaster(t)
	newLender(t, master)
	plain, summing := realstore.StartClient(t, master.Address, 0), realstore.StartClient(t, master.Address, 0, realstore.WithChecksum...)
	s := openRaw(t, master.Address, nil)
	body := wheel.Content(5_000_000, 3)
	for key, c := range map[string]struct {
		by    *realstore.Client
		crc64 bool
	}{"page/7": {plain, false}, "summed": {summing, true}, "mrdn": {plain, false}, "mrdnx/y": {plain, false}} {
		if rc := c.by.Put(key, body); rc != 0 {
			t.Fatal("put:", rc)
		}
		o, err := s.Object(t.Context(), key, uint64(len(body)))
		if err != nil || !bytes.Equal(o.B, body) || o.CRC64 != c.crc64 {
			t.Errorf("%s: %d bytes, crc64 %v, %v", key, len(o.B), o.CRC64, err)
		}
	}
	if rc := plain.Put("mrdn/any", body); rc != 0 {
		t.Fatal("put:", rc)
	}
	for key, want := range map[string]struct {
		code wire.Code
		says string
	}{
		"none":     {wire.CodeAbsent, "no such object"},
		"mrdn/any": {wire.CodeDenied, "mrdn block get"},
		"":         {wire.CodeInvalid, "no key"},
	} {
		if o, err := s.Object(t.Context(), key, 1<<30); !errors.Is(err, want.code) || !strings.Contains(err.Error(), want.says) || o.B != nil {
			t.Errorf("%q: %d bytes, %v", key, len(o.B), err)
		}
	}
	if o, err := s.Object(t.Context(), "page/7", uint64(len(body)-1)); !errors.Is(err, wire.CodeTooLarge) || !strings.Contains(err.Error(), "the limit is 4999999") || o.B != nil {
		t.Errorf("above the limit: %d bytes, %v", len(o.B), err)
	}
	closed := openRaw(t, master.Address, func(c *Config) { c.Raw = false })
	if o, err := closed.Object(t.Context(), "page/7", 1<<30); !errors.Is(err, wire.CodeDenied) || !strings.Contains(err.Error(), "raw = true in [fabric.attic]") || o.B != nil {
		t.Errorf("without raw: %d bytes, %v", len(o.B), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Object(ctx, "page/7", 1<<30); !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("given up: %v", err)
	}
	_ = s.Close()
	if _, err := s.Object(t.Context(), "page/7", 1<<30); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("closed: %v", err)
	}
}

// cut is a connection that ends after so many bytes have come.
type cut struct {
	net.Conn
	left int
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// A node that sends a part of an object and ends is no object.
func TestANodeThatStopsInTheMiddleOfAnObject(t *testing.T) {
	master := realstore.StartMaster(t)
	newLender(t, master)
	theirs := realstore.StartClient(t, master.Address, 0)
	if rc := theirs.Put("page", wheel.Content(1<<20, 4)); rc != 0 {
		t.Fatal("put:", rc)
	}
	s := openRaw(t, master.Address, func(c *Config) {
		c.Resolver = &handshake.Client{}
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &cut{conn, 300_000}, nil
		}
	})
	if o, err := s.Object(t.Context(), "page", 1<<30); !errors.Is(err, wire.CodeLaneLost) || o.B != nil {
		t.Errorf("%d bytes, %v", len(o.B), err)
	}
}

// A node whose memory changed after the client left its CRC-64 does not pass for it.
func TestAnObjectThatIsDamagedDoesNotFitItsCRC64(t *testing.T) {
	master := realstore.StartMaster(t)
	l := newLender(t, master)
	body := wheel.Content(100_000, 5)
	for key, env := range map[string][]string{"summed": realstore.WithChecksum, "plain": nil} {
		if rc := realstore.StartClient(t, master.Address, 0, env...).Put(key, body); rc != 0 {
			t.Fatal("put:", rc)
		}
		if err := l.damage(t, body); err != nil {
			t.Fatal(err)
		}
	}
	s := openRaw(t, master.Address, nil)
	if o, err := s.Object(t.Context(), "summed", 1<<30); !errors.Is(err, wire.CodeChecksum) || o.B != nil {
		t.Errorf("%d bytes, %v", len(o.B), err)
	}
	if o, err := s.Object(t.Context(), "plain", 1<<30); err != nil || o.CRC64 || bytes.Equal(o.B, body) {
		t.Errorf("without a CRC-64 nobody can tell: %v", err)
	}
}
