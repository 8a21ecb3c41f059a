package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/internal/safefile"
	"meridian/wire"
	proto "meridian/wire/link"
)

// refusedAs waits until the peer is refused, and checks code and text.
func refusedAs(t *testing.T, p *Peer, want wire.Code, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		i := p.info()
		if i.State == StateReady {
			t.Fatal("the peer is ready")
		}
		if i.State == StateRefused {
			if i.Code != want || !strings.Contains(i.Text, text) {
				t.Errorf("refused with %v %q, want %v and %q", i.Code, i.Text, want, text)
			}
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the peer is %v: %v %s", i.State, i.Code, i.Text)
		}
	}
}

func TestPeersWithoutTheRightProofAreRefusedAndSayWhy(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	key := []byte("the key of this test")
	for _, c := range []struct {
		name     string
		listen   string
		acceptor func(*Config)
		dialler  func(*Config)
		entry    PeerConfig // the dialler's, for the acceptor
		text     string
	}{
		{
			"wrong key", "tcp://127.0.0.1:0",
			func(c *Config) {
				c.Insecure, c.PSK = false, key
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			},
			func(c *Config) { c.Insecure, c.PSK = false, []byte("another") },
			PeerConfig{}, "proof by pre-shared key is wrong",
		},
		{
			"no key", "tcp://127.0.0.1:0",
			func(c *Config) { c.Insecure, c.PSK = false, key },
			func(c *Config) {},
			PeerConfig{}, "wants pre-shared key",
		},
		{
			"key for one that is insecure", "tcp://127.0.0.1:0",
			func(c *Config) {},
			func(c *Config) { c.Insecure, c.PSK = false, key },
			PeerConfig{}, "wants nothing",
		},
		{
			"neither key nor insecure", "tcp://127.0.0.1:0",
			func(c *Config) { c.Insecure = false },
			func(c *Config) {},
			PeerConfig{}, "insecure is not set",
		},
		{
			"not on the list", "tcp://127.0.0.1:0",
			func(c *Config) {
				c.Insecure, c.PSK = false, key
				c.Peers = []PeerConfig{{Name: "c", Tenants: []string{"t"}}}
			},
			func(c *Config) { c.Insecure, c.PSK = false, key },
			PeerConfig{}, "allow list",
		},
		{
			"another agent under that name", "tcp://127.0.0.1:0",
			func(c *Config) { c.Peers = []PeerConfig{{Name: "a", Agent: agentID(9)}} },
			func(c *Config) {},
			PeerConfig{}, "not 09",
		},
		{
			"certificate of a stranger", "tls://127.0.0.1:0",
			func(c *Config) { c.TLS = ca.issue("b", "t") },
			func(c *Config) { c.TLS = stranger.issue("a", "t") },
			PeerConfig{}, "tls",
		},
		{
			"certificate of another name", "tls://127.0.0.1:0",
			func(c *Config) {
				c.TLS = ca.issue("b", "t")
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			},
			func(c *Config) { c.TLS = ca.issue("x", "t") },
			PeerConfig{}, "allow list",
		},
		{
			"certificate without an allowed tenant", "tls://127.0.0.1:0",
			func(c *Config) {
				c.TLS = ca.issue("b", "t")
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			},
			func(c *Config) { c.TLS = ca.issue("a", "other", "x", "y", "z") },
			PeerConfig{}, `a proved tenant "other", "x", "y" and 1 more, and link.peer.tenants has none of them`,
		},
		{
			"certificate of tenants for a peer that may have none", "tls://127.0.0.1:0",
			func(c *Config) {
				c.TLS = ca.issue("b", "t")
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{}}}
			},
			func(c *Config) { c.TLS = ca.issue("a", "t") },
			PeerConfig{}, "a may have no tenant: link.peer.tenants is empty",
		},
		{
			"certificate without a tenant", "tls://127.0.0.1:0",
			func(c *Config) {
				c.TLS = ca.issue("b", "t")
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			},
			func(c *Config) { c.TLS = ca.issue("a") },
			PeerConfig{}, "a proved no tenant: its certificate names none as meridian://tenant/NAME",
		},
		{
			"itself", "tcp://127.0.0.1:0",
			func(c *Config) { c.Agent = agentID(1) },
			func(c *Config) {},
			PeerConfig{}, "itself",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			b := start(t, 2, 20, c.listen, c.acceptor)
			a := start(t, 1, 10, "", func(cfg *Config) {
				cfg.Name = "a"
				c.dialler(cfg)
				cfg.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
			})
			refusedAs(t, a.Peer("b"), wire.CodeAuth, c.text)
			if b.Stats().Sessions != 0 || a.Stats().Sessions != 0 {
				t.Error("a refused peer has a session")
			}
		})
	}
}

func TestPreSharedKeyLetsBothSidesIn(t *testing.T) {
	noLeaks(t)
	key := []byte("the key of this test")
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.PSK, c.Name = false, key, "b"
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.Insecure, c.Name = false, "a"
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, PSK: key, Tenants: []string{"t"}}}
	})
	ready(t, a.Peer("b"))
	ready(t, b.Peer("a")) // over the session that a dialled
	ctx := testContext(t)
	ns, err := b.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	body := randomBody(70_000)
	a.store.Add(ns, key0(ns), wire.ThinkActive, body)
	it := []fabric.Item{{NS: ns, Key: key0(ns), M: fabric.Mem{B: make([]byte, wire.HeaderLen+len(body))}}}
	b.Peer("a").Pull(ctx, it)
	if it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	i := b.Peers()[0]
	if i.Dialled || i.Auth != "pre-shared key" || i.Agent != agentID(1) || i.Inc != 10 || i.Transport != viaTCP || !strings.HasPrefix(i.Addr, "127.0.0.1:") {
		t.Errorf("b says of a: %+v", i)
	}
}

func key0(ns wire.Namespace) wire.Key { return key(ns, 0) }

// A namespace of a tenant that the peer has not proved answers as one that does
// not exist, for every call, and nothing of it moves.
func TestTenantsAreKeptApart(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	b := start(t, 2, 20, "tls://127.0.0.1:0", func(c *Config) {
		c.TLS = ca.issue("b", "t", "secret")
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.TLS = ca.issue("a", "t", "secret") // vouched for by the authority, not allowed by b
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t", "secret"}}}
	})
	p := a.Peer("b")
	ready(t, p)
	ctx := testContext(t)
	there, err := b.ns.Add(testManifest("secret"))
	if err != nil {
		t.Fatal(err)
	}
	b.store.Add(there, key0(there), wire.ThinkActive, randomBody(1000))
	nowhere := testManifest("secret")
	nowhere.Model = "a model that nobody has"
	var texts []string
	for _, m := range []wire.Manifest{testManifest("secret"), nowhere} {
		ns, err := a.ns.Add(m)
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]func([]fabric.Item){
			"find": func(it []fabric.Item) { p.Find(ctx, it) },
			"pull": func(it []fabric.Item) { p.Pull(ctx, it) },
			"push": func(it []fabric.Item) { p.Push(ctx, it) },
		}
		for name, call := range calls {
			it := []fabric.Item{{NS: ns, Key: key0(ns), M: payload(t, wire.ThinkActive, randomBody(1000))}}
			call(it)
			if !errors.Is(it[0].Err, wire.CodeNSUnknown) {
				t.Errorf("%s: %v, want NS_UNKNOWN", name, it[0].Err)
			}
			texts = append(texts, it[0].Err.Error())
		}
	}
	for _, s := range texts {
		if s != texts[0] {
			t.Errorf("a namespace that is there answers %q, one that is not %q", texts[0], s)
		}
	}
}

func TestGeometryNamesTheFieldAndBothValues(t *testing.T) {
	a, b, p := pair(t, "tcp://127.0.0.1:0")
	theirs := testManifest("t")
	theirs.BlockTokens = 32
	if _, err := b.ns.Add(theirs); err != nil {
		t.Fatal(err)
	}
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	it := []fabric.Item{{NS: ns, Key: key0(ns)}}
	p.Find(testContext(t), it)
	var g *wire.GeometryError
	if !errors.As(it[0].Err, &g) || g.Ours != "16" || g.Theirs != "32" || !errors.Is(it[0].Err, wire.CodeGeometry) {
		t.Fatalf("find: %v", it[0].Err)
	}
	i := a.Peers()[0]
	if len(i.Namespaces) != 1 || i.Namespaces[0].Code != wire.CodeGeometry || !strings.Contains(i.Namespaces[0].Text, g.Field) {
		t.Errorf("Peers says %+v", i.Namespaces)
	}
}

func TestListenRefusesToBeExposed(t *testing.T) {
	s := start(t, 1, 10, "", func(c *Config) { c.Insecure = false })
	for addr, want := range map[string]wire.Code{
		"tcp://0.0.0.0:0": wire.CodeConfig, "tcp://[::]:0": wire.CodeConfig, "tcp://:0": wire.CodeConfig, "tls://127.0.0.1:0": wire.CodeConfig,
		"127.0.0.1:0": wire.CodeConfig, "udp://127.0.0.1:0": wire.CodeConfig, "unix://relative": wire.CodeConfig,
		"tcp://127.0.0.1": wire.CodeConfig, "tcp://127.0.0.1:0": wire.CodeOK,
	} {
		_, err := s.Listen(addr)
		if wire.CodeOf(err) != want {
			t.Errorf("listen %s: %v, want %v", addr, err, want)
		}
	}
}

func TestUnixSocketIsPrivateAndReplacesAStaleFile(t *testing.T) {
	path := t.TempDir() + "/s"
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()
	n := start(t, 2, 20, "unix://"+path, nil)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", st.Mode(), err)
	}
	if _, err := n.Listen("unix://" + path); err == nil {
		t.Error("a socket that is in use was taken over")
	}
}

// Users of the list reach the socket; who else comes is refused by the
// credentials.
func TestUsersOfTheListReachTheUnixSocket(t *testing.T) {
	path := t.TempDir() + "/s"
	start(t, 2, 20, "unix://"+path, func(c *Config) { c.UIDs = []uint32{uint32(os.Getuid()) + 1} })
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("its mode is %v, %v", st.Mode(), err)
	}
}

func TestCertificateFilesAreRegularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, none := filepath.Join(dir, "pipe"), filepath.Join(dir, "none")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var special *safefile.SpecialError
	if _, err := LoadTLS(pipe, pipe, pipe); !errors.As(err, &special) || !errors.Is(err, wire.CodeConfig) {
		t.Errorf("a pipe: %v", err) // and not: waits for its writer
	}
	if _, err := LoadTLS(none, none, none); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, wire.CodeConfig) {
		t.Errorf("no file: %v", err)
	}
}

// A peer that gives no name is who its agent id is pinned to; one that gives another name
// is not, and a certificate without a name is nobody's.
func TestAPinnedAgentNeedsNoName(t *testing.T) {
	b := start(t, 2, 20, "", func(c *Config) { c.Peers = []PeerConfig{{Name: "a", Agent: agentID(7)}, {Name: "c"}} })
	named := func(name string) *proto.Hello {
		m := greeting(name, proto.AuthNone)
		if name == "" {
			m.Auth = m.Auth[:1]
		}
		return &m
	}
	plain := func() *hello { return &hello{via: viaTCP} }
	if p, err := b.allowed(plain(), named("")); err != nil || p != b.Peer("a") {
		t.Errorf("by its agent id: %v", err)
	}
	if p, err := b.allowed(plain(), named("c")); err != nil || p != b.Peer("c") {
		t.Errorf("by its name: %v", err)
	}
	if p, err := b.allowed(plain(), named("stranger")); p != nil || !errors.Is(err, wire.CodeAuth) {
		t.Errorf("another name with that agent id: %v, want AUTH", err)
	}
	ca := newAuthority(t)
	nameless := ca.issueAs("", func(c *x509.Certificate) { c.DNSNames = nil }, "t")
	_, there := shaken(t, nameless, ca.issue("b", "t"))
	if p, err := b.allowed(&hello{via: viaTLS, conn: there}, named("")); p != nil || !errors.Is(err, wire.CodeAuth) {
		t.Errorf("a certificate without a name: %v, want AUTH", err)
	}
}

// shaken is both ends of a connection whose TLS handshake is done.
func shaken(t *testing.T, a, b *TLS) (here, there *tls.Conn) {
	t.Helper()
	c, d := net.Pipe()
	t.Cleanup(func() { _, _ = c.Close(), d.Close() })
	here, there = tls.Client(c, a.client("b")), tls.Server(d, b.server())
	done := make(chan error, 1)
	go func() { done <- there.Handshake() }()
	if err := errors.Join(here.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return here, there
}

// A side's proof by certificate is bound to its own HELLO, as the page says.
func TestAProofByCertificateIsOfTheSendersHello(t *testing.T) {
	ca := newAuthority(t)
	here, there := shaken(t, ca.issue("a", "t"), ca.issue("b", "t"))
	dialler := &proto.Hello{Agent: agentID(1), Nonce: [32]byte{1}}
	acceptor := &proto.Hello{Agent: agentID(2), Nonce: [32]byte{2}}
	for role, own := range map[string]*proto.Hello{"meridian link v1 dialler": dialler, "meridian link v1 acceptor": acceptor} {
		st := there.ConnectionState()
		want, err := st.ExportKeyingMaterial("EXPORTER-meridian-link-v1", slices.Concat([]byte(role), own.Agent[:], own.Nonce[:]), 32)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := proof(&hello{conn: here}, proto.AuthCert, nil, role, dialler, acceptor); err != nil || !bytes.Equal(got.Value, want) {
			t.Errorf("%s: %x, %v; want %x", role, got.Value, err, want)
		}
	}
}

// Of the tenants that a certificate names, a refusal shows some.
func TestARefusalShowsSomeTenants(t *testing.T) {
	for want, names := range map[string][]string{
		`"a"`:                      {"a"},
		`"a", "b", "c\n"`:          {"a", "b", "c\n"},
		`"a", "b", "c" and 1 more`: {"a", "b", "c", "d"},
		`"a", "b", "c" and 2 more`: {"a", "b", "c", "d", "e"},
	} {
		if got := someOf(names); got != want {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}
