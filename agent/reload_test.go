package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testlog"
	"meridian/wire"
)

// reloadable is a daemon that reads its file again.
type reloadable struct {
	*testNode
	t         *testing.T
	dir, name string
	env       []string
}

func startReloadable(t *testing.T, dir, name, text string) *reloadable {
	t.Helper()
	cfg := loadConfig(t, dir, name, text)
	r := &reloadable{testNode: &testNode{log: &testlog.Buffer{}}, t: t, dir: dir, name: name}
	level := new(slog.LevelVar)
	var err error
	r.Agent, err = Start(t.Context(), cfg, Options{
		Version: "test", Log: NewLogger(r.log, cfg.Agent, level), Level: level, LogLost: func() uint64 { return 0 },
		Reload: func() (*config.Config, []config.Warning, error) {
			return openers.Load(config.Options{Path: r.file(), Env: r.env, Regular: true})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, _ := r.fabrics.Get(linkFabric)
	r.node = f.(*openers.Link).Node
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, r.log)
		}
	})
	return r
}

func (r *reloadable) file() string { return filepath.Join(r.dir, r.name+".toml") }

// write makes the file of the daemon anew.
func (r *reloadable) write(text string) {
	r.t.Helper()
	all := baseConfig(r.dir, r.name, text)
	if err := os.WriteFile(r.file(), []byte(all), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// to changes the file and lets the daemon read it.
func (r *reloadable) to(text string) reloaded {
	r.t.Helper()
	r.write(text)
	got, err := r.reload(r.t.Context(), false)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// says checks what a reload answered, and that the log has it.
func (r *reloadable) says(what string, got reloaded, applied, restart string) {
	r.t.Helper()
	a, n := strings.Join(lines(got.applied), "; "), strings.Join(lines(got.restart), "; ")
	if a != applied || n != restart {
		r.t.Errorf("%s: taken over %q, needs a restart %q; want %q and %q", what, a, n, applied, restart)
	}
}

// What needs a restart is what the file says and the daemon does not do. It does
// not become true by being read twice, nor false by being put back.
func TestAReloadListsWhatIsNotInForceUntilItIs(t *testing.T) {
	r := startReloadable(t, shortDir(t), "one", "")
	bigger := "[kv_memory]\ncapacity_bytes = \"32MiB\"\n"
	const needs = `kv_memory.capacity_bytes = "32MiB", was "16MiB"`
	for _, step := range []struct {
		what, text     string
		env            []string
		taken, restart string
	}{
		{"a bigger arena", bigger, nil, "", needs},
		{"the same file again", bigger, nil, "", needs},
		{"a live key besides", bigger, []string{"MERIDIAN_AGENT_DRAIN_TIMEOUT=3s"}, `agent.drain_timeout = "3s", was "30s"`, needs},
		{"as it was at the start", "", nil, `agent.drain_timeout = "30s", was "3s"`, ""},
	} {
		r.env = step.env
		r.says(step.what, r.to(step.text), step.taken, step.restart)
	}
}

// A new peer is dialled, let in, listed, counted and used at once; its cache stays
// where it is, and so does that of the daemon which learns of it.
func TestAPeerComesAndGoesWithoutARestart(t *testing.T) {
	dir := shortDir(t)
	prefill := startReloadable(t, dir, "prefill", linkTable+"listen = [\"tcp://127.0.0.1:0\"]\n[[link.peer]]\nname = \"nobody\"\ntenants = [\"acme\"]\n")
	decode := startReloadable(t, dir, "decode", linkTable)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 4)
	a.put(t, keys, 64<<10, wire.OutputCritical, 0)

	addr := prefill.Ports()["link"][0]
	listen := linkTable + "listen = [\"tcp://127.0.0.1:0\"]\n"
	prefill.says("the listener", prefill.to(listen+entry("", "decode")), "link.peer.decode added; link.peer.nobody removed", "")
	decode.says("the dialler", decode.to(linkTable+entry(addr, "prefill")), "link.peer.prefill added", "")
	decode.ready(t)
	b.mustFetch(t, keys)
	if v, ok := decode.series(t, `meridian_peer_ready{peer="prefill",transport="tcp"}`); !ok || v != "1" {
		t.Errorf("the metric of the new peer: %q", v)
	}
	if got := peersOf(t, decode); got != "prefill ready" {
		t.Errorf("peer list: %q", got)
	}

	// It goes: its session ends, nothing of it is left, what was fetched stays.
	decode.says("gone", decode.to(linkTable), "link.peer.prefill removed", "")
	until(t, "the session has ended", func() bool { return decode.node.Stats().Sessions == 0 && prefill.node.Stats().Sessions == 0 })
	if _, ok := decode.series(t, `meridian_peer_ready{peer="prefill",transport="tcp"}`); ok {
		t.Error("a removed peer still has a metric")
	}
	if _, ok := decode.series(t, `meridian_peer_incarnation_changes_total{peer="prefill"}`); ok {
		t.Error("a removed peer still has a counter")
	}
	if got := peersOf(t, decode); got != "" {
		t.Errorf("peer list: %q", got)
	}
	b.mustFetch(t, keys)
	decode.quietNow(t)
	prefill.quietNow(t)
}

func entry(addr, name string) string {
	return fmt.Sprintf("[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"acme\"]\n", name, addr)
}

// peersOf is what mrdn peer list shows: names and states.
func peersOf(t *testing.T, r *reloadable) string {
	t.Helper()
	res, err := r.adminClient(t).ListPeers(t.Context(), &adminpb.ListPeersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range res.Peers {
		out = append(out, p.Name+" "+strings.ToLower(strings.TrimPrefix(p.State.String(), "PEER_STATE_")))
	}
	return strings.Join(out, ", ")
}

func (r *reloadable) adminClient(t *testing.T) *client.Admin {
	t.Helper()
	adm, err := client.DialAdmin(t.Context(), r.cfg.Admin.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = adm.Close() })
	return adm
}

// The admin API and SIGHUP go the same way; --dry-run changes nothing; secrets are
// shown nowhere.
func TestTheAdminAPIReloads(t *testing.T) {
	dir := shortDir(t)
	r := startReloadable(t, dir, "one", linkTable)
	adm := r.adminClient(t)
	const secret = "c20d94f1a7be4356980e1fd57a3b6c88"
	r.write("[link]\npsk = \"" + secret + "\"\nlanes = 3\n" + entry("tcp://127.0.0.1:1", "b") + "psk = \"" + secret + "\"\n")
	for _, dry := range []bool{true, true, false} {
		res, err := adm.Reload(t.Context(), &adminpb.ReloadRequest{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintln(len(res.Applied), res.Applied[0].Key, res.Applied[1].Key, res.Applied[1].What, len(res.Restart), res.Restart[0].Key, res.Restart[0].Old, res.Restart[0].New); got != "2 link.psk link.peer.b added 1 link.lanes 2 3\n" {
			t.Errorf("dry %v: %v", dry, got)
		}
		if strings.Contains(res.String(), secret) || strings.Contains(r.log.String(), secret) {
			t.Error("a secret is shown")
		}
		if has := peersOf(t, r) != ""; has == dry {
			t.Errorf("dry %v: the peer is there: %v", dry, has)
		}
	}
	if res, err := adm.Reload(t.Context(), &adminpb.ReloadRequest{}); err != nil || len(res.Applied) != 0 || len(res.Restart) != 1 {
		t.Errorf("again: %v, %v; want only what needs a restart", res, err)
	}
	r.write("[scheduler]\nthink_batch_multiplier = 3.9\n")
	if res, err := adm.Reload(t.Context(), &adminpb.ReloadRequest{DryRun: true}); err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "one.toml:") || !strings.Contains(res.Warnings[0], "scheduler.think_batch_multiplier: 3.9 is above") {
		t.Errorf("%v, %v; want the warning of the file", res, err)
	}
	for what, damage := range map[string]func(){
		"no TOML":       func() { r.write("[link\n") },
		"a wrong key":   func() { r.write("[link]\nlane = 3\n") },
		"gone":          func() { _ = os.Remove(r.file()) },
		"a table twice": func() { r.write("[agent]\n") },
	} {
		damage()
		before := r.now()
		_, err := adm.Reload(t.Context(), &adminpb.ReloadRequest{})
		if d := adminpb.Detail(err); d == nil || wire.Code(d.Code) != wire.CodeConfig || r.now() != before {
			t.Errorf("%s: %v, want CONFIG and no change", what, err)
		}
	}
}

// While the daemon leaves nothing is taken over; while a reload runs the next one
// waits as long as its caller does.
func TestReloadsAreOneAtATimeAndNoneWhileLeaving(t *testing.T) {
	r := startReloadable(t, shortDir(t), "one", "")
	inside, goOn := make(chan struct{}), make(chan struct{})
	read := r.opt.Reload
	r.opt.Reload = func() (*config.Config, []config.Warning, error) {
		inside <- struct{}{}
		<-goOn
		return read()
	}
	first := make(chan error)
	go func() {
		_, err := r.reload(t.Context(), false)
		first <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.reload(ctx, false); !errors.Is(err, wire.CodeBusy) {
		t.Errorf("a second reload: %v, want BUSY", err)
	}
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-first; !errors.Is(err, wire.CodeDraining) {
		t.Errorf("a reload that drain overtook: %v, want DRAINING", err)
	}
	if _, err := r.reload(t.Context(), false); !errors.Is(err, wire.CodeDraining) {
		t.Errorf("a reload after drain: %v, want DRAINING", err)
	}
}

// A file that is none, that is too large or that cannot be read changes nothing, and
// is not waited for; so does a certificate of that kind.
func TestAReloadOfWhatIsNoFileIsRefusedAtOnce(t *testing.T) {
	dir := shortDir(t)
	ca := newAuthority(t, dir)
	tls := ca.issue(t, "one", "acme")
	r := startReloadable(t, dir, "one", "[link]\n"+tls)
	good, cert := r.file()+".good", filepath.Join(dir, "one-acme.pem")
	if err := os.Rename(cert, cert+".good"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.file(), good); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"too large": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("# 345678\n"), 1<<18), 0o600)
		},
		"nothing": func(string) error { return nil },
		"a loop":  func(path string) error { return os.Symlink(path, path) },
		"empty":   func(path string) error { return os.WriteFile(path, []byte("\n"), 0o600) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte("\x00\xff[["), 0o600) },
	} {
		for _, path := range []string{r.file(), cert} {
			restore := map[string]string{r.file(): good, cert: cert + ".good"}
			for to, from := range restore {
				if to == path {
					continue
				}
				if err := os.Link(from, to); err != nil {
					t.Fatal(err)
				}
			}
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			before := r.now()
			if _, err := r.reload(t.Context(), false); !errors.Is(err, wire.CodeConfig) || r.now() != before {
				t.Errorf("%s as %s: %v, want CONFIG and no change", what, filepath.Base(path), err)
			}
			for to := range restore {
				_ = os.Remove(to)
			}
		}
	}
	for to, from := range map[string]string{r.file(): good, cert: cert + ".good"} {
		if err := os.Link(from, to); err != nil {
			t.Fatal(err)
		}
	}
	r.says("put back", must(r.reload(t.Context(), false)), "", "")
}

func must(r reloaded, err error) reloaded {
	if err != nil {
		panic(err)
	}
	return r
}

// A new certificate under the old name is noticed, and used for what connects next;
// one that is no longer valid is refused, and the old one stays.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := shortDir(t)
	ca := newAuthority(t, dir)
	listen := "[link]\nlisten = [\"tls://127.0.0.1:0\"]\n" + entry("", "decode")
	tls := ca.issue(t, "prefill", "acme")
	prefill := startReloadable(t, dir, "prefill", listen+tls)
	decode := startReloadable(t, dir, "decode", "[link]\n"+entry(prefill.Ports()["link"][0], "prefill")+ca.issue(t, "decode", "acme"))
	decode.ready(t)
	ca.issue(t, "prefill", "acme")
	prefill.says("another certificate", prefill.to(listen+tls), "link.tls.cert changed; link.tls.key changed", "")
	if n := prefill.node.Stats().Sessions; n != 1 {
		t.Errorf("%d sessions after a new certificate, want the one that was there", n)
	}
	ca.until = time.Now().Add(-time.Minute)
	ca.issue(t, "prefill", "acme")
	if _, err := prefill.reload(t.Context(), false); !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), "valid") {
		t.Errorf("a certificate that has ended: %v, want CONFIG", err)
	}
	ca.until = time.Now().Add(time.Hour)
	ca.issue(t, "prefill", "acme")
	if err := os.Rename(filepath.Join(dir, "decode-acme.key"), filepath.Join(dir, "prefill-acme.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := prefill.reload(t.Context(), false); !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), "prefill-acme.key is not the private key of the certificate in") {
		t.Errorf("a key of another certificate: %v, want CONFIG and both files", err)
	}
	decode.ready(t)
}

// A lowered limit and a tenant that is gone: what is there stays, more is refused.
func TestTenantsChangeForWhatIsAskedForNext(t *testing.T) {
	r := startReloadable(t, shortDir(t), "one", "")
	e := r.engine(t)
	keys := e.keys("before", 2)
	e.put(t, keys, 64<<10, wire.OutputCritical, 0)
	r.env = []string{"MERIDIAN_SECURITY_TENANTS=other"}
	r.says("another tenant", r.to(""), `security.tenants = ["other"], was ["acme"]`, "")
	e.mustFetch(t, keys)
	c, err := client.DialEngine(t.Context(), r.cfg.Engine.Socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Open(t.Context(), testManifest("acme")); !errors.Is(err, wire.CodeNSUnknown) {
		t.Errorf("a tenant that is gone: %v, want NS_UNKNOWN", err)
	}
	if _, err := c.Open(t.Context(), testManifest("other")); err != nil {
		t.Errorf("the new tenant: %v", err)
	}
}

// A thousand peers come in one reload and go in the next.
func TestAThousandPeersComeAndGoByReload(t *testing.T) {
	r := startReloadable(t, shortDir(t), "one", linkTable)
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(entry("tcp://127.0.0.1:1", fmt.Sprint("p", i)))
	}
	if got := r.to(linkTable + many.String()); len(got.applied) != 1000 || len(got.restart) != 0 {
		t.Errorf("%d taken over, %d need a restart", len(got.applied), len(got.restart))
	}
	if n := len(r.fabrics.Names()); n != 1001 {
		t.Errorf("%d fabrics and peers", n)
	}
	r.to(linkTable)
	if n := len(r.fabrics.Names()); n != 1 || len(r.node.Peers()) != 0 {
		t.Errorf("%d fabrics and peers are left", n)
	}
	r.get(t, "/metrics")
}

// Reloads while blocks are fetched: no wrong byte, and in the end nothing is left
// of what transfers took.
func TestReloadsUnderLoadServeNoWrongByte(t *testing.T) {
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	addr := prefill.Ports()["link"][0]
	with := linkTable + entry(addr, "prefill")
	decode := startReloadable(t, dir, "decode", with)
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 24)
	a.put(t, keys, 32<<10, wire.OutputCritical, 0)
	var got atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i = (i + 1) % len(keys) {
			select {
			case <-stop:
				return
			default:
			}
			decode.store.Discard(b.ns, keys[i:i+1]) // so that it has to come from the peer
			if b.fetch(t, keys[i:i+1])[0] == nil {
				got.Add(1)
			}
		}
	})
	for i := range 12 {
		decode.to(linkTable)
		decode.to(with)
		decode.ready(t)
		had := got.Load()
		until(t, fmt.Sprint("blocks arrive after reload ", i), func() bool { return got.Load() > had+1 })
	}
	close(stop)
	wg.Wait()
	decode.quietNow(t)
	prefill.quietNow(t)
}

// A tenant that our own certificate proves to nobody is a mistake in one of the two.
func TestATenantThatACertificateProvesInVainIsWarnedOf(t *testing.T) {
	dir := shortDir(t)
	ca := newAuthority(t, dir)
	text := func(tenants string) string {
		return "[link]\n[[link.peer]]\nname = \"b\"\ntenants = [" + tenants + "]\n" + ca.issue(t, "one", "acme")
	}
	r := startReloadable(t, dir, "one", text(`"acme", "globex"`))
	adm := r.adminClient(t)
	for tenants, want := range map[string]string{
		`"acme"`:   "",
		`"globex"`: `link.tls.cert: "one-acme.pem" proves tenant "acme", which is in tenants of no [[link.peer]]`,
	} {
		r.write(text(tenants))
		res, err := adm.Reload(t.Context(), &adminpb.ReloadRequest{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(res.Warnings, "\n"); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("tenants %s: %q, want %q", tenants, got, want)
		}
	}
}

// A reload takes over who may use a relay, and nothing else of its table.
func TestAReloadTakesOverWhoMayUseARelay(t *testing.T) {
	text := func(allow, advertise string) string {
		return "[fabric.between]\nkind = \"mooncake-relay\"\ntarget = \"far=127.0.0.1:1\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nadvertise = \"" + advertise + "\"\nallow = [" + allow + "]\n"
	}
	r := startReloadable(t, shortDir(t), "one", text(`"old=10.0.0.0/24"`, "127.0.0.1"))
	counted := func(source string) bool {
		_, ok := r.series(t, fmt.Sprintf("meridian_relay_requests_total{fabric=\"between\",source=%q}", source))
		return ok
	}
	if !counted("old") || counted("new") {
		t.Error("the source of the start is not counted")
	}
	got := r.to(text(`"new=10.0.1.0/24"`, "127.0.0.2"))
	if len(got.applied) != 1 || got.applied[0].Key != "fabric.between.allow" || len(got.restart) != 1 || got.restart[0].Key != "fabric.between.advertise" {
		t.Errorf("applied %v, needs a restart %v", got.applied, got.restart)
	}
	if counted("old") || !counted("new") {
		t.Error("the sources are those of before")
	}
}

// The same for a fabric of Mooncake peers, with a metadata server of its own and without.
func TestAReloadTakesOverWhoMayConnectByMooncake(t *testing.T) {
	for _, more := range []string{"", "metadata_listen = \"127.0.0.1:0\"\n"} {
		text := func(allow, lanes string) string {
			return "[fabric.moon]\nkind = \"mooncake\"\nlanes = " + lanes + "\nallow = [" + allow + "]\n" + more
		}
		r := startReloadable(t, shortDir(t), "one", text(`"10.0.0.0/24"`, "1"))
		got := r.to(text(`"10.0.1.0/24"`, "2"))
		if len(got.applied) != 1 || got.applied[0].Key != "fabric.moon.allow" || len(got.restart) != 1 || got.restart[0].Key != "fabric.moon.lanes" {
			t.Errorf("%q: applied %v, needs a restart %v", more, got.applied, got.restart)
		}
	}
	store := func(allow, prefix string) string {
		return "[fabric.attic]\nkind = \"mooncake-store\"\nmasters = \"127.0.0.1:1\"\ninsecure = true\nallow = [" + allow + "]\nprefix = \"" + prefix + "\"\n"
	}
	r := startReloadable(t, shortDir(t), "one", store("", "a"))
	got := r.to(store(`"10.0.1.0/24"`, "b"))
	if len(got.applied) != 1 || got.applied[0].Key != "fabric.attic.allow" || len(got.restart) != 1 || got.restart[0].Key != "fabric.attic.prefix" {
		t.Errorf("a store: applied %v, needs a restart %v", got.applied, got.restart)
	}
}

// Mooncake peers come and go by a reload, each with its window. A trial run, and a reload
// that another fabric refuses, leave all as it was.
func TestMooncakePeersComeAndGoByAReload(t *testing.T) {
	text := func(moon, sun string) string {
		out := ""
		for name, peers := range map[string]string{"moon": moon, "sun": sun} {
			out += "[fabric." + name + "]\nkind = \"mooncake\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\nwindow_bytes = \"1MiB\"\ninsecure = true\nallow = [\"192.0.2.0/24\"]\npeers = [" + peers + "]\n"
		}
		return out
	}
	r := startReloadable(t, shortDir(t), "one", text(`"far=192.0.2.1:1"`, ""))
	stands := func(what, peers string, windows int) {
		t.Helper()
		if got := peersOf(t, r); got != peers || r.windows.Stats().Windows != windows {
			t.Errorf("%s: peers %q and %d windows, want %q and %d", what, got, r.windows.Stats().Windows, peers, windows)
		}
	}
	stands("at the start", "far idle", 1)
	r.write(text(`"near=192.0.2.2:1", "far=192.0.2.1:1"`, ""))
	if _, err := r.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	stands("a trial run", "far idle", 1)
	r.write(text(`"near=192.0.2.2:1", "far=192.0.2.1:1"`, `"a=192.0.2.3:1", "b=192.0.2.3:2"`))
	if _, err := r.reload(t.Context(), false); !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), "fabric.sun.peers: peer b: peer a has the address 192.0.2.3 too") {
		t.Errorf("two peers at one address: %v", err)
	}
	stands("after a refusal", "far idle", 1)
	before, _ := r.fabrics.Get("moon/far")
	got := r.to(text(`"near=192.0.2.2:1", "far=192.0.2.1:1"`, ""))
	if len(got.applied) != 1 || got.applied[0].Key != "fabric.moon.peers" || len(got.restart) != 0 {
		t.Errorf("applied %v, needs a restart %v", got.applied, got.restart)
	}
	stands("one more", "far idle, near idle", 2)
	if now, _ := r.fabrics.Get("moon/far"); now != before {
		t.Error("the peer whose entry stays is another one")
	}
	if _, ok := r.fabrics.Get("moon/near"); !ok {
		t.Error("no route can name the new peer")
	}
	r.to(text(`"near=192.0.2.2:2"`, ""))
	stands("one gone and one changed", "near idle", 1)
	if _, ok := r.fabrics.Get("moon/far"); ok {
		t.Error("a route can name the peer that is gone")
	}
	if _, ok := r.series(t, `meridian_peer_failures_total{direction="in",fabric="moon",peer="far",reason="BUSY"}`); ok {
		t.Error("a peer that is gone has a metric")
	}
}
