// Package systemd_test checks the unit: by systemd itself where it is installed,
// and for what the daemon needs of it.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const unit = "meridiand.service"

// directives are the unit's settings in order; a key may have several.
func directives(t *testing.T) (map[string][]string, string) {
	t.Helper()
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	d := map[string][]string{}
	for _, line := range strings.Split(string(b), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			d[key] = append(d[key], value)
		}
	}
	return d, string(b)
}

// systemd knows every directive and value. The binary need not be installed:
// the test gives the unit another one.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit was checked for what the daemon needs only")
	}
	_, text := directives(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), unit)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/bin/meridiand", self)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", path)
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_COLOR=0")
	out, err := cmd.CombinedOutput()
	// A warning does not change the exit status; it names the file.
	if err != nil || strings.Contains(string(out), unit) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// What the daemon does, the unit allows, and what it does not do, the unit does
// not promise.
func TestUnitFitsTheDaemon(t *testing.T) {
	d, _ := directives(t)
	for key, want := range map[string]string{
		"Type":                  "notify",
		"ExecStart":             "/usr/bin/meridiand --config /etc/meridian/meridian.toml",
		"ExecStartPre":          "/usr/bin/meridiand -t --config /etc/meridian/meridian.toml",
		"RuntimeDirectory":      "meridian",                // /run/meridian: the sockets of meridian.toml
		"StateDirectory":        "meridian",                // /var/lib/meridian: agent.state_dir
		"TimeoutStartSec":       "60",                      // READY=1 comes when the daemon serves, peers or not
		"ExecReload":            "/bin/kill -HUP $MAINPID", // SIGHUP reads the configuration again
		"WatchdogSec":           "10",
		"LimitMEMLOCK":          "infinity",
		"NoNewPrivileges":       "yes",
		"CapabilityBoundingSet": "",
		"ProtectSystem":         "strict",
	} {
		if got := d[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for key, why := range map[string]string{
		"RestartPreventExitStatus":   "a wrong configuration ends meridiand with 2, and so does a panic of Go",
		"ConfigurationDirectoryMode": "the folder is root's: the daemon must be able to read it",
		"PrivateUsers":               "SO_PEERCRED would not show the engine's user",
		"PrivateNetwork":             "peers are reached over the network",
		"ProcSubset":                 "capacity auto reads /proc/meminfo",
		"MemoryMax":                  "the arena counts into it; its size is the operator's",
	} {
		if d[key] != nil {
			t.Errorf("%s is set: %s", key, why)
		}
	}
	families := strings.Fields(strings.Join(d["RestrictAddressFamilies"], " "))
	for _, f := range []string{"AF_UNIX", "AF_INET", "AF_INET6"} {
		if !slices.Contains(families, f) {
			t.Errorf("%s is not allowed", f)
		}
	}
	// @ipc has memfd_create and @process pidfd_open.
	if f := d["SystemCallFilter"]; !slices.Equal(f, []string{"@system-service", "~@privileged @keyring"}) {
		t.Errorf("SystemCallFilter is %q", f)
	}
}
