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

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/metadata"
	"meridian/agent/config"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/internal/testbed"
)

func TestWhatARelaysTableMayNotSay(t *testing.T) {
	for want, change := range map[string]func(s *relaySettings){
		"":                                func(*relaySettings) {},
		`target: "" must be NAME=SEGMENT`: func(s *relaySettings) { s.target = "" },
		`target: "127.0.0.1:1" must be NAME=SEGMENT`:                     func(s *relaySettings) { s.target = "127.0.0.1:1" },
		`target: "A=127.0.0.1:1" must be NAME=SEGMENT, the name 1 to 32`: func(s *relaySettings) { s.target = "A=127.0.0.1:1" },
		`target: "a=127.0.0.1:x": `:                                      func(s *relaySettings) { s.target = "a=127.0.0.1:x" },
		`target: "a=10.0.0.1:1" is beyond loopback`:                      func(s *relaySettings) { s.target = "a=10.0.0.1:1" },
		`metadata: `: func(s *relaySettings) { s.metadata = "redis://x" },
		`metadata: "http://10.0.0.2:80/metadata" is beyond loopback`: func(s *relaySettings) {
			s.target, s.metadata = "a=b", "http://10.0.0.2:80/metadata"
		},
		`reach: empty, and metadata "http://10.0.0.2:80/metadata"`: func(s *relaySettings) {
			s.target, s.metadata, s.insecure = "a=b", "http://10.0.0.2:80/metadata", true
		},
		`segment: "x" is of no use with metadata = "P2PHANDSHAKE"`:   func(s *relaySettings) { s.segment = "x" },
		`target: "a=127.0.0.1:1" is the relay itself`:                func(s *relaySettings) { s.target = "a=127.0.0.1:1" },
		`listen: empty: name HOST:PORT`:                              func(s *relaySettings) { s.listen = "" },
		`listen: ":1" is beyond loopback`:                            func(s *relaySettings) { s.listen = ":1" },
		`data: "" must be HOST:PORT or HOST:FIRST-LAST`:              func(s *relaySettings) { s.data = "" },
		`data: "127.0.0.1:9-8" must be HOST:PORT or HOST:FIRST-LAST`: func(s *relaySettings) { s.data = "127.0.0.1:9-8" },
		`data: "127.0.0.1:0-8" must be HOST:PORT`:                    func(s *relaySettings) { s.data = "127.0.0.1:0-8" },
		`data: "127.0.0.1:1-65536" must be HOST:PORT`:                func(s *relaySettings) { s.data = "127.0.0.1:1-65536" },
		`data: ":1" is beyond loopback`:                              func(s *relaySettings) { s.data = ":1-8" },
		`allow: "x" must be ADDRESS/BITS or NAME=ADDRESS/BITS`:       func(s *relaySettings) { s.allow = []string{"x"} },
		`allow: "A=10.0.0.0/8" must be`:                              func(s *relaySettings) { s.allow = []string{"A=10.0.0.0/8"} },
		`allow: "=10.0.0.0/8" must be`:                               func(s *relaySettings) { s.allow = []string{"=10.0.0.0/8"} },
		`allow: "other=10.0.0.0/8" must be`:                          func(s *relaySettings) { s.allow = []string{"other=10.0.0.0/8"} },
		`reach: "10.0.0.1" must be ADDRESS/BITS`:                     func(s *relaySettings) { s.reach, s.insecure = []string{"10.0.0.1"}, true },
		`reach: "10.0.0.0/8" is beyond loopback`:                     func(s *relaySettings) { s.reach = []string{"10.0.0.0/8"} },
		`advertise: "0.0.0.0" is every address`:                      func(s *relaySettings) { s.advertise = "0.0.0.0" },
		`allow: empty, and listen "10.0.0.5:1" is beyond loop`:       func(s *relaySettings) { s.listen, s.insecure = "10.0.0.5:1", true },
	} {
		s := &relaySettings{target: "a=127.0.0.1:9", metadata: "P2PHANDSHAKE", listen: "127.0.0.1:1", data: "127.0.0.1:2-8"}
		change(s)
		var got []string
		checkRelay(s, func(key, format string, args ...any) { got = append(got, key+": "+fmt.Sprintf(format, args...)) })
		if len(got) != 1 && want != "" || want == "" && len(got) != 0 || want != "" && !strings.Contains(got[0], want) {
			t.Errorf("%q: %q", want, got)
		}
	}
}

// The table that docs/mooncake.md shows; and no route may name it.
func TestTheRelaysTableOfTheDocumentIsValidAndTakesNoBlocks(t *testing.T) {
	doc, err := os.ReadFile("../../docs/mooncake.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(doc), "[fabric.to-decode]\n")
	table, _, ends := strings.Cut(table, "```")
	if !found || !ends {
		t.Fatal("docs/mooncake.md shows no table of a relay")
	}
	for route, want := range map[string]string{
		"":                                    "",
		"[[route]]\nfabric = \"to-decode\"\n": `route[0].fabric: "to-decode" is of a kind that carries no blocks`,
		"[disagg]\nenabled = true\nfabric = \"to-decode\"\n": `disagg.fabric: "to-decode" is of a kind that carries no blocks`,
	} {
		path := filepath.Join(t.TempDir(), "m.toml")
		if err := os.WriteFile(path, []byte("[fabric.to-decode]\n"+table+route), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(config.Options{Path: path, Env: []string{}, Kinds: Kinds()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", route, err, want)
		}
	}
}

func TestARelayThatCannotListenNamesTheKey(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	site := Site{Observer: nobody{}, Log: slog.New(slog.DiscardHandler)}
	for key, change := range map[string]func(s *relaySettings){
		"":       func(*relaySettings) {},
		"listen": func(s *relaySettings) { s.listen = taken.Addr().String() },
		"data":   func(s *relaySettings) { s.data = taken.Addr().String() },
	} {
		s := &relaySettings{target: "a=127.0.0.1:9", metadata: "P2PHANDSHAKE", listen: "127.0.0.1:0", data: "127.0.0.1:0"}
		change(s)
		f, err := Open(t.Context(), config.Fabric{Name: "way", Kind: "mooncake-relay", Settings: s}, site)
		if err == nil {
			if n := len(f.(fabric.Server).Addresses()); n == 0 || f.Label() != "way" {
				t.Errorf("%s at %d addresses", f.Label(), n)
			}
			_ = f.Close()
		}
		if (err == nil) != (key == "") || err != nil && (!strings.HasPrefix(err.Error(), "fabric way: "+key+": ") || !errors.Is(err, syscall.EADDRINUSE)) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A source without a name chooses its address, so it must not be a kind of log line.
func TestStrangersOfARelayAreOneKindOfLogLine(t *testing.T) {
	for allow, want := range map[string]string{"app=127.0.0.0/8": " peer=app ", "127.0.0.0/8": " from=127.0.0.1 "} {
		lines := make(chan string, 16)
		site := Site{Observer: deaf{}, Log: slog.New(slog.NewTextHandler(sink(lines), nil))}
		s := &relaySettings{target: "a=127.0.0.1:9", metadata: "P2PHANDSHAKE", listen: "127.0.0.1:0", data: "127.0.0.1:0", allow: []string{allow}}
		f, err := Open(t.Context(), config.Fabric{Name: "way", Kind: "mooncake-relay", Settings: s}, site)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.TrimPrefix(f.(fabric.Server).Addresses()[0], "mooncake://")
		if err := (&handshake.Client{}).Notify(t.Context(), at, handshake.Notify{Text: "x"}); err == nil {
			t.Error("a target that is not there took a notify")
		}
		line := <-lines
		for strings.Contains(line, "the target cannot be reached") {
			line = <-lines
		}
		if !strings.Contains(line, want) || !strings.Contains(line, "fabric=way") {
			t.Errorf("%q has no %q", line, want)
		}
		_ = f.Close()
	}
}

// Connections to all Mooncake fabrics and relays of a daemon count together, and in its
// book, so that a flood at one of them cannot take more than the total.
func TestStrangersHaveOneAccountForAllTables(t *testing.T) {
	var book quota.Book
	book.SetLimit(quota.HandshakeConns, quota.All, 4)
	site := Site{Observer: deaf{}, Quota: &book, Doors: door.NewCommon(&book), Log: slog.New(slog.DiscardHandler)}
	var at []string
	for _, f := range []config.Fabric{
		{Name: "way", Kind: "mooncake-relay", Settings: &relaySettings{target: "a=127.0.0.1:9", metadata: metadata.P2P, listen: "127.0.0.1:0", data: "127.0.0.1:0"}},
		{Name: "moon", Kind: mooncakeKind, Settings: &mooncakeSettings{metadata: metadata.P2P, listen: "127.0.0.1:0", data: "127.0.0.1:0"}},
	} {
		opened, err := Open(t.Context(), f, site)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = opened.Close() }()
		at = append(at, strings.TrimPrefix(opened.(fabric.Server).Addresses()[0], "mooncake://"))
	}
	var silent []net.Conn
	for _, to := range []string{at[0], at[1], at[0]} {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		silent = append(silent, c)
		testbed.Until(t, "it has a place", func() bool { return book.Used(quota.HandshakeConns, quota.Total) >= uint64(min(len(silent), 2)) })
	}
	// A source has no more than are free: the third is one too many, and the first makes room.
	if _, err := silent[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest silent connection, to another table, still has its place")
	}
	testbed.Until(t, "the third has its place", func() bool { return book.Used(quota.HandshakeConns, quota.Total) == 2 })
}
