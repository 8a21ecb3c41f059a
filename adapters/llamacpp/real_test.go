package llamacpp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/adapters/llamacpp/portable"
	"meridian/internal/realpart"
)

// The llama-servers of the tests. Each is started by the first test that asks for
// it, and ended when all tests have run.
const (
	plain   = "plain"
	other   = "other" // as plain: the node that a state is handed to
	q8      = "q8"
	nofa    = "nofa"    // V transposed, batches of 64 tokens
	unified = "unified" // one stream; both slots together have only 256 tokens
)

var kinds = map[string][]string{
	plain:   {"-c", "2048", "--no-kv-unified"},
	other:   {"-c", "2048", "--no-kv-unified"},
	q8:      {"-c", "1024", "--no-kv-unified", "-ctk", "q8_0", "-ctv", "q8_0"},
	nofa:    {"-c", "1024", "--no-kv-unified", "-fa", "off", "-b", "64"},
	unified: {"-c", "256", "--kv-unified"},
}

// slots of each server.
const slots = 2

// Deadlines of the tests: other tests keep the machine busy.
const (
	startTimeout = 3 * time.Minute
	callTimeout  = 2 * time.Minute
)

var started struct {
	sync.Mutex
	servers map[string]*peer
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, p := range started.servers {
		p.stop()
	}
	os.Exit(code)
}

// peer is a llama-server that runs.
type peer struct {
	*llamacpp.Server
	dir    string // of its slot files
	socket string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// running is the server of a kind.
func running(t *testing.T, kind string) *peer {
	t.Helper()
	started.Lock()
	defer started.Unlock()
	if p := started.servers[kind]; p != nil {
		return p
	}
	p := start(t, kind)
	if started.servers == nil {
		started.servers = map[string]*peer{}
	}
	started.servers[kind] = p
	return p
}

// start starts a server. Who calls it stops it.
func start(t *testing.T, kind string) *peer {
	t.Helper()
	server, model := parts(t)
	dir, err := os.MkdirTemp("", "llamacpp-")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{dir: dir, socket: filepath.Join(dir, "l.sock"), ended: make(chan struct{})}
	p.Server = llamacpp.NewServer(p.socket)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(server, append([]string{
		"-m", model, "--host", p.socket, "-ngl", "0", "--device", "none", "-t", "1", "-np", fmt.Sprint(slots),
		"--slot-save-path", dir + "/", "--cache-ram", "0", "--no-context-shift", "--no-webui",
	}, kinds[kind]...)...)
	p.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(server))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	running := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig comes when the thread ends that started the process
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		running <- err
		if err == nil {
			_ = p.cmd.Wait() // it is killed
			close(p.ended)
		}
	}()
	if err := <-running; err != nil {
		t.Fatal(err)
	}
	if err := p.loaded(); err != nil {
		p.kill()
		out, _ := os.ReadFile(filepath.Join(dir, "log"))
		p.stop()
		t.Fatalf("llama-server %q: %v\n%s", kinds[kind], err, out[max(0, len(out)-3000):])
	}
	return p
}

// loaded waits until the model is loaded.
func (p *peer) loaded() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.Health(ctx)
		var said *llamacpp.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &said) && said.Status != http.StatusServiceUnavailable:
			return err
		}
		select {
		case <-p.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *peer) stop() {
	p.kill()
	_ = os.RemoveAll(p.dir)
}

// parts are the llama-server and the model that the tests use.
func parts(t *testing.T) (server, model string) {
	t.Helper()
	root := realpart.Packages(t, "llama")
	server, err := portable.Put(root)
	realpart.Need(t, err, portable.ErrMissing, "internal/ci/python.sh llama installs it")
	models, _ := filepath.Glob(filepath.Join(root, "*", "*.gguf"))
	if len(models) == 0 {
		realpart.Missing(t, "no model in "+root+": internal/ci/python.sh llama installs one")
	}
	return server, models[0]
}

// patience is the context of a test's calls.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	t.Cleanup(cancel)
	return ctx
}

// compute fills a slot with a prompt, from nothing.
func (p *peer) compute(t *testing.T, slot int, tokens []int32) {
	t.Helper()
	ctx := patience(t)
	if err := p.EraseSlot(ctx, slot); err != nil {
		t.Fatal(err)
	}
	done, err := p.Compute(ctx, llamacpp.Completion{Prompt: tokens, Slot: slot})
	if err != nil {
		t.Fatal(err)
	}
	if done.Cached != 0 || done.Computed != len(tokens) {
		t.Fatalf("an empty slot computed %d of %d tokens, and had %d", done.Computed, len(tokens), done.Cached)
	}
}

// save has a slot's state saved, and returns it.
func (p *peer) save(t *testing.T, slot, tokens int) []byte {
	t.Helper()
	n, err := p.SaveSlot(patience(t), slot, "save.bin")
	if err != nil {
		t.Fatal(err)
	}
	if n != tokens {
		t.Fatalf("slot %d saved %d tokens, want %d", slot, n, tokens)
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "save.bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restore loads a state into a slot that was empty.
func (p *peer) restore(t *testing.T, slot int, state []byte, tokens int) {
	t.Helper()
	ctx := patience(t)
	if err := p.EraseSlot(ctx, slot); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "restore.bin"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := p.RestoreSlot(ctx, slot, "restore.bin")
	if err != nil {
		t.Fatal(err)
	}
	if n != tokens {
		t.Fatalf("slot %d restored %d tokens, want %d", slot, n, tokens)
	}
}

// tokens of a text.
func (p *peer) tokens(t *testing.T, text string) []int32 {
	t.Helper()
	out, err := p.Tokenize(patience(t), text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// busy says whether a slot is at work.
func (p *peer) busy(t *testing.T, slot int) bool {
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.socket)
		},
	}}
	resp, err := c.Get("http://localhost/slots")
	if err != nil {
		t.Error(err)
		return false
	}
	defer resp.Body.Close()
	var out []struct {
		Busy bool `json:"is_processing"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || slot >= len(out) {
		t.Error(out, err)
		return false
	}
	return out[slot].Busy
}
