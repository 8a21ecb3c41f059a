// Package pair starts a prefill and a decode node, two daemons with a
// llama-server each, as processes on this machine, and stops them. It is what
// `mrdn llama up` runs; the configurations that it writes are what two hosts would
// have, but for the Unix sockets.
//
// It imports the standard library only: the processes are this program, started
// again with a configuration.
package pair

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"meridian/internal/safefile"
)

// The names of the nodes.
const (
	Prefill = "prefill"
	Decode  = "decode"
)

// StopWait is how long a node may take to drain before it is killed.
const StopWait = 15 * time.Second

// Options describe the pair. The zero value of a number is the daemon's default.
type Options struct {
	Self   []string // this program and the argument that makes it a node: CONFIG PORTSFILE follow
	Server string   // llama-server
	Model  string   // GGUF
	Args   []string // further arguments of llama-server
	Name   string   // the served model's name

	Context, Slots, Threads int
	Capacity                uint64 // bytes of each arena

	ListenPrefill, ListenDecode string // host:port of the fronts; empty: free ports of loopback

	Extra string // further configuration, TOML tables
	Llama string // further keys of [llama]

	Dir string // folder of sockets, states and logs; empty: one in memory, removed by Close

	// Progress gets what a node waits for, when that changes and each progressEvery
	// while it does not. It may be called by two goroutines. May be nil.
	Progress func(node, text string)
}

// progressEvery is how often a wait that goes on is told again.
const progressEvery = 5 * time.Second

// FailedError says that a node will never serve, by its own word.
type FailedError struct{ Node, Text string }

func (e *FailedError) Error() string { return e.Node + ": " + e.Text }

// StoppedError says that the caller's context ended before a node served.
type StoppedError struct {
	Node   string
	Waited string // what the node was last waiting for
	Err    error  // of the context
}

// Error says whether the time was over or somebody asked for the end, and what
// the node was waiting for then.
func (e *StoppedError) Error() string {
	why := "was stopped before it served"
	if errors.Is(e.Err, context.DeadlineExceeded) {
		why = "did not serve in the time that it had"
	}
	return e.Node + " " + why + "; it was waiting for this: " + e.Waited
}

// Unwrap returns Err.
func (e *StoppedError) Unwrap() error { return e.Err }

var errEnded = errors.New("without an error")

// Node is one running node.
type Node struct {
	Name string
	URL  string // of its front
	// Ports are the addresses that the daemon has bound, by kind.
	Ports map[string][]string

	cmd   *exec.Cmd
	log   string
	self  string // what its process says before an error, which names no fault
	ports string // the file of Ports
	done  chan struct{}
	err   error
}

// Pair is two nodes.
type Pair struct {
	Prefill, Decode *Node
	// Dir has a folder and a log of each.
	Dir string

	own  bool // Dir is to be removed
	once sync.Once
	err  error
}

// Start starts both nodes and waits until they serve, or one of them ends.
func Start(ctx context.Context, o Options) (_ *Pair, err error) {
	p := &Pair{Dir: o.Dir}
	if p.Dir == "" {
		if p.Dir, err = os.MkdirTemp(memory(), "meridian-llama-"); err != nil {
			return nil, err
		}
		p.own = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, name := range []string{Prefill, Decode} {
		config, err := p.write(&o, name)
		if err != nil {
			return nil, err
		}
		n, err := p.spawn(&o, name, config)
		if err != nil {
			return nil, err
		}
		if name == Prefill {
			p.Prefill = n
		} else {
			p.Decode = n
		}
	}
	if err := p.await(ctx, o.Progress); err != nil {
		return nil, err
	}
	return p, nil
}

// await waits for both nodes. The first that fails ends the wait for the other.
func (p *Pair) await(ctx context.Context, progress func(node, text string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, 2)
	nodes := []*Node{p.Prefill, p.Decode}
	for _, n := range nodes {
		go func() { ends <- n.await(ctx, progress) }()
	}
	var first error
	for range nodes {
		if err := <-ends; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// memory is a folder in memory, where the host has one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

func (p *Pair) path(name, file string) string { return filepath.Join(p.Dir, name, file) }

// write makes a node's configuration file.
func (p *Pair) write(o *Options, name string) (string, error) {
	other, listen := Decode, o.ListenPrefill
	if name == Decode {
		other, listen = Prefill, o.ListenDecode
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, name), 0o700); err != nil {
		return "", err
	}
	var b strings.Builder
	set := func(key string, v any) {
		switch v := v.(type) {
		case string:
			if v != "" {
				fmt.Fprintf(&b, "%s = %s\n", key, strconv.Quote(v))
			}
		case int:
			if v > 0 {
				fmt.Fprintf(&b, "%s = %d\n", key, v)
			}
		}
	}
	fmt.Fprintf(&b, "[agent]\nname = %q\nstate_dir = %q\nready_min_peers = 1\n", name, p.path(name, "state"))
	if o.Capacity > 0 {
		fmt.Fprintf(&b, "[kv_memory]\ncapacity_bytes = %d\n", o.Capacity)
	}
	fmt.Fprintf(&b, "[engine]\nsocket = %q\n[admin]\nsocket = %q\n", p.path(name, "engine.sock"), p.path(name, "admin.sock"))
	fmt.Fprintf(&b, "[link]\nlisten = [%q]\ninsecure = true # a socket in a folder that only this user may enter\n", "unix://"+p.path(name, "link.sock"))
	fmt.Fprintf(&b, "[[link.peer]]\nname = %q\naddress = %q\ntenants = [\"default\"]\n", other, "unix://"+p.path(other, "link.sock"))
	fmt.Fprintf(&b, "[llama]\nmodel = %q\nserver = %q\nrole = %q\npartner = %q\ndir = %q\n", o.Model, o.Server, name,
		"unix://"+p.path(other, "llama/front.sock"), p.path(name, "llama"))
	if len(o.Args) > 0 {
		list, err := json.Marshal(o.Args) // also a TOML list of basic strings
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "args = %s\n", list)
	}
	set("name", o.Name)
	set("listen", listen)
	set("context", o.Context)
	set("slots", o.Slots)
	set("threads", o.Threads)
	b.WriteString(o.Llama + "\n" + o.Extra)
	file := p.path(name, "meridian.toml")
	return file, safefile.Write(file, []byte(b.String()), 0o600)
}

func (p *Pair) spawn(o *Options, name, config string) (*Node, error) {
	n := &Node{Name: name, log: p.path(name, "log"), ports: p.path(name, "ports.json"), done: make(chan struct{})}
	_ = os.Remove(n.ports) // of an earlier run
	n.self = o.Self[len(o.Self)-1] + " " + config + ": "
	args := append(append([]string{}, o.Self[1:]...), config, n.ports)
	n.cmd = exec.Command(o.Self[0], args...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	f, err := safefile.Open(n.log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	n.cmd.Stderr = f
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		n.err = n.cmd.Wait()
		close(n.done)
	}()
	return n, nil
}

// await waits until the node is ready: its daemon, its peer and its model.
func (n *Node) await(ctx context.Context, progress func(node, text string)) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	told := teller{node: n.Name, to: progress}
	for {
		if b, err := os.ReadFile(n.ports); err == nil {
			if err := json.Unmarshal(b, &n.Ports); err != nil {
				return err
			}
			if len(n.Ports["openai"]) == 0 || len(n.Ports["http"]) == 0 {
				return fmt.Errorf("%s has bound no front and no status page: %v", n.Name, n.Ports)
			}
			n.URL = n.Ports["openai"][0]
			missing, err := unready(ctx, n.Ports["http"][0])
			if err == nil && missing == "" {
				return nil
			}
			if text, failed := strings.CutPrefix(missing, "llama.failed: "); failed {
				return &FailedError{Node: n.Name, Text: text}
			}
			told.wait(missing)
		}
		select {
		case <-n.done:
			return fmt.Errorf("%s ended before it served (%w): %s", n.Name, n.ending(), n.lastLine())
		case <-ctx.Done():
			return &StoppedError{Node: n.Name, Waited: cmp.Or(told.last, n.lastLine()), Err: ctx.Err()}
		case <-t.C:
		}
	}
}

// teller tells what a node waits for.
type teller struct {
	node string
	to   func(node, text string)
	last string
	at   time.Time
}

// wait tells a text that is new, or that has been told long ago. The time in
// brackets at its end does not make it new.
func (t *teller) wait(text string) {
	if text == "" {
		return
	}
	is, _, _ := strings.Cut(text, " (for ")
	was, _, _ := strings.Cut(t.last, " (for ")
	t.last = text
	if is == was && time.Since(t.at) < progressEvery {
		return
	}
	t.at = time.Now()
	if t.to != nil {
		_, text, _ = strings.Cut(text, ": ")
		t.to(t.node, text)
	}
}

// unready is the reason that matters most why a node is not ready, as its status
// page has it, ID: TEXT; "" if it is ready.
func unready(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return "", nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxReasons))
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "llama.") { // it takes longest, and its peer waits for it
			return strings.TrimSpace(line), nil
		}
	}
	if first == "" {
		return "", fmt.Errorf("status %d without a reason", resp.StatusCode)
	}
	return first, nil
}

// Bounds of what is told of a node, in bytes.
const (
	maxReasons = 64 << 10
	maxLine    = 400
)

// lastLine is the end of the node's log, for errors.
func (n *Node) lastLine() string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	line := strings.ToValidUTF8(string(bytes.TrimSpace(b)), "?")
	line = strings.TrimPrefix(line[strings.LastIndexByte(line, '\n')+1:], n.self)
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	return line
}

// Pid is the daemon's process.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// Kill ends the node without a word, and its llama-server with it.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill()
	<-n.done
}

// ending is how the node's process ended, once it has.
func (n *Node) ending() error {
	if n.err != nil {
		return n.err
	}
	return errEnded
}

func (n *Node) stop() error {
	if n == nil {
		return nil
	}
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(StopWait)
	defer t.Stop()
	select {
	case <-n.done:
	case <-t.C:
		n.Kill()
		return fmt.Errorf("%s did not end within %v and was killed; its log ends: %s", n.Name, StopWait, n.lastLine())
	}
	return nil
}

// Done is closed when the node's process has ended.
func (n *Node) Done() <-chan struct{} { return n.done }

// Close stops both nodes.
func (p *Pair) Close() error {
	p.once.Do(func() {
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, n := range []*Node{p.Prefill, p.Decode} {
			wg.Go(func() { errs[i] = n.stop() })
		}
		wg.Wait()
		p.err = errors.Join(errs...)
		if p.own {
			p.err = errors.Join(p.err, os.RemoveAll(p.Dir))
		}
	})
	return p.err
}
