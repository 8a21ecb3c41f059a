package peers

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"meridian/bench/harness"
)

// drivers are the Python programs of Mooncake and NIXL.
//
//go:embed drivers/*.py
var drivers embed.FS

// pair is the two processes of one or more systems.
type pair struct {
	target, initiator *process
	// peer is what the initiator gets where the target does not answer orders
	// (Redis); nil: the target's own answer.
	peer    any
	version string
	resting bool         // it is stopped while others are measured
	helper  int          // another process of the initiator's; 0: none
	between *relayDaemon // what the initiator goes through; nil: nothing
	via     string
}

// MissingError is a peer that cannot be had here. Reason says what to install.
type MissingError struct{ System, Reason string }

// Error says what is missing.
func (e *MissingError) Error() string { return e.System + " is not here: " + e.Reason }

// startPair starts the processes of a pair. *MissingError where something is
// not installed.
func (r *run) startPair(ctx context.Context, name string) (*pair, error) {
	switch name {
	case theirs:
		return r.startPython(ctx, name, mooncakeDriver)
	case relayed:
		p, err := r.startPython(ctx, name, mooncakeDriver)
		if p != nil {
			p.between = &relayDaemon{r: r}
		}
		return p, err
	case oursToTheirs, theirsToOurs:
		return r.startMixed(ctx, name)
	case "nixl-tcp", "nixl-cma":
		return r.startNIXL(ctx, name)
	case helperTCP, helperCMA:
		return r.startHelper(ctx, name)
	case "redis":
		return r.startRedis(ctx)
	}
	p := &pair{}
	var err error
	if p.target, err = r.startOwn(ctx, name, roleTarget); err != nil {
		return p, err
	}
	p.initiator, err = r.startOwn(ctx, name, roleInitiator)
	return p, err
}

const (
	mooncakeDriver = "mooncake_te.py"
	nixlDriver     = "nixl_ucx.py"
)

// startMixed starts a pair of which one side is Mooncake's and the other ours.
func (r *run) startMixed(ctx context.Context, name string) (*pair, error) {
	argv, env, err := r.python(name, mooncakeDriver)
	if err != nil {
		return nil, err
	}
	p := &pair{}
	if name == oursToTheirs {
		if p.target, err = r.startDriver(ctx, p, roleTarget, r.farRoom(), name, argv, env); err == nil {
			p.initiator, err = r.startOwn(ctx, name, roleInitiator)
		}
		return p, err
	}
	if p.target, err = r.startOwn(ctx, name, roleTarget); err == nil {
		p.initiator, err = r.startDriver(ctx, p, roleInitiator, r.nearRoom(), name, argv, env)
	}
	return p, err
}

// startOwn starts this program again.
func (r *run) startOwn(ctx context.Context, pair, role string) (*process, error) {
	p, err := start(r.dir, pair+"-"+role, harness.Again(r.opt.Self, pair, role, r.dir), true)
	if err != nil {
		return nil, err
	}
	_, err = p.answer(ctx, "start", answerWait)
	return p, err
}

// nixlEnv is what NIXL's own notes ask for on a host without an RDMA device:
// software reads allowed, the loopback device only. UCX must not take over
// signals.
var nixlEnv = []string{"UCX_PROTO_EMULATION_ENABLE=y", "UCX_NET_DEVICES=lo", "UCX_DEBUG_SIGNO=0", "UCX_WARN_UNUSED_ENV_VARS=n"}

func (r *run) startPython(ctx context.Context, name, driver string, env ...string) (*pair, error) {
	argv, env, err := r.python(name, driver, env...)
	if err != nil {
		return nil, err
	}
	return r.startDrivers(ctx, name, argv, env)
}

// python is how a driver is started.
func (r *run) python(name, driver string, env ...string) (argv, environ []string, err error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, nil, &MissingError{name, "python3 is not installed"}
	}
	if _, err := os.Stat(filepath.Join(r.opt.Python, ".installed")); err != nil {
		return nil, nil, &MissingError{name, fmt.Sprintf("no Python packages at %q; internal/ci/python.sh peers installs them", r.opt.Python)}
	}
	packages, err := filepath.Abs(r.opt.Python)
	return []string{python, filepath.Join(r.dir, driver)}, append(env, "PYTHONPATH="+packages), err
}

// startDrivers starts a target and an initiator in Python.
func (r *run) startDrivers(ctx context.Context, name string, argv, env []string) (*pair, error) {
	p := &pair{}
	var err error
	if p.target, err = r.startDriver(ctx, p, roleTarget, r.farRoom(), name, argv, env); err != nil {
		return p, err
	}
	p.initiator, err = r.startDriver(ctx, p, roleInitiator, r.nearRoom(), name, argv, env)
	return p, err
}

// startDriver starts one side in Python, with so many bytes of memory, and notes its version.
func (r *run) startDriver(ctx context.Context, p *pair, role string, bytes uint64, name string, argv, env []string) (*process, error) {
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], role, strconv.FormatUint(bytes, 10))...)
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+r.dir), env...)
	q, err := start(r.dir, name+"-"+role, cmd, true)
	if err != nil {
		return nil, err
	}
	a, err := q.answer(ctx, "start", answerWait)
	p.version = a.Version
	return q, err
}

// startNIXL is startPython for NIXL with UCX over the transports of the name.
func (r *run) startNIXL(ctx context.Context, name string) (*pair, error) {
	p, err := r.startPython(ctx, name, nixlDriver, append([]string{"UCX_TLS=" + nixlTransports[name]}, nixlEnv...)...)
	if p != nil {
		p.resting = true // its progress thread wakes every millisecond
	}
	return p, err
}

// startHelper starts NIXL's target, and an initiator of ours that has the helper.
func (r *run) startHelper(ctx context.Context, name string) (*pair, error) {
	argv, env, err := r.python(name, nixlDriver, append([]string{"UCX_TLS=" + nixlTransports[name]}, nixlEnv...)...)
	if err != nil {
		return nil, err
	}
	helper := r.opt.Helper
	if helper == "" {
		helper = filepath.Join(filepath.Dir(r.opt.Self[0]), helperFile)
	}
	if helper, err = filepath.Abs(helper); err != nil {
		return nil, err
	}
	if _, err := os.Stat(helper); err != nil {
		return nil, &MissingError{name, fmt.Sprintf("%s is not built: go build -o %s ./cmd/meridian-ffi", helperFile, helper)}
	}
	packages, err := filepath.Abs(r.opt.Python)
	if err != nil {
		return nil, err
	}
	for link, to := range map[string]string{helperFile: helper, packageLink: packages} {
		if err := os.Symlink(to, filepath.Join(r.dir, link)); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	p := &pair{resting: true}
	if p.target, err = r.startDriver(ctx, p, roleTarget, r.farRoom(), name, argv, env); err == nil {
		p.initiator, err = r.startOwn(ctx, name, roleInitiator)
	}
	return p, err
}

// startRedis starts a server of its own, without persistence, which listens on a
// Unix socket and a loopback port.
func (r *run) startRedis(ctx context.Context) (*pair, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, &MissingError{"redis", "redis-server is not installed (Debian: redis-server)"}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	peer := redisPeer{Unix: filepath.Join(r.dir, "redis.sock"), TCP: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	p := &pair{peer: peer}
	p.target, err = start(r.dir, "redis-server", exec.Command(path, "--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--unixsocket", peer.Unix, "--save", "", "--appendonly", "no", "--dir", r.dir), false)
	if err != nil {
		return p, err
	}
	if p.version, err = awaitRedis(ctx, p.target, peer.Unix); err != nil {
		return p, err
	}
	p.initiator, err = r.startOwn(ctx, "redis", roleInitiator)
	return p, err
}

// freePort is one that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// awaitRedis waits until the server answers, and returns its version.
func awaitRedis(ctx context.Context, p *process, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	version := ""
	err := harness.Poll(ctx, p.Process, func() error {
		c, err := dialRESP("unix", path)
		if err != nil {
			return err
		}
		version, err = c.info("redis_version")
		return errors.Join(err, c.close())
	})
	if err != nil {
		return "", p.failed("start", err)
	}
	return version, nil
}

// prepare readies the pair for a cell and a mode, and proves that the bytes it
// then moves are right.
func (p *pair) prepare(ctx context.Context, s system, c Cell) error {
	peer, err := p.ready(ctx, c)
	if err != nil {
		return err
	}
	ready, err := p.initiator.ask(ctx, command{Do: doPrepare, Cell: c, Mode: s.mode, Peer: peer})
	if err != nil {
		return err
	}
	p.helper = ready.Helper
	if c.Op == Write && p.peer == nil {
		if _, err := p.target.ask(ctx, command{Do: doWipe, Cell: c}); err != nil {
			return err
		}
	}
	a, err := p.initiator.ask(ctx, command{Do: doCheck, Cell: c, Mode: s.mode})
	if err != nil {
		return err
	}
	compared := a.Bytes
	p.via = a.Via
	if len(a.Wrote) > 0 {
		if a, err = p.target.ask(ctx, command{Do: doVerify, Cell: c, Wrote: a.Wrote}); err != nil {
			return err
		}
		compared = a.Bytes
	}
	if compared != c.near() {
		return fmt.Errorf("%s: a check compared %d bytes, want the %d of a batch of each stream", s.name, compared, c.near())
	}
	return nil
}

// ready prepares the target and returns what its initiator needs to know.
func (p *pair) ready(ctx context.Context, c Cell) (json.RawMessage, error) {
	if p.peer != nil {
		return json.Marshal(p.peer)
	}
	a, err := p.target.ask(ctx, command{Do: doPrepare, Cell: c})
	if err != nil || p.between == nil {
		return a.Peer, err
	}
	peer, err := p.between.through(ctx, a.Peer)
	if err != nil {
		return nil, err
	}
	return json.Marshal(peer)
}

// sample is one round of one system.
type sample struct {
	rate float64 // GB/s
	cpu  float64 // seconds a GB
	took []time.Duration
}

// measure runs the mode for d.
func (p *pair) measure(ctx context.Context, s system, c Cell, d time.Duration) (sample, error) {
	before, err := p.cpu()
	if err != nil {
		return sample{}, err
	}
	a, err := p.initiator.ask(ctx, command{Do: doRun, Cell: c, Mode: s.mode, MS: d.Milliseconds()})
	if err != nil {
		return sample{}, err
	}
	after, err := p.cpu()
	if err != nil {
		return sample{}, err
	}
	if a.Bytes == 0 || a.Seconds <= 0 || a.Bytes != uint64(len(a.Took))*c.batchBytes() {
		return sample{}, fmt.Errorf("%s: a run of %v moved %d bytes in %d batches and %v s", s.name, d, a.Bytes, len(a.Took), a.Seconds)
	}
	gb := float64(a.Bytes) / 1e9
	out := sample{rate: gb / a.Seconds, cpu: (after - before).Seconds() / gb, took: make([]time.Duration, len(a.Took))}
	for i, t := range a.Took {
		out.took[i] = time.Duration(t)
	}
	return out, nil
}

// cpu is the processor time of all processes of the pair.
func (p *pair) cpu() (time.Duration, error) {
	t, err := p.target.CPU()
	if err != nil {
		return 0, err
	}
	i, err := p.initiator.CPU()
	if err != nil {
		return 0, err
	}
	b, err := p.between.cpu()
	if err != nil || p.helper == 0 {
		return t + i + b, err
	}
	h, err := harness.CPU(p.helper)
	return t + i + h, err
}

// rest stops what does not keep still by itself.
func (p *pair) rest() error {
	if !p.resting {
		return nil
	}
	return errors.Join(p.target.Rest(), p.initiator.Rest(), p.signal(syscall.SIGSTOP))
}

func (p *pair) wake() error {
	return errors.Join(p.signal(syscall.SIGCONT), p.target.Wake(), p.initiator.Wake())
}

// signal is for the helper.
func (p *pair) signal(s syscall.Signal) error {
	if p.helper == 0 {
		return nil
	}
	return syscall.Kill(p.helper, s)
}

// stop ends all, the initiator first.
func (p *pair) stop() error {
	var errs []error
	if p.initiator != nil {
		errs = append(errs, p.initiator.Stop())
	}
	errs = append(errs, p.between.stop())
	if p.target != nil {
		errs = append(errs, p.target.Stop())
	}
	return errors.Join(errs...)
}
