package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/testbed"
	"meridian/wire"
)

// start opens a relay on the loopback that ends with the test.
func start(t *testing.T, cfg Config) *Relay {
	t.Helper()
	cfg.Label, cfg.Peer, cfg.Server = "relay", "far", metadata.P2P
	cfg.Listen = or(cfg.Listen)
	if cfg.Data.Host == "" {
		cfg.Data.Host = "127.0.0.1"
	}
	if cfg.Refused == nil {
		cfg.Refused = func(string, bool, error) {}
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// engineOf is a target of this build: memory at an address, a handshake at a port that
// stays, and a data plane.
type engineOf struct {
	name string
	base uint64
	mem  []byte

	daemon *handshake.Server
	target *engine.Target

	mu       sync.Mutex
	proto    int
	buffers  []segment.Buffer // that the descriptor has
	host     string           // that the descriptor says
	data     netip.AddrPort
	wrote    uint64
	notifies []handshake.Notify
}

func (e *engineOf) Enter(_ string, addr, n uint64, _ bool) ([]byte, func(uint64), error) {
	if addr < e.base || addr-e.base > uint64(len(e.mem)) || n > uint64(len(e.mem))-(addr-e.base) {
		return nil, nil, wire.CodeInvalid
	}
	return e.mem[addr-e.base:][:n:n], func(wrote uint64) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.wrote += wrote
	}, nil
}

// has is a part of its memory, as accesses that have ended left it.
func (e *engineOf) has(at, n int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.mem[at:][:n])
}

// says has it tell that its data plane is at another host.
func (e *engineOf) says(host string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.host = host
}

func (e *engineOf) notified(_ *door.Conn, n handshake.Notify) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.Text == "no" {
		return wire.CodeDenied
	}
	e.notifies = append(e.notifies, n)
	return nil
}

// newEngine starts an engine; at and data "" are ports that are free.
func newEngine(t *testing.T, at, data string, base uint64, n int) *engineOf {
	t.Helper()
	e := &engineOf{base: base, mem: make([]byte, n), proto: 2, buffers: []segment.Buffer{{Name: "cpu:0", Addr: base, Len: uint64(n)}}}
	everybody := func(a netip.Addr) (string, error) { return a.String(), nil }
	ignored := func(string, error) {}
	e.target = engine.NewTarget(engine.TargetConfig{Memory: e, Admit: everybody, Refused: ignored})
	e.daemon = handshake.NewServer(handshake.Config{Admit: everybody, Refused: ignored, Notified: e.notified, Descriptor: func(string) segment.Descriptor {
		e.mu.Lock()
		defer e.mu.Unlock()
		return segment.Descriptor{
			Name: "whatever", Protocols: []string{segment.TCP}, DataHost: e.host, DataPort: e.data.Port(), Proto: e.proto, Timestamp: "then", Buffers: e.buffers,
		}
	}})
	t.Cleanup(e.stop)
	var err error
	if e.data, err = e.target.Listen(t.Context(), or(data)); err != nil {
		t.Fatal(err)
	}
	port, err := e.daemon.Listen(t.Context(), or(at))
	if err != nil {
		t.Fatal(err)
	}
	e.name = port.String()
	return e
}

func or(addr string) string {
	if addr == "" {
		return "127.0.0.1:0"
	}
	return addr
}

func (e *engineOf) stop() {
	e.daemon.Close()
	e.target.Close()
}

// open is a source of this build that has opened the relay's segment.
func open(t *testing.T, r *Relay) *engine.Segment {
	t.Helper()
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	t.Cleanup(in.Close)
	s, err := in.Open(t.Context(), r.Name())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func do(t *testing.T, s *engine.Segment, write bool, addr uint64, b []byte) error {
	t.Helper()
	ops := []engine.Op{{Addr: addr, B: b}}
	if write {
		s.Write(t.Context(), ops)
	} else {
		s.Read(t.Context(), ops)
	}
	return ops[0].Err
}

func TestTheMirrorHasTheTargetsMemoryAndTheRelaysAddress(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name})
	d, _, err := (&handshake.Client{}).Get(t.Context(), r.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := segment.Buffer{Name: "cpu:0", Addr: base, Len: 64}
	if d.Name != r.Name() || d.DataHost != "127.0.0.1" || d.DataPort == e.data.Port() || d.DataPort == 0 || d.Proto != 2 || d.Timestamp != "then" ||
		len(d.Protocols) != 1 || d.Protocols[0] != segment.TCP || len(d.Buffers) != 1 || d.Buffers[0] != want {
		t.Errorf("%+v", d)
	}
}

func TestSourcesOfThisBuildReadAndWriteThroughIt(t *testing.T) {
	const n = 9<<20 + 7
	for _, proto := range []int{1, 2} {
		e := newEngine(t, "", "", base, n)
		e.proto = proto
		r := start(t, Config{Target: e.name})
		s, want, got := open(t, r), make([]byte, n), make([]byte, n)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		if err := do(t, s, true, base, want); err != nil || e.has(0, n) != string(want) {
			t.Errorf("version %d: write: %v", proto, err)
		}
		if err := do(t, s, false, base, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("version %d: read: %v", proto, err)
		}
	}
}

func TestARelayOnIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this host has no IPv6:", err)
	} else {
		_ = l.Close()
	}
	e := newEngine(t, "[::1]:0", "[::1]:0", base, 64)
	r := start(t, Config{Target: e.name, Listen: "[::1]:0", Data: Ports{Host: "::1"}})
	if err := do(t, open(t, r), true, base, []byte("six")); err != nil || e.has(0, 3) != "six" || !strings.HasPrefix(r.Name(), "[::1]:") {
		t.Errorf("%s: %v", r.Name(), err)
	}
}

// A source of version 1 gets no status, whatever the target speaks.
func TestASourceOfVersionOneAtATargetOfVersionTwo(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name})
	open(t, r)
	now, _ := r.target.current()
	c, err := net.Dial("tcp", now.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	send(t, c, head(0x01, base, 5), []byte("abcde"), head(0x00, base+1, 3))
	if got := receive(t, c, 3); string(got) != "bcd" {
		t.Errorf("%q", got)
	}
	send(t, c, head(0x01, base+62, 5), []byte("abcde"))
	if m, _ := c.Read(make([]byte, 1)); m != 0 {
		t.Error("a refusal has a status")
	}
}

func TestProbesAndNotifiesGoToTheTarget(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name, Sources: []Source{{Name: "app", From: netip.MustParsePrefix("127.0.0.0/8")}}})
	var c handshake.Client
	if err := c.Probe(t.Context(), r.Name()); err != nil {
		t.Error(err)
	}
	told := handshake.Notify{Name: "me:1", Text: "a < b\n"}
	if err := c.Notify(t.Context(), r.Name(), told); err != nil || len(e.notifies) != 1 || e.notifies[0] != told {
		t.Errorf("%v, %q", err, e.notifies)
	}
	if err := c.Notify(t.Context(), r.Name(), handshake.Notify{Text: "no"}); !errors.Is(err, wire.CodeDenied) {
		t.Errorf("what the target refuses: %v", err)
	}
	e.stop()
	if err := c.Probe(t.Context(), r.Name()); err == nil {
		t.Error("a target that is gone answers a probe")
	}
	if err := c.Notify(t.Context(), r.Name(), told); !errors.Is(err, wire.CodeDenied) {
		t.Errorf("a target that is gone takes a notify: %v", err)
	}
	if _, _, err := c.Get(t.Context(), r.Name()); err == nil {
		t.Error("a target that is gone has a descriptor")
	}
	if got := r.Relayed()[0]; got.Source != "app" || got.Notifies != 1 || got.Refused[wire.CodeDenied] != 1 || got.Refused[wire.CodeUnreachable] != 3 {
		t.Errorf("%+v", got)
	}
}

// The status is there although the source still sends when the relay has refused.
func TestARefusalSurvivesWhatTheSourceStillSends(t *testing.T) {
	e := newEngine(t, "", "", base, 64)
	r := start(t, Config{Target: e.name})
	open(t, r)
	now, _ := r.target.current()
	for range 20 {
		c, err := net.Dial("tcp", now.at.String())
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = c.Write(append(head(0x81, base, 1<<20), make([]byte, 1<<20)...))
		}()
		if got, err := io.ReadAll(c); err != nil || string(got) != rejected {
			t.Errorf("% x, %v", got, err)
		}
		_ = c.Close()
		<-sent
	}
}

// liar answers each request on its data plane as the test says.
func liar(t *testing.T, answer func(c net.Conn)) *engineOf {
	t.Helper()
	e := newEngine(t, "", "", base, 8<<20)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	e.data = netip.MustParseAddrPort(l.Addr().String())
	return e
}

// A target cannot have what has not been sent: its acknowledgement is a lie, and a
// refusal is told at once.
func TestAStatusBeforeTheEndOfABody(t *testing.T) {
	for said, code := range map[string]wire.Code{fine: wire.CodeState, rejected: wire.CodeStale} {
		lied := make(chan struct{}, 1)
		e := liar(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, engine.RequestLen+4))
			_, _ = c.Write([]byte(said))
			lied <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
		})
		refused := make(chan error, 8)
		r := start(t, Config{Target: e.name, Refused: func(_ string, _ bool, err error) { refused <- err }})
		now, err := r.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", now.at.String())
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, head(0x81, base, 12), []byte("four"))
		<-lied
		send(t, c, []byte("more"))
		ends(t, c, rejected)
		_ = c.Close()
		if err := <-refused; wire.CodeOf(err) != code {
			t.Errorf("refused %v, want %v", err, code)
		}
	}
}

// What a target sends behind its answer belongs to no request.
func TestALaneOnWhichATargetSaysMoreIsNotUsedAgain(t *testing.T) {
	conns := make(chan struct{}, 8)
	e := liar(t, func(c net.Conn) {
		conns <- struct{}{}
		_, _ = io.ReadFull(c, make([]byte, engine.RequestLen))
		_, _ = c.Write([]byte(fine + "x" + fine + "y"))
		_, _ = c.Read(make([]byte, 1))
	})
	r := start(t, Config{Target: e.name})
	s, got := open(t, r), []byte{0}
	for range 2 {
		if err := do(t, s, false, base, got); err != nil || got[0] != 'x' {
			t.Errorf("%q, %v", got, err)
		}
	}
	if len(conns) != 2 {
		t.Errorf("%d connections, want 2", len(conns))
	}
}

// Sources get in by allow; what is counted has the names of the configuration only.
func TestWhoMayConnect(t *testing.T) {
	at := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	r := prepare(t.Context(), Config{Refused: func(string, bool, error) {}, Sources: []Source{
		{From: at("192.0.2.0/24")}, {Name: "app", From: at("192.0.2.7/32")}, {Name: "six", From: at("2001:db8::/64")},
	}})
	defer r.cancel()
	for source, want := range map[string]struct {
		peer, counted string
		ok            bool
	}{
		"192.0.2.7":        {"app", "app", true},
		"::ffff:192.0.2.7": {"app", "app", true},
		"192.0.2.8":        {"192.0.2.8", Others, true},
		"2001:db8::1":      {"six", "six", true},
		"127.0.0.1":        {"127.0.0.1", Others, true},
		"192.0.3.1":        {"192.0.3.1", Others, false},
	} {
		peer, err := r.admit(netip.MustParseAddr(source))
		if peer != want.peer || (err == nil) != want.ok || err != nil && !errors.Is(err, wire.CodeAuth) || r.of(peer).n.Source != want.counted {
			t.Errorf("%s: %s, counted as %s, %v", source, peer, r.of(peer).n.Source, err)
		}
	}
}

// A target's descriptor must not send the relay to somebody else.
func TestTheTargetMayNotSendTheRelayElsewhere(t *testing.T) {
	elsewhere, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("no second loopback address:", err)
	}
	defer func() { _ = elsewhere.Close() }()
	for _, allowed := range []bool{false, true} {
		e := newEngine(t, "", "", base, 64)
		cfg := Config{Target: e.name}
		if allowed {
			cfg.Reach = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
		}
		r := start(t, cfg)
		c, err := r.dial(t.Context(), elsewhere.Addr().String())
		if (err == nil) != allowed || err != nil && !errors.Is(err, wire.CodeDenied) {
			t.Errorf("allowed %v: %v", allowed, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

// A relay is no place for blocks, and says so.
func TestARelayTakesNoBlocks(t *testing.T) {
	r := prepare(t.Context(), Config{Label: "relay", Peer: "far"})
	defer r.cancel()
	if err := r.Usable(wire.Namespace{}); !errors.Is(err, wire.CodeUnsupported) {
		t.Error(err)
	}
	if r.Peer("far") == nil || r.Peer("near") != nil {
		t.Error("the path to the target")
	}
	if p := r.Peers()[0]; p.Name != "far" || p.Code != wire.CodeUnreachable || !p.Listed {
		t.Errorf("%+v", p)
	}
}

// 2,000 short requests of several sources side by side leave nothing behind.
func TestManySourcesAtTheSameTime(t *testing.T) {
	e := newEngine(t, "", "", base, 64<<10)
	r := start(t, Config{Target: e.name, Doors: limited(map[quota.Resource]uint64{quota.RelayBytes: 1 << 20})})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, b := open(t, r), make([]byte, 1000)
			for range 250 {
				if err := do(t, s, i%2 == 0, base+uint64(i)*4096, b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	testbed.Until(t, "all have left", func() bool { return r.active.Load() == 0 && r.pieces.Used() == 0 })
	if got := r.Relayed()[0]; got.Requests != 2000 || got.Written != 1_000_000 || got.Read != 1_000_000 {
		t.Errorf("%+v", got)
	}
}
