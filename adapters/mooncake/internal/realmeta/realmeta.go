// Package realmeta starts the metadata servers that engines use, for tests. It imports
// "testing" and is for test binaries only.
package realmeta

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/metaserver"
	"meridian/bench/harness"
	"meridian/blocks/quota"
	"meridian/internal/realpart"
	"meridian/internal/realpart/etcdnode"
)

// startWait bounds what a real part may take to start on a busy machine.
const startWait = time.Minute

// Servers are the metadata servers that engines can use: Start starts one, and returns
// what engines are told.
var Servers = []struct {
	Name  string
	Start func(t *testing.T) string
}{
	{"without a server", func(*testing.T) string { return metadata.P2P }},
	{"our HTTP server", ourServer},
	{"the wheel's HTTP server", func(t *testing.T) string { return Python(t, FreePort(t)) }},
	{"the master's HTTP server", masterServer},
	{"etcd", func(t *testing.T) string { return "etcd://" + etcdnode.Start(t).Endpoint }},
}

func ourServer(t *testing.T) string {
	s, err := metaserver.Listen(t.Context(), metaserver.Config{Listen: "127.0.0.1:0", Quota: &quota.Book{}, Table: "fabric.mooncake"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + s.Address() + metadata.HTTPPath
}

// FreePort is one that was free a moment ago.
func FreePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Python is the wheel's HTTP server at a port, until the test ends or its process
// is killed.
func Python(t *testing.T, port string) string {
	url, _ := StartPython(t, port)
	return url
}

// StartPython is Python, and what kills it before the test ends.
func StartPython(t *testing.T, port string) (url string, kill func()) {
	// The module of the server alone: the package's __init__ loads what it does not need.
	cmd := exec.Command(realpart.Python(t), filepath.Join(realpart.Mooncake(t), "mooncake", "http_metadata_server.py"), "--host", "127.0.0.1", "--port", port)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+realpart.Packages(t, "aiohttp"))
	return started(t, "python", cmd, "http://127.0.0.1:"+port+metadata.HTTPPath)
}

func masterServer(t *testing.T) string {
	port := FreePort(t)
	cmd := realpart.MooncakeMaster(t, "127.0.0.1:"+FreePort(t), "127.0.0.1:"+FreePort(t),
		"--enable_http_metadata_server=true", "--http_metadata_server_host=127.0.0.1", "--http_metadata_server_port="+port)
	url, _ := started(t, "mooncake_master", cmd, "http://127.0.0.1:"+port+metadata.HTTPPath)
	return url
}

// started starts a server and waits until it says that it has no such key.
func started(t *testing.T, name string, cmd *exec.Cmd, url string) (string, func()) {
	t.Helper()
	p, err := harness.Start(name, cmd, harness.Options{Log: harness.LogIn(t.TempDir(), name), Term: true})
	if err != nil {
		t.Fatal(err)
	}
	kill := func() {
		p.Kill()
		<-p.Done()
	}
	t.Cleanup(kill)
	ctx, cancel := context.WithTimeout(t.Context(), startWait)
	defer cancel()
	err = harness.Poll(ctx, p, func() error {
		resp, err := http.Get(url + "?key=mooncake%2Fram%2Fnobody")
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
	http.DefaultClient.CloseIdleConnections()
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Tail())
	}
	return url, kill
}
