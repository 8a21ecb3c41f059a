package engine

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/pipenet"
	"meridian/wire"
)

// liar is a peer that answers each request on a connection with the next text, and then
// is silent; "" closes.
type liar struct {
	*pipenet.Listener
	answers []string
	asked   atomic.Int64
	body    int // bytes that it reads behind each header
	wg      sync.WaitGroup
}

func newLiar(body int, answers ...string) *liar {
	l := &liar{Listener: pipenet.New(), answers: answers, body: body}
	l.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.serve(c) })
		}
	})
	return l
}

func (l *liar) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for _, text := range l.answers {
		if _, err := io.CopyN(io.Discard, c, int64(headerLen+l.body)); err != nil {
			return
		}
		l.asked.Add(1)
		if text == "" {
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, c)
}

func (l *liar) segment(t *testing.T, proto int) *Segment {
	t.Helper()
	k := &known{}
	k.set(9, base)
	k.d.Proto = proto
	in := NewInitiator(InitiatorConfig{Resolver: k, Dial: l.Dial})
	t.Cleanup(in.Close)
	s, err := in.Open(t.Context(), "liar:1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestALyingPeerIsFoundOut(t *testing.T) {
	const silent = "\x00" // a byte that begins a status
	for name, c := range map[string]struct {
		write  bool
		answer string
		proto  int
		code   wire.Code
		text   string
		asked  int64
		took   time.Duration
	}{
		"no status":                    {false, silent, 2, wire.CodeNoProgress, "waiting for a status, 1 of 8", 1, StatusTime},
		"no status of a write":         {true, silent, 2, wire.CodeNoProgress, "waiting for a status, 1 of 8", 1, StatusTime},
		"a wrong magic":                {false, "\x00\x00\x00\x00MCTV", 2, wire.CodeState, "status frame 00 00 00 00 4d", 1, 0},
		"a status of 7":                {true, "\x07\x00\x00\x00VTCM", 2, wire.CodeState, "status 7, known are 0 and 1", 1, 0},
		"a refusal":                    {false, statusNo, 2, wire.CodeStale, "liar:1 refused the read of 4 bytes", 1, 0},
		"a refused write":              {true, statusNo, 2, wire.CodeStale, "refused the write", 1, 0},
		"half a body":                  {false, statusFine + "ab", 2, wire.CodeNoProgress, "receiving a body, 2 of 4 bytes", 1, ProgressTime},
		"it closes: a read once more":  {false, "", 2, wire.CodeLaneLost, "waiting for a status", 2, 0},
		"it closes: a write does not":  {true, "", 2, wire.CodeLaneLost, "waiting for a status", 1, 0},
		"version 1, half a body":       {false, "ab", 1, wire.CodeNoProgress, "2 of 4 bytes", 1, ProgressTime},
		"version 1 refuses by closing": {false, "", 1, wire.CodeLaneLost, "receiving a body, 0 of 4", 2, 0},
		"version 1, no proof":          {true, "", 1, wire.CodeLaneLost, "was not confirmed by a read behind it", 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			body := 0
			if c.write {
				body = 4
			}
			l := newLiar(body, c.answer)
			s := l.segment(t, c.proto)
			began := time.Now()
			ops := []Op{{Addr: base, B: []byte("wxyz")}}
			s.run(t.Context(), ops, c.write)
			if err := ops[0].Err; wire.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v, want %v %q", name, err, c.code, c.text)
			}
			if took := time.Since(began); took != c.took || l.asked.Load() != c.asked {
				t.Errorf("%s: %d requests in %v, want %d in %v", name, l.asked.Load(), took, c.asked, c.took)
			}
			_ = l.Close()
			s.end()
			l.wg.Wait()
		})
	}
}

// The bytes on a version 1 connection: a write, then a read of its last byte; and a
// connection for each request, since some close after one.
func TestAWriteWithoutAcknowledgementIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		k := &known{}
		k.set(9, base)
		k.d.Proto = 1
		in := NewInitiator(InitiatorConfig{Resolver: k, Dial: l.Dial})
		s, err := in.Open(t.Context(), "a:1")
		if err != nil {
			t.Fatal(err)
		}
		for _, last := range []byte{'d', 'x'} {
			var got []byte
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				b := make([]byte, 2*headerLen+4)
				_, _ = io.ReadFull(c, b)
				got = b
				_, _ = c.Write([]byte{last})
				if n, err := c.Read(b); err == nil {
					t.Errorf("%d bytes more", n)
				}
			}()
			ops := []Op{{Addr: base + 8, B: []byte("abcd")}}
			s.Write(t.Context(), ops)
			<-done
			if code := wire.CodeOf(ops[0].Err); last == 'd' && code != wire.CodeOK || last == 'x' && code != wire.CodeChecksum {
				t.Errorf("read back %q: %v", last, ops[0].Err)
			}
			want := make([]byte, 0, len(got))
			for _, h := range []header{{addr: base + 8, size: 4, write: true}, {addr: base + 11, size: 1}} {
				var b [headerLen]byte
				h.put(&b)
				want = append(want, b[:]...)
				if h.write {
					want = append(want, "abcd"...)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("sent % x, want % x", got, want)
			}
		}
		_ = l.Close()
		in.Close()
	})
}

// A peer that refuses while a long body is on its way, and reads no more, as Mooncake's
// own target does.
func TestAnEarlyRefusalIsUnderstood(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, c, headerLen)
		_, _ = io.WriteString(c, statusNo)
		_ = c.Close() // with bytes unread: a reset
	})
	k := &known{}
	k.set(uint16(l.Addr().(*net.TCPAddr).Port), base)
	in := NewInitiator(InitiatorConfig{Resolver: k})
	defer in.Close()
	s, err := in.Open(t.Context(), "a:1")
	if err != nil {
		t.Fatal(err)
	}
	ops := []Op{{Addr: base, B: make([]byte, maxUnacked)}}
	if s.Write(t.Context(), ops); !errors.Is(ops[0].Err, wire.CodeStale) {
		t.Error(ops[0].Err)
	}
}

// Something that nobody asked for on an idle lane: the lane is of no use.
func TestALaneThatSpeaksUnaskedIsNotUsed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	lane := &lane{Conn: nc}
	defer lane.close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if !lane.alive() {
		t.Error("an idle lane is taken for dead")
	}
	_, _ = c.Write([]byte{1})
	one := make([]byte, 1)
	for n := 0; n == 0; { // until it has arrived
		n, _ = lane.peek(one)
	}
	if lane.alive() {
		t.Error("a lane with a byte in it is taken for idle")
	}
	if _, err := io.ReadFull(nc, one); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for ended := false; !ended; {
		_, ended = lane.peek(one)
	}
	if lane.alive() {
		t.Error("a lane that the peer closed is taken for alive")
	}
	lane.close()
	if lane.alive() {
		t.Error("a closed lane is taken for alive")
	}
}
