// Package testdaemon runs a daemon in the process of a test, as its configuration makes it.
// It imports "testing" and is for test binaries only.
package testdaemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testbed"
)

// Daemon is one that runs.
type Daemon struct {
	Dir   string
	Ports map[string][]string // by name, as --ports-file has them
	Stop  func()              // ends it; so does the test's end
}

// Start runs a daemon called house, with an arena of 16 MiB, until the test ends. tables are
// those of its configuration that come behind.
func Start(t testing.TB, tables string) *Daemon {
	t.Helper()
	d := &Daemon{Dir: testbed.ShortDir(t)}
	text := fmt.Sprintf("[agent]\nname = \"house\"\nstate_dir = \"state\"\n[engine]\nsocket = %q\nstaging_bytes = \"1MiB\"\n[admin]\nsocket = %q\n[kv_memory]\ncapacity_bytes = \"16MiB\"\n", d.Engine(), d.Admin())
	if err := os.WriteFile(d.at("m.toml"), []byte(text+tables), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := openers.Load(config.Options{Path: d.at("m.toml")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, d.at("ports"))
	}()
	d.Stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.Stop)
	testbed.Until(t, "the daemon listens", func() bool {
		b, err := os.ReadFile(d.at("ports"))
		return err == nil && json.Unmarshal(b, &d.Ports) == nil
	})
	return d
}

func (d *Daemon) at(name string) string { return filepath.Join(d.Dir, name) }

// Engine is the socket for engines.
func (d *Daemon) Engine() string { return d.at("e") }

// Admin is the socket of the admin API.
func (d *Daemon) Admin() string { return d.at("a") }

// Ready waits until the daemon says that it is.
func (d *Daemon) Ready(t testing.TB) {
	t.Helper()
	testbed.Until(t, "the daemon is ready", func() bool { return strings.Contains(d.Page("/readyz"), "ready") })
}

// Page is what its HTTP listener answers; nothing where that is an error.
func (d *Daemon) Page(path string) string {
	res, err := http.Get(d.Ports["http"][0] + path)
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}
