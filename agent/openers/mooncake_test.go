package openers

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/agent/config"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

func TestWhatAMooncakeTableMayNotSay(t *testing.T) {
	for want, change := range map[string]func(s *mooncakeSettings){
		"":                                         func(*mooncakeSettings) {},
		`peers: "a" must be NAME=HOST:PORT`:        func(s *mooncakeSettings) { s.peers = []string{"a"} },
		`peers: "A=127.0.0.1:1" must be NAME`:      func(s *mooncakeSettings) { s.peers = []string{"A=127.0.0.1:1"} },
		"port from 1 to 65535":                     func(s *mooncakeSettings) { s.peers = []string{"a=127.0.0.1:x"} },
		`peers: "a" is there twice`:                func(s *mooncakeSettings) { s.peers = []string{"a=127.0.0.1:1", "a=127.0.0.1:2"} },
		`peers: "a=10.0.0.1:1" is beyond loopback`: func(s *mooncakeSettings) { s.peers = []string{"a=10.0.0.1:1"} },
		`listen: "127.0.0.1:99999" must have a port from 0 to`: func(s *mooncakeSettings) { s.listen = "127.0.0.1:99999" },
		`data: "127.0.0.1:x" must have a port from 0 to 65535`: func(s *mooncakeSettings) { s.data = "127.0.0.1:x" },
		`metadata_listen: "127.0.0.1:-1" must have a port`:     func(s *mooncakeSettings) { s.metaListen = "127.0.0.1:-1" },
		`allow: "10.0.0.1" must be ADDRESS/BITS`:               func(s *mooncakeSettings) { s.allow = []string{"10.0.0.1"} },
		`data: "127.0.0.1:2" is of no use without listen`:      func(s *mooncakeSettings) { s.listen = "" },
		`listen: "12001" must be HOST:PORT`:                    func(s *mooncakeSettings) { s.listen = "12001" },
		`data: empty: name HOST:PORT`:                          func(s *mooncakeSettings) { s.data = "" },
		`listen: "[::]:1" is beyond loopback`:                  func(s *mooncakeSettings) { s.listen = "[::]:1" },
		`data: ":2" is beyond loopback`:                        func(s *mooncakeSettings) { s.data = ":2" },
		`metadata_listen: "x" must be HOST:PORT`:               func(s *mooncakeSettings) { s.metaListen = "x" },
		`metadata_listen: ":80" is beyond loopback`:            func(s *mooncakeSettings) { s.metaListen = ":80" },
		`allow: empty, and metadata_listen ":80"`:              func(s *mooncakeSettings) { s.metaListen, s.insecure = ":80", true },
		`segment: "us" is of no use`:                           func(s *mooncakeSettings) { s.segment = "us" },
		`metadata: metadata server redis`:                      func(s *mooncakeSettings) { s.metadata = "redis://127.0.0.1:1" },
		`metadata: "http://10.0.0.1:1/metadata" is beyond`:     func(s *mooncakeSettings) { s.metadata = "http://10.0.0.1:1/metadata" },
		`metadata: "127.0.0.1:1;10.0.0.1:1" is beyond loop`:    func(s *mooncakeSettings) { s.metadata = "127.0.0.1:1;10.0.0.1:1" },
		`allow: empty, and metadata "etcd://e:1" is beyond`: func(s *mooncakeSettings) {
			s.metadata, s.insecure = "etcd://e:1", true
		},
		`store_masters: "m:1" is of no use without`:   func(s *mooncakeSettings) { s.masters = "m:1" },
		`store_masters: empty, and store_node_bytes`:  func(s *mooncakeSettings) { s.lend = 16 << 20 },
		`store_node_bytes: 1, want 16777216 at least`: func(s *mooncakeSettings) { s.lend, s.masters = 1, "127.0.0.1:1" },
		`store_node_bytes: 16777216 is of no use`: func(s *mooncakeSettings) {
			s.lend, s.masters, s.listen, s.data = 16<<20, "127.0.0.1:1", "", ""
		},
		`store_masters: "m:1" is beyond loopback`:         func(s *mooncakeSettings) { s.lend, s.masters = 16<<20, "m:1" },
		`store_masters: CONFIG: masters "redis`:           func(s *mooncakeSettings) { s.lend, s.masters = 16<<20, "redis://127.0.0.1:1" },
		`segment: metadata key`:                           func(s *mooncakeSettings) { s.metadata, s.segment = "http://[::1]:1/metadata", "a\n" },
		`metadata_hosts: ["m"] is of no use`:              func(s *mooncakeSettings) { s.metaHosts = []string{"m"} },
		`data: "[::1]:2" is not at the address of listen`: func(s *mooncakeSettings) { s.data = "[::1]:2" },
		`advertise: "[::1]" must be a host alone`:         func(s *mooncakeSettings) { s.advertise = "[::1]" },
		`advertise: "10.0.0.5:1" must be a host alone`:    func(s *mooncakeSettings) { s.advertise = "10.0.0.5:1" },
		`advertise: "0.0.0.0" is every address`:           func(s *mooncakeSettings) { s.advertise = "0.0.0.0" },
		`advertise: empty, and listen "0.0.0.0:1" is every`: func(s *mooncakeSettings) {
			s.listen, s.data, s.insecure, s.allow = "0.0.0.0:1", "0.0.0.0:2", true, []string{"10.0.0.0/8"}
		},
		`allow: empty, and listen "10.0.0.5:1" is beyond loop`: func(s *mooncakeSettings) { s.listen, s.insecure = "10.0.0.5:1", true },
	} {
		s := &mooncakeSettings{metadata: metadata.P2P, peers: []string{"a=[::1]:9", "b=localhost:9"}, listen: "127.0.0.1:1", data: "127.0.0.1:2"}
		change(s)
		var got []string
		checkMooncake(s, func(key, format string, args ...any) { got = append(got, key+": "+fmt.Sprintf(format, args...)) })
		if len(got) != 1 && want != "" || want == "" && len(got) != 0 || want != "" && !strings.Contains(got[0], want) {
			t.Errorf("%q: %q", want, got)
		}
	}
}

func TestWhatAStoreTableMayNotSay(t *testing.T) {
	for want, change := range map[string]func(s *storeSettings){
		"":                                       func(*storeSettings) {},
		"masters: empty":                         func(s *storeSettings) { s.masters = "" },
		`masters: "m" is beyond loopback`:        func(s *storeSettings) { s.masters = "m" },
		`masters: CONFIG: masters "k8s://m"`:     func(s *storeSettings) { s.masters = "k8s://m" },
		`prefix: "/a" must be 1 to 4 words`:      func(s *storeSettings) { s.prefix = "/a" },
		`prefix: "" must be 1 to 4 words`:        func(s *storeSettings) { s.prefix = "" },
		`allow: "10.0.0.1" must be ADDRESS`:      func(s *storeSettings) { s.allow = []string{"10.0.0.1"} },
		`allow: "10.0.0.0/8" is beyond loopback`: func(s *storeSettings) { s.allow = []string{"10.0.0.0/8"} },
		`metadata: "http://m/metadata" is beyond`: func(s *storeSettings) {
			s.metadata = "http://m/metadata"
		},
	} {
		s := &storeSettings{masters: "127.0.0.1:1;localhost", prefix: "a/b", metadata: metadata.P2P}
		change(s)
		var got []string
		checkMooncakeStore(s, func(key, format string, args ...any) { got = append(got, key+": "+fmt.Sprintf(format, args...)) })
		if len(got) != 1 && want != "" || want == "" && len(got) != 0 || want != "" && !strings.Contains(got[0], want) {
			t.Errorf("%q: %q", want, got)
		}
	}
}

// The table that docs/mooncake.md shows, and a route that names its peer as the text
// below the table says.
func TestTheMooncakeTableOfTheDocumentIsValidAndARouteMayNameItsPeer(t *testing.T) {
	doc, err := os.ReadFile("../../docs/mooncake.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "```toml\n")
	table, _, found := strings.Cut(table, "```")
	if !found {
		t.Fatal("docs/mooncake.md shows no table")
	}
	for peer, want := range map[string]string{
		"decode": "",
		"decod":  `route[0].peer: "decod" is no peer of [fabric.mooncake]; did you mean decode?`,
	} {
		path := filepath.Join(t.TempDir(), "m.toml")
		if err := os.WriteFile(path, []byte(table+"[[route]]\nfabric = \"mooncake\"\npeer = \""+peer+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(config.Options{Path: path, Env: []string{}, Kinds: Kinds()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("peer %s: %v, want %q", peer, err, want)
		}
	}
}

// A tenant that no engine of this daemon may open has no blocks, so that its name in the
// table is a mistake.
func TestATableOpensTenantsOfTheDaemonOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.toml")
	for _, kind := range []string{mooncakeKind, nixlKind} {
		for tenant, want := range map[string]string{"acme": "", "umbrella": `fabric.f.tenants: "umbrella" is not in security.tenants, which is ["acme"]`} {
			text := "[security]\ntenants = [\"acme\"]\n[fabric.f]\nkind = \"" + kind + "\"\ntenants = [\"" + tenant + "\"]\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := config.Load(config.Options{Path: path, Env: []string{}, Kinds: Kinds()})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, tenant %s: %v, want %q", kind, tenant, err, want)
			}
		}
	}
}

func TestAMooncakeFabricThatCannotListenNamesTheKey(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	st, err := blocks.Open(blocks.Config{Capacity: 1 << 20, Agent: [16]byte{1}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	site := Site{
		Store: st, Spaces: spaces.New(st.AddNamespace), Observer: nobody{}, Quota: &quota.Book{}, Log: slog.New(slog.DiscardHandler),
		Windows: window.New(st, func() time.Duration { return 0 }, 0, &quota.Book{}),
	}
	for key, change := range map[string]func(s *mooncakeSettings){
		"listen":          func(s *mooncakeSettings) { s.listen = taken.Addr().String() },
		"data":            func(s *mooncakeSettings) { s.data = taken.Addr().String() },
		"metadata_listen": func(s *mooncakeSettings) { s.metaListen = taken.Addr().String() },
	} {
		s := &mooncakeSettings{metadata: metadata.P2P, peers: []string{"a=127.0.0.1:9"}, listen: "127.0.0.1:0", data: "127.0.0.1:0", window: 1 << 16}
		change(s)
		f, err := Open(t.Context(), config.Fabric{Name: "moon", Kind: mooncakeKind, Settings: s}, site)
		if err == nil {
			_ = f.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "fabric moon: "+key+": ") || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestAMooncakeFabricOpensAndServesAsItsTableSays(t *testing.T) {
	st, err := blocks.Open(blocks.Config{Capacity: 1 << 20, Agent: [16]byte{1}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	began := time.Now()
	site := Site{
		Store: st, Spaces: spaces.New(st.AddNamespace), Observer: nobody{},
		Windows: window.New(st, func() time.Duration { return time.Since(began) }, 0, &quota.Book{}),
	}
	s := &mooncakeSettings{metadata: metadata.P2P, peers: []string{"a=127.0.0.1:9"}, listen: "127.0.0.1:0", data: "127.0.0.1:0", window: 1 << 16, allow: []string{"10.0.0.0/8"}}
	f, err := Open(t.Context(), config.Fabric{Name: "moon", Kind: mooncakeKind, Settings: s}, site)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.(fabric.Server).Addresses()); f.Label() != "moon" || n != 2 || site.Windows.Stats().Windows != 1 {
		t.Errorf("%s, %d addresses, %+v", f.Label(), n, site.Windows.Stats())
	}
	if err := f.Close(); err != nil || site.Windows.Stats().Windows != 0 {
		t.Errorf("%v, %+v", err, site.Windows.Stats())
	}
	s.listen = "192.0.2.1:1" // no address of this host
	if _, err := Open(t.Context(), config.Fabric{Name: "moon", Kind: mooncakeKind, Settings: s}, site); err == nil || !strings.Contains(err.Error(), "listen: listen tcp 192.0.2.1:1") || site.Windows.Stats().Windows != 0 {
		t.Errorf("%v, %+v", err, site.Windows.Stats())
	}
}

func TestAMooncakeFabricHasItsMetadataServer(t *testing.T) {
	s := &mooncakeSettings{metadata: metadata.P2P, peers: []string{"a=127.0.0.1:9"}, metaListen: "127.0.0.1:0"}
	f, err := Open(t.Context(), config.Fabric{Name: "moon", Kind: mooncakeKind, Settings: s}, Site{Observer: nobody{}, Quota: &quota.Book{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	at := f.(fabric.Server).Addresses()
	url := at[len(at)-1]
	plane, err := metadata.Open(metadata.Config{Server: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Endpoint(t.Context(), "nobody"); !errors.Is(err, wire.CodeAbsent) {
		t.Errorf("%s: %v", url, err)
	}
	node := metadata.Node{At: metadata.Endpoint{Host: "127.0.0.1", Port: 1}, Segment: segment.Descriptor{Name: "n", Protocols: []string{segment.TCP}}}
	if err := plane.Publish(t.Context(), node); err != nil {
		t.Error(err)
	}
	if n := f.(fabric.Counter).Stats().RequestsIn; n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
	found := false
	for _, x := range f.(fabric.Advisor).Findings() {
		found = found || x.ID == "metadata.stale" && !x.Bad
	}
	if !found {
		t.Error("no finding tells how its entries stand")
	}
	if err := errors.Join(plane.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := plane.Endpoint(t.Context(), "nobody"); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("it answers after its end:", err)
	}
}

type nobody struct{ Observer }

// Whoever may connect chooses source addresses, so these must not be kinds of log lines
// as the names of listed peers are.
func TestStrangersOfAMooncakeFabricAreOneKindOfLogLine(t *testing.T) {
	st, err := blocks.Open(blocks.Config{Capacity: 1 << 20, Agent: [16]byte{1}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	lines := make(chan string, 16)
	began := time.Now()
	site := Site{
		Store: st, Spaces: spaces.New(st.AddNamespace), Observer: deaf{}, Log: slog.New(slog.NewTextHandler(sink(lines), nil)),
		Windows: window.New(st, func() time.Duration { return time.Since(began) }, 0, &quota.Book{}),
	}
	for peer, want := range map[string]string{"127.0.0.1:9": " peer=a ", "192.0.2.1:9": " from=127.0.0.1 "} {
		s := &mooncakeSettings{metadata: metadata.P2P, peers: []string{"a=" + peer}, listen: "127.0.0.1:0", data: "127.0.0.1:0", window: 1 << 16}
		f, err := Open(t.Context(), config.Fabric{Name: "moon", Kind: mooncakeKind, Settings: s}, site)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.TrimPrefix(f.(fabric.Server).Addresses()[0], "mooncake://")
		if err := (&handshake.Client{}).Notify(t.Context(), at, handshake.Notify{Text: "x"}); err == nil {
			t.Error("not refused")
		}
		if line := <-lines; !strings.Contains(line, want) {
			t.Errorf("%q has no %q", line, want)
		}
		_ = f.Close()
	}
}

type deaf struct{ nobody }

func (deaf) Refused(wire.Code) {}
func (deaf) PeerChanged()      {}

// sink has each log line.
type sink chan string

func (s sink) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}
