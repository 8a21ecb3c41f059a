package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/wire"
)

// speaker is a socket whose listener says one thing to everybody and hangs up.
func speaker(t *testing.T, says string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
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
			_, _ = c.Write([]byte(says))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return path
}

// dead is a socket file that its listener left behind.
func dead(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHintsFitWhatIsWrongWithASocket(t *testing.T) {
	s := newShell(t, newDaemon())
	admin := s.socket
	write(t, "file", "no socket")
	for _, c := range []struct{ what, path, hint string }{
		{"absent", "absent.sock", "there is no such file: is meridiand running"},
		{"a file", "file", "file is no socket"},
		{"dead", dead(t), "nobody listens: the daemon that made it has ended"},
		{"another service", speaker(t, "220 mail ready\r\n"), "names the admin socket, which is admin.socket"},
	} {
		t.Run("admin "+c.what, func(t *testing.T) {
			expect(t, s.run(t, "peer", "list", "--admin", c.path), exitUnreachable, "", c.hint)
		})
	}
	for _, c := range []struct{ what, path, hint string }{
		{"absent", "absent.sock", "there is no such file: is meridiand running"},
		{"a file", "file", "file is no socket"},
		{"dead", dead(t), "nobody listens: the daemon that made it has ended"},
		{"the admin socket", admin, "names the engine socket, which is engine.socket"},
		{"another service", speaker(t, "220 mail ready, and a greeting that is longer than a frame's header\r\n"), "names the engine socket, which is engine.socket"},
	} {
		t.Run("engine "+c.what, func(t *testing.T) {
			_, err := dialEngine(t.Context(), c.path, wire.Manifest{Tenant: "default", Model: "m"})
			if f := asFailure(err); err == nil || f.exit != exitUnreachable || !strings.Contains(f.hint, c.hint) {
				t.Errorf("%v, exit %d, hint %q, want one with %q", err, f.exit, f.hint, c.hint)
			}
		})
	}
}

func TestABlockThatIsNotHereGetsAHintForTheUserOfTheCommand(t *testing.T) {
	s := newShell(t, newDaemon())
	for _, verb := range []string{"stat", "get"} {
		if got := s.run(t, "block", verb, absentKey); strings.Contains(got.err, "compute it") || got.exit != exitFailed {
			t.Errorf("block %s: exit %d, %s", verb, got.exit, got.err)
		}
	}
	expect(t, s.run(t, "block", "ls", "--namespace", "12"), exitUsage, "", "64 hexadecimal digits")
}

// keyLike is TABLE.KEY with a table of the configuration in front.
func keyLike(cfg *config.Config) (*regexp.Regexp, map[string]bool) {
	keys, tables := map[string]bool{}, map[string]bool{}
	for _, o := range cfg.Origins() {
		keys[o.Key] = true
		for k := o.Key; ; {
			i := strings.LastIndexByte(k, '.')
			if i < 0 {
				break
			}
			k = k[:i]
			tables[k] = true
			keys[k] = true // a table may be named too
		}
	}
	var names []string
	for t := range tables {
		names = append(names, regexp.QuoteMeta(t))
	}
	return regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)(\.[a-z][a-z_]*)+\b`), keys
}

// notKeys end the names of files, programs and projects.
var notKeys = []string{"sock", "toml", "md", "go", "json", "svg", "test", "cpp"}

// What a text tells an operator to set must exist.
func TestEveryKeyThatATextNamesExists(t *testing.T) {
	cfg, _, err := openers.Load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pattern, keys := keyLike(cfg)
	for _, k := range []string{"link.peer", "link.peer.name", "link.peer.address", "link.peer.tenants", "link.peer.psk", "link.peer.agent"} {
		keys[k] = true // not among Origins without a peer
	}
	for _, c := range openers.Checks() {
		keys[c.ID] = true // the id of a finding
	}
	check := func(where, text string) {
		for _, name := range pattern.FindAllString(text, -1) {
			if !keys[name] && !slices.Contains(notKeys, name[strings.LastIndexByte(name, '.')+1:]) {
				t.Errorf("%s names %s, which is no key of the configuration", where, name)
			}
		}
	}
	for _, c := range wire.Codes() {
		check("errors lookup "+c.Name, c.Text+" "+c.Fix)
	}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, _ := filepath.Glob("../../docs/examples/*.md")
	findings, _ := filepath.Glob("../../agent/finding/*.go")
	of, _ := filepath.Glob("../../agent/openers/*.go")
	findings = append(findings, of...)
	for _, path := range append(append(append(docs, examples...), findings...), "../../README.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		check(path, string(b))
	}
}

// No daemon knows of somebody else's segment, so mrdn peer list would not help.
func TestABenchmarkOfATargetThatIsNotThereNamesTheTarget(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	got := newShell(t, newDaemon()).run(t, "bench", "mooncake", "--target", addr, "--quick")
	if got.exit == exitOK || strings.Contains(got.err, "peer list") || !strings.Contains(got.err, "does the target's engine run") {
		t.Errorf("exit %d: %s", got.exit, got.err)
	}
}
