package python

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testbed"
)

// daemonArgument makes the test binary a daemon: CONFIG PORTSFILE follow.
const daemonArgument = "python-test-daemon"

func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != daemonArgument {
		os.Exit(m.Run())
	}
	cfg, _, err := openers.Load(config.Options{Path: os.Args[2]})
	if err == nil {
		err = agent.Run(context.Background(), cfg, agent.Options{}, os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// daemon is one in a process of its own, which may be killed and started again.
type daemon struct {
	dir, name string
	cmd       *exec.Cmd
	http      string
}

// newDaemon starts one with an arena of 32 MiB; tables are those of its configuration that
// come behind.
func newDaemon(t testing.TB, dir, name, tables string) *daemon {
	t.Helper()
	d := &daemon{dir: dir, name: name}
	text := fmt.Sprintf("[agent]\nname = %q\nstate_dir = %q\n[engine]\nsocket = %q\nstaging_bytes = \"4MiB\"\n[admin]\nsocket = %q\n[kv_memory]\ncapacity_bytes = \"32MiB\"\n",
		name, d.at("state"), d.at("e"), d.at("a"))
	if err := os.WriteFile(d.at("toml"), []byte(text+thinker+tables), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start(t)
	return d
}

func (d *daemon) at(ext string) string { return filepath.Join(d.dir, d.name+"."+ext) }

func (d *daemon) start(t testing.TB) {
	t.Helper()
	_ = os.Remove(d.at("ports"))
	cmd := exec.Command(os.Args[0], daemonArgument, d.at("toml"), d.at("ports"))
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d.cmd = cmd
	var ports map[string][]string
	testbed.Until(t, d.name+" listens", func() bool {
		b, err := os.ReadFile(d.at("ports"))
		return err == nil && json.Unmarshal(b, &ports) == nil
	})
	d.http = ports["http"][0]
}

// kill ends it with -9.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// ready waits until it says that it is.
func (d *daemon) ready(t testing.TB) {
	t.Helper()
	testbed.Until(t, d.name+" is ready", func() bool {
		res, err := http.Get(d.http + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode == http.StatusOK
	})
}

// varz is what it says of itself.
func (d *daemon) varz(t testing.TB) (v agent.Varz) {
	t.Helper()
	res, err := http.Get(d.http + "/varz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// quiet waits until nothing is left of what engines took; with none, also of engines.
func (d *daemon) quiet(t testing.TB, engines int) {
	t.Helper()
	var v agent.Varz
	defer func() {
		if t.Failed() {
			t.Logf("%s: blocks %+v, engines %+v", d.name, v.Blocks, v.Engine)
		}
	}()
	testbed.Until(t, "the counts of "+d.name+" are back to zero", func() bool {
		v = d.varz(t)
		b := &v.Blocks
		return b.Leases == 0 && b.Holds == 0 && b.Reserved == 0 && b.Pins == 0 && b.Quarantined == 0 && b.Transient == 0 && b.Orphans == 0 && b.Leaked == 0 &&
			v.TransfersIn == 0 && v.TransfersOut == 0 && v.Engine.InFlight == 0 && v.Engine.Engines == engines
	})
}
