package loadbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/bench/linkbench"
)

// The roles that this program takes when a run starts it again.
const (
	roleDaemon = "daemon" // CONFIG PORTSFILE
	rolePlain  = "plain"  // BLOCKSIZE BYTES CONGESTION PORTSFILE
)

// Play is the whole of a process with a role; it ends at SIGTERM, or for the
// plain server at the end of in.
func Play(ctx context.Context, args []string, in io.Reader) error {
	switch {
	case len(args) == 3 && args[0] == roleDaemon:
		cfg, _, err := config.Load(config.Options{Path: args[1]})
		if err != nil {
			return err
		}
		return agent.Run(ctx, cfg, agent.Options{Version: agent.BuildVersion(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}, args[2])
	case len(args) == 5 && args[0] == rolePlain:
		return playPlain(args[1:], in)
	}
	return fmt.Errorf("want %s CONFIG PORTSFILE or %s BLOCKSIZE BYTES CONGESTION PORTSFILE, got %q", roleDaemon, rolePlain, args)
}

func playPlain(args []string, in io.Reader) error {
	var size, set uint64
	if _, err := fmt.Sscan(args[0]+" "+args[1], &size, &set); err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := linkbench.ServePlain(args[2], l)
	defer s.Close()
	memory := make([]byte, set)
	var blocks [][]byte
	for at := uint64(0); at+size <= set; at += size {
		fill(memory[at:at+size], at)
		blocks = append(blocks, memory[at:at+size])
	}
	s.Show(blocks)
	ports, err := json.Marshal(map[string][]string{rolePlain: {l.Addr().String()}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[3]+".new", ports, 0o600); err != nil {
		return err
	}
	if err := os.Rename(args[3]+".new", args[3]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// fill writes bytes that are no zeros: the kernel maps one page for those.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for ; len(b) > 0; b = b[min(8, len(b)):] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b, word[:])
	}
}

const (
	// startWait bounds how long a process may take until it listens.
	startWait = time.Minute
	// stopWait bounds how long one may take to end before it is killed.
	stopWait = 10 * time.Second
	// tailBytes of a process's log go into an error.
	tailBytes = 2000
	pollEvery = 5 * time.Millisecond
)

// process is a daemon or plain server of a run.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   string // its stderr
	ports map[string][]string
	done  chan struct{} // closed when it has ended
	err   error         // how, once done
}

// start starts this program again in a role, on the given processors (none: all),
// and waits until it listens. The last argument is the ports file, which is added.
func (r *run) start(ctx context.Context, name string, cpus []int, args ...string) (*process, error) {
	r.started++
	base := filepath.Join(r.dir, fmt.Sprintf("%s-%d", name, r.started))
	p := &process{name: name, log: base + ".log", done: make(chan struct{})}
	argv := append(append(append([]string{}, r.opt.Self[1:]...), args...), base+".ports")
	p.cmd = exec.Command(r.opt.Self[0], argv...)
	// Should the measuring process die, so do its daemons.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p.cmd.Stderr = f
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := startOn(p.cmd, cpus); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err = poll(ctx, func() error {
		select {
		case <-p.done:
			return errEnded
		default:
		}
		b, err := os.ReadFile(base + ".ports")
		if err == nil {
			err = json.Unmarshal(b, &p.ports)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not listen: %w%s", name, err, p.tail()), p.stop())
	}
	return p, nil
}

var errEnded = errors.New("the process has ended")

// poll calls f until it returns nil, the process has ended, or ctx ends.
func poll(ctx context.Context, f func() error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		err := f()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-t.C:
		}
	}
}

// startOn starts a process that may run on those processors only, from its first
// instruction on: a Go program counts them then.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, c := range cpus {
		want.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return fmt.Errorf("processors %v: %w", cpus, err)
	}
	err := cmd.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// ready waits until the daemon says that it is: all its peers are there.
func (p *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	err := poll(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address("http")+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(io.LimitReader(res.Body, tailBytes))
			return fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(b))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w%s", p.name, err, p.tail())
	}
	return nil
}

// address is where the process listens for kind, "" for nowhere.
func (p *process) address(kind string) string {
	if a := p.ports[kind]; len(a) > 0 {
		return a[0]
	}
	return ""
}

// stop ends the process. One that does not end, or ends badly, is an error.
func (p *process) stop() error {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(stopWait)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v and was killed%s", p.name, stopWait, p.tail())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, p.err, p.tail())
	}
	return nil
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil || len(b) == 0 {
		return ""
	}
	return "\n  its log ends: " + string(bytes.TrimSpace(b[max(0, len(b)-tailBytes):]))
}
