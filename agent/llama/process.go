package llama

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"meridian/agent/llama/identity"
	"meridian/internal/child"
)

// program is what a node runs.
const program = "llama-server"

// ErrDown is why a request fails that finds no llama-server running.
var ErrDown = errors.New("llama-server is not running")

// process is one run of llama-server.
type process struct {
	*child.Process
	socket string
}

// Command is llama-server as a node runs it, for a benchmark that compares one without a
// node. The server listens on a Unix socket in a folder that only this user may
// enter, and keeps no prompt cache of its own beside the slots: blocks are the
// cache. It ends with the thread that starts it.
func (c *Config) Command(socket, slots string) *exec.Cmd {
	args := []string{
		"--model", c.Model, "--host", socket, "--no-webui",
		"--ctx-size", strconv.Itoa(c.Context * c.Slots), "--parallel", strconv.Itoa(c.Slots), "--no-kv-unified",
		"--slot-save-path", slots + string(filepath.Separator), "--cache-ram", "0", "--no-context-shift",
	}
	if c.Threads > 0 {
		args = append(args, "--threads", strconv.Itoa(c.Threads))
	}
	cmd := exec.Command(c.Server, append(args, c.Args...)...)
	cmd.Env = c.env()
	cmd.SysProcAttr = child.Attributes()
	return cmd
}

// env is the environment of llama-server, and of nothing else: no setting reaches
// it that way unseen.
func (c *Config) env() []string {
	return withLibraries(identity.Env(os.Environ()), filepath.Dir(c.Server))
}

// startProcess starts llama-server and does not wait for its model.
func startProcess(c *Config, socket, slots string, log *slog.Logger) (*process, error) {
	_ = os.Remove(socket) // of a run that was killed
	p, err := child.Start(c.Command(socket, slots), child.Options{Name: program, Key: "llama.server", Built: "system_info", Log: log})
	if err != nil {
		return nil, err
	}
	return &process{p, socket}, nil
}

// advice is what a user can do about a server that dies so.
func advice(d *child.Death) string {
	switch d.Signal {
	case syscall.SIGILL:
		return "use a llama-server that was built for this processor, or the one for any x86-64 with AVX2 that mrdn llama up --fetch installs"
	case syscall.SIGKILL:
		return "the kernel kills what needs more memory than there is: see its log, and take a smaller model, llama.context or llama.slots"
	case 0:
		return "correct what it names in llama.server, llama.model or llama.args"
	}
	return "try the same command by hand, or another build of llama-server"
}

// withLibraries puts the folder of the binary in front of LD_LIBRARY_PATH: the
// prebuilt packages keep their libraries there.
func withLibraries(env []string, dir string) []string {
	const name = "LD_LIBRARY_PATH="
	env = slices.Clone(env)
	for i, v := range env {
		if old, ok := strings.CutPrefix(v, name); ok {
			env[i] = name + dir
			if old != "" {
				env[i] += ":" + old
			}
			return env
		}
	}
	return append(env, name+dir)
}

// sleep waits for d, ctx's end or a process's end, whichever is first.
func sleep(ctx context.Context, d time.Duration, gone <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-gone:
	}
}
