package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meridian/agent"
	"meridian/agent/config"
)

// started is what the daemon was called with.
type started struct {
	cfg   *config.Config
	opt   agent.Options
	ports string
}

func command(t *testing.T, fails error, env []string, args ...string) (code int, out, errOut string, s *started) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, env, &o, &e, func(_ context.Context, c *config.Config, opt agent.Options, ports string) error {
		s = &started{c, opt, ports}
		return fails
	})
	return code, o.String(), e.String(), s
}

func file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheDaemonGetsItsConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "m.toml", "[agent]\nname = \"file\"\n[link]\nlanes = 2\n[kv_memory]\ncapacity_bytes = \"1GiB\"\n")
	code, _, errOut, s := command(t, nil, []string{"MERIDIAN_LINK_LANES=3"}, "-c", "m.toml", "--set", "agent.name=flag", "--ports-file", "p.json")
	if code != 0 || s == nil || errOut != "" {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	if s.cfg.Agent.Name != "flag" || !slices.ContainsFunc(s.cfg.Origins(), func(o config.Origin) bool { return o.Key == "link.lanes" && o.Value == "3" }) || s.cfg.KVMemory.Capacity != 1<<30 || s.ports != "p.json" || s.opt.Log == nil || s.opt.Version == "" {
		t.Errorf("%+v", s)
	}
}

func TestTestingTheConfigurationStartsNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "good.toml", "[scheduler]\nthink_batch_multiplier = 4\n")
	code, out, errOut, s := command(t, nil, nil, "-t", "--config", "good.toml")
	if code != 0 || s != nil || !strings.HasSuffix(out, "/good.toml\n") || !strings.HasPrefix(errOut, "warning: good.toml:2: ") {
		t.Errorf("exit %d, started %v, %q, %q", code, s, out, errOut)
	}
	file(t, "bad.toml", "[link]\nlistne = []\nlanes = 99\n")
	code, _, errOut, s = command(t, nil, nil, "-t", "-c", "bad.toml")
	if code != 1 || s != nil || strings.Count(errOut, "error: bad.toml:") != 2 || !strings.Contains(errOut, "did you mean link.listen?") {
		t.Errorf("exit %d, started %v, %q", code, s, errOut)
	}
	file(t, "none.pem", "")
	file(t, "tls.toml", "[link.tls]\ncert = \"none.pem\"\nkey = \"none.pem\"\nca = \"none.pem\"\n")
	code, _, errOut, s = command(t, nil, nil, "-t", "-c", "tls.toml")
	if code != 1 || s != nil || !strings.Contains(errOut, "tls.toml:2: link.tls.cert: ") || !strings.Contains(errOut, "none.pem: no certificate in it") {
		t.Errorf("a file without a certificate: exit %d, started %v, %q", code, s, errOut)
	}
}

func TestExitCodes(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		fails error
		env   []string
		args  []string
		code  int
		says  string
	}{
		{nil, nil, []string{"--nope"}, 2, "unknown flag"},
		{nil, nil, []string{"extra"}, 2, "extra"},
		{nil, nil, []string{"--set", "novalue"}, 2, "table.key=value"},
		{nil, nil, []string{"--set", "agent.nmae=x"}, 1, "did you mean agent.name?"},
		{nil, []string{"MERIDIAN_NOPE=1"}, nil, 1, "MERIDIAN_NOPE"},
		{errors.New("address in use"), nil, nil, 1, "error: address in use\n"},
		{fmt.Errorf("listen: %w", syscall.EADDRINUSE), nil, nil, 1, "hint: another process, or another table of this configuration, has this address"},
		{fmt.Errorf("listen: %w", syscall.EADDRNOTAVAIL), nil, nil, 1, "hint: this host has no such address"},
		{&net.OpError{Op: "listen", Net: "tcp", Err: syscall.EACCES}, nil, nil, 1, "hint: only root may listen at a port below 1024"},
		{&fs.PathError{Op: "open", Path: "/run/x/agent-id", Err: fs.ErrPermission}, nil, nil, 1, "hint: the user that runs meridiand may not use /run/x/agent-id:"},
		{&fs.PathError{Op: "open", Path: "/run/x/engine.sock.lock", Err: fs.ErrNotExist}, nil, nil, 1, "hint: create the folder /run/x,"},
	} {
		code, _, errOut, _ := command(t, c.fails, c.env, c.args...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%q: exit %d, want %d; %q", c.args, code, c.code, errOut)
		}
	}
}
