package bridge

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"meridian/bench/harness"
	"meridian/wire"
)

// drivers are the applications.
//
//go:embed drivers/*.py
var drivers embed.FS

const (
	nixlDriver     = "nixl_app.py"
	mooncakeDriver = "mooncake_app.py"

	// answerWait bounds one answer of an application, which ends its own waits before.
	answerWait = 3 * time.Minute
)

// MissingError is a part that is not installed here. Its text says what to install.
type MissingError struct{ Text string }

func (e *MissingError) Error() string { return e.Text }

// app is an application: a process with a wheel of NIXL or Mooncake.
type app struct {
	*harness.Process
	name    string // of its agent, or of its segment
	version string
	listen  string // where a NIXL agent's listener is
}

// order is one line to an application, drivers/app.py has the list.
type order struct {
	Do      string   `json:"do"`
	Path    string   `json:"path,omitempty"`
	Bring   bool     `json:"bring"`
	N       int      `json:"n,omitempty"`
	Stride  int      `json:"stride,omitempty"`
	Count   int      `json:"count,omitempty"`
	Daemon  string   `json:"daemon,omitempty"`
	Segment string   `json:"segment,omitempty"`
	NS      string   `json:"ns,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	At      int      `json:"at"`
	Bytes   int      `json:"bytes,omitempty"`
}

type answer struct {
	Error   string `json:"error"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Count   int    `json:"count"`
}

// unpack writes the drivers.
func unpack(dir string) error {
	files, err := fs.Glob(drivers, "drivers/*.py")
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := drivers.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// python is the interpreter and the folder of its packages.
func (o *Options) python() (program, packages string, err error) {
	if program, err = exec.LookPath("python3"); err != nil {
		return "", "", &MissingError{"python3 is not installed"}
	}
	if _, err := os.Stat(filepath.Join(o.Python, ".installed")); err != nil {
		return "", "", &MissingError{fmt.Sprintf("no Python packages at %q; internal/ci/python.sh peers installs them", o.Python)}
	}
	packages, err = filepath.Abs(o.Python)
	return program, packages, err
}

// startNIXL starts an application with an agent that has so many bytes of memory.
func (r *run) startNIXL(ctx context.Context, name string, bytes int) (*app, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil { // free a moment ago
		return nil, err
	}
	a, err := r.startApp(ctx, name, nixlDriver, []string{"UCX_TLS=" + r.opt.UCX, "UCX_PROTO_EMULATION_ENABLE=y", "UCX_NET_DEVICES=lo", "UCX_DEBUG_SIGNO=0", "UCX_WARN_UNUSED_ENV_VARS=n"},
		name, strconv.Itoa(at.Port), strconv.Itoa(bytes))
	if err == nil {
		a.listen = at.String()
	}
	return a, err
}

func (r *run) startApp(ctx context.Context, name, driver string, env []string, args ...string) (*app, error) {
	program, packages, err := r.opt.python()
	if err != nil {
		return nil, err
	}
	r.started++
	name = fmt.Sprintf("%s-%d", name, r.started)
	cmd := exec.Command(program, append([]string{filepath.Join(r.dir, driver)}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+r.dir, "PYTHONPATH="+packages), env...)
	p, err := harness.Start(name, cmd, harness.Options{Log: harness.LogIn(r.dir, name), Talk: true})
	if err != nil {
		return nil, err
	}
	a := &app{Process: p}
	first, err := a.answer(ctx, "start")
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	a.name, a.version = first.Name, first.Version
	return a, nil
}

// ask gives an order and waits for its answer.
func (a *app) ask(ctx context.Context, o order) (answer, error) {
	if err := a.Put(o); err != nil {
		return answer{}, fmt.Errorf("%s, %s: %w%s", a.Name, o.Do, err, a.Tail())
	}
	return a.answer(ctx, o.Do)
}

func (a *app) answer(ctx context.Context, do string) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if err = a.Next(ctx, &got); err == nil && got.Error != "" {
		err = errors.New(got.Error)
	}
	if err != nil {
		return got, fmt.Errorf("%s, %s: %w%s", a.Name, do, err, a.Tail())
	}
	return got, nil
}

// load gives it the payloads: to bring, or to compare with.
func (a *app) load(ctx context.Context, s *set, bring bool) error {
	_, err := a.ask(ctx, order{Do: "load", Path: s.path, Bring: bring, N: wire.HeaderLen + int(s.size), Stride: s.stride, Count: s.count})
	return err
}

// appSource is an application that brings blocks.
type appSource struct {
	*app
	set *set
}

func (a *appSource) prepare(ctx context.Context, d *daemon, keys []wire.Key) error {
	_, err := a.ask(ctx, order{Do: "prepare", Daemon: d.name, Segment: d.segment(), NS: a.set.ns.String(), Keys: hexadecimal(keys)})
	return err
}

func (a *appSource) bring(ctx context.Context, _ *daemon, _ []wire.Key) error {
	_, err := a.ask(ctx, order{Do: "bring"})
	return err
}

func (a *appSource) close() error { return a.Stop() }

// appSink is an application of NIXL that lends memory: one half of it, and the other one
// for the next blocks. A new place has none of the blocks of before.
type appSink struct {
	*app
	set    *set
	daemon *daemon
	half   int // bytes
	second bool
}

func (a *appSink) expect(ctx context.Context, keys []wire.Key) error {
	lend := order{Do: "lend", Daemon: a.daemon.name, Bytes: a.half}
	if a.second = !a.second; a.second {
		lend.At = a.half
	}
	if _, err := a.ask(ctx, lend); err != nil {
		return err
	}
	_, err := a.ask(ctx, order{Do: "expect", NS: a.set.ns.String(), Keys: hexadecimal(keys)})
	return err
}

func (a *appSink) wait(ctx context.Context) error {
	_, err := a.ask(ctx, order{Do: "collect"})
	return err
}

func (a *appSink) check(ctx context.Context) (int, error) {
	got, err := a.ask(ctx, order{Do: "check"})
	return got.Count, err
}

func (a *appSink) close() error { return a.Stop() }

func hexadecimal(keys []wire.Key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.String()
	}
	return out
}
