package nixl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/nixl/control"
	"meridian/blocks/window"
	"meridian/internal/child"
	"meridian/wire"
)

const (
	// program is the helper, and the name by which it is told.
	program = "meridian-ffi"

	startTimeout = time.Minute      // for the library to load, and its agent to be made
	callTimeout  = 20 * time.Second // for what the library does at once
	pingEvery    = 2 * time.Second
	hangTime     = 20 * time.Second // a helper whose loop does not answer for so long is killed
	maxWaiting   = 4096             // requests without an answer, late transfers included
)

// HelperConfig is how the helper is run.
type HelperConfig struct {
	Path    string   // of meridian-ffi; "": beside this program, else where PATH has it
	Library string   // file or folder of libnixl_capi.so; "": where it usually is
	Backend string   // its plugin
	Params  []string // KEY=VALUE, of the backend
	Devices string   // UCX_NET_DEVICES
	// Choose, where it is not nil, gives Devices at each start.
	Choose      func(ctx context.Context) (devices string, err error)
	Environment []string // NAME=VALUE, over what the helper gets by itself
	// RefuseEmulation has UCX refuse what a transport can do in software only, such as
	// reads over TCP.
	RefuseEmulation bool
	Log             *slog.Logger

	hang time.Duration // 0: hangTime
	rest time.Duration // before a helper that ended is started again, at most; 0: that of package child
}

// command is the helper's command. It gets nothing of the daemon's environment but
// where programs and libraries are.
func (c *HelperConfig) command() (*exec.Cmd, error) {
	path := c.Path
	if path == "" {
		var err error
		if path, err = findHelper(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(path, "nixl")
	cmd.Dir = "/" // UCX reads a configuration in the folder that it runs in
	cmd.Env = c.environment(os.Getenv)
	cmd.SysProcAttr = child.Attributes()
	return cmd, nil
}

func findHelper() (string, error) {
	self, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), program)
		if info, err := os.Stat(beside); err == nil && !info.IsDir() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", child.Permanent("install "+program+" beside meridiand, or set helper to its path", fmt.Errorf("%s is neither beside %s nor in PATH", program, self))
	}
	return path, nil
}

// environment is the helper's. UCX must leave the signals to Go's run-time, keep off
// interfaces that it was not given, hook no memory functions, emulate what a transport
// without RDMA lacks unless that is refused, and tell which transports it chooses.
func (c *HelperConfig) environment(get func(string) string) []string {
	emulation := "y"
	if c.RefuseEmulation {
		emulation = "n"
	}
	env := []string{
		"HOME=/", "MERIDIAN_USER_HOME=" + get("HOME"),
		"UCX_DEBUG_SIGNO=0", "UCX_HANDLE_ERRORS=none", "UCX_ERROR_SIGNALS=", "UCX_MEM_MMAP_HOOK_MODE=none",
		"UCX_PROTO_EMULATION_ENABLE=" + emulation, "UCX_PROTO_INFO=y", "UCX_WARN_UNUSED_ENV_VARS=n", "UCX_NET_DEVICES=" + c.Devices,
	}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TZ"} {
		if value := get(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return append(env, c.Environment...) // of two, the last one counts
}

// process is one run of the helper: an agent of the library with a name of its own.
type process struct {
	*child.Process
	conn    *control.Conn
	agent   string
	library string
	plugins []string
	deliver func(peer string, text []byte) // must not block
	uses    func(*control.Uses)            // the same; nil: nobody hears it

	lead  chan struct{} // has an element while nobody receives, see wait
	looks control.Looks // of who has the lead

	mu      sync.Mutex
	last    control.Req
	waiting map[control.Req]func(control.Message)
	over    error // why nothing can be asked any more
	ending  sync.Once
	quit    chan struct{} // closed with over
}

// startProcess starts a helper that has the library and an agent.
func startProcess(ctx context.Context, c *HelperConfig, agent string, deliver func(peer string, text []byte)) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if c.Choose != nil {
		chosen := *c
		var err error
		if chosen.Devices, err = c.Choose(ctx); err != nil {
			return nil, &child.Ours{Err: err} // another start may find more
		}
		c = &chosen
	}
	p, err := launch(c, agent, deliver)
	if err != nil {
		return nil, err
	}
	if err := p.start(ctx, c); err != nil {
		p.end(err)
		return nil, err
	}
	hang := c.hang
	if hang == 0 {
		hang = hangTime
	}
	go p.watch(hang)
	return p, nil
}

// launch starts a helper that has nothing yet.
func launch(c *HelperConfig, agent string, deliver func(peer string, text []byte)) (*process, error) {
	cmd, err := c.command()
	if err != nil {
		return nil, err
	}
	conn, theirs, err := control.NewPair()
	if err != nil {
		return nil, &child.Ours{Err: err}
	}
	cmd.ExtraFiles = []*os.File{theirs}
	run, err := child.Start(cmd, child.Options{Name: program, Key: "helper", Log: c.Log})
	_ = theirs.Close()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	p := &process{Process: run, conn: conn, agent: agent, deliver: deliver, waiting: map[control.Req]func(control.Message){}, quit: make(chan struct{})}
	p.lead = make(chan struct{}, 1)
	p.lead <- struct{}{}
	go p.receive()
	return p, nil
}

func (p *process) start(ctx context.Context, c *HelperConfig) error {
	m := &control.Start{Library: c.Library, Agent: p.agent, Backend: c.Backend}
	for _, param := range c.Params {
		key, value, _ := strings.Cut(param, "=")
		m.Params = append(m.Params, control.Pair{Key: key, Value: value})
	}
	started, err := ask[*control.Started](ctx, p, m, -1)
	if err != nil {
		return err
	}
	p.library, p.plugins = started.Library, started.Plugins
	return nil
}

// refusal is an answer of the helper that says no.
type refusal struct{ control.Failed }

func (r *refusal) Error() string { return r.Text }

// Unwrap gives it a code: the library does not say why it refuses.
func (r *refusal) Unwrap() error { return wire.CodeUnreachable }

// refused is a refusal as an error: with what to do, where it stays.
func (p *process) refused(m *control.Failed) error {
	r := &refusal{*m}
	if m.Stays {
		return child.Permanent("install NIXL (pip install --no-deps nixl-cu12), or set library to its file or folder", r)
	}
	return r
}

// begin makes a request; f hears the answer, once, and must not block. The descriptor
// stays the caller's.
func (p *process) begin(m control.Numbered, fd int, f func(control.Message)) error {
	p.mu.Lock()
	switch {
	case p.over != nil:
		defer p.mu.Unlock()
		return p.over
	case len(p.waiting) >= maxWaiting:
		defer p.mu.Unlock()
		return fmt.Errorf("%d requests to %s wait for their answer: %w", maxWaiting, program, wire.CodeBusy)
	}
	p.last++
	n := p.last
	*m.Number() = n
	p.waiting[n] = f
	p.mu.Unlock()
	switch err := p.conn.Send(m, fd); {
	case errors.Is(err, control.ErrFrame): // nothing was sent
		p.mu.Lock()
		delete(p.waiting, n)
		p.mu.Unlock()
		return err
	case err != nil:
		go p.end(err) // f hears it
	}
	return nil
}

// err is why nothing can be asked any more.
func (p *process) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (p *process) take(m control.Message) error {
	switch m := m.(type) {
	case *control.Notified:
		p.deliver(m.Peer, m.Text)
		return nil
	case *control.Uses:
		p.mu.Lock()
		uses := p.uses
		p.mu.Unlock()
		if uses != nil {
			uses(m)
		}
		return nil
	case *control.Started, *control.Mapped, *control.Blob, *control.Loaded, *control.Done, *control.Failed, *control.GPUList:
		n := *m.(control.Numbered).Number()
		p.mu.Lock()
		f := p.waiting[n]
		delete(p.waiting, n)
		p.mu.Unlock()
		if f == nil {
			return fmt.Errorf("%s answered request %d, which nobody made", program, n)
		}
		f(m)
		return nil
	}
	return fmt.Errorf("%s sent %T", program, m)
}

// watch kills a helper whose loop does not answer.
func (p *process) watch(hang time.Duration) {
	tick := time.NewTicker(min(pingEvery, hang/2))
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		_, err := ask[*control.Done](ctx, p, &control.Ping{}, -1)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			go p.end(fmt.Errorf("%s did not answer for %v: it hangs in the library, or was stopped", program, hang))
			return
		}
	}
}

// end kills the helper, and tells everybody who waits why: err, or how it died. It
// touches no memory of ours any more then. What it has sent to a peer may still land
// there.
func (p *process) end(err error) {
	p.ending.Do(func() {
		_ = p.conn.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
			err = nil // how it died says more
		}
		if err == nil {
			p.Stop() // it ends by itself with its socket
			err = p.Death
		} else {
			p.Kill()
		}
		p.mu.Lock()
		p.over = fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
		waiting := p.waiting
		p.waiting = nil
		p.mu.Unlock()
		close(p.quit)
		for _, n := range slices.Sorted(maps.Keys(waiting)) {
			waiting[n](&control.Failed{Req: n, Text: p.over.Error()})
		}
	})
	<-p.quit
}

// mapWindow hands a window to the helper, for peers or as staging, and returns its address
// there. The window's descriptor is closed.
func (p *process) mapWindow(ctx context.Context, number uint32, w window.Window, staging bool) (addr uint64, err error) {
	defer func() { _ = unix.Close(w.FD) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := ask[*control.Mapped](ctx, p, &control.Map{Window: number, Bytes: w.Len, Staging: staging}, w.FD)
	if err != nil {
		return 0, err
	}
	return m.Addr, nil
}
