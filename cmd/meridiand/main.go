package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/logwriter"
)

func main() {
	// A log pipe whose reader has gone must not end the daemon. Not Ignore: child
	// processes would inherit that. A SIGHUP before the configuration is read asks for
	// what is about to be done; agent.Run takes later ones.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP)
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr, agent.Run))
}

// daemon is agent.Run; tests put another in its place.
type daemon func(ctx context.Context, cfg *config.Config, opt agent.Options, portsFile string) error

// logFlush is how long the end of the process waits for the reader of its log.
const logFlush = time.Second

// stopped is an error of the daemon or its configuration, as opposed to one of
// the command line.
type stopped struct{ err error }

func (s stopped) Error() string { return s.err.Error() }
func (s stopped) Unwrap() error { return s.err }

func run(ctx context.Context, args, env []string, out, stderr io.Writer, start daemon) int {
	errOut := logwriter.New(stderr)
	defer errOut.Close(logFlush)
	c := newCommand(env, out, errOut, start)
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(errOut)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var lines []string
	var ce *config.Error
	if errors.As(err, &ce) {
		for _, p := range ce.Problems {
			lines = append(lines, "error: "+p.String())
		}
	} else {
		lines = append(lines, "error: "+err.Error())
	}
	code := 1
	if s := (stopped{}); !errors.As(err, &s) {
		code = 2
		lines = append(lines, "hint: --help shows the flags")
	}
	if hint := hintOf(err); hint != "" {
		lines = append(lines, "hint: "+hint)
	}
	_, _ = fmt.Fprintln(errOut, strings.Join(lines, "\n"))
	return code
}

// hintOf says what to do about a start that the host refuses.
func hintOf(err error) string {
	var p *fs.PathError
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process, or another table of this configuration, has this address: stop the process, or set another address"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this host has no such address: set one that `ip address` lists"
	case errors.As(err, &p) && errors.Is(err, fs.ErrPermission):
		return "the user that runs meridiand may not use " + p.Path + ": run it as the user who owns that, or set another path in the configuration (agent.state_dir, engine.socket, admin.socket)"
	case errors.As(err, &op) && op.Net == "tcp" && errors.Is(err, fs.ErrPermission):
		return "only root may listen at a port below 1024: set another port"
	case errors.As(err, &p) && errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(p.Path, ".lock"):
		return "create the folder " + filepath.Dir(p.Path) + ", or set engine.socket and admin.socket to another one (--config names a configuration)"
	}
	return ""
}

func newCommand(env []string, out io.Writer, errOut *logwriter.Writer, start daemon) *cobra.Command {
	var path, portsFile string
	var test bool
	var set []string
	c := &cobra.Command{
		Use:   "meridiand",
		Short: "Hold KV-cache blocks for the engines of this node, and move them to others",
		Long: `meridiand holds KV-cache blocks for the inference engines of this node and moves
them to and from other nodes. It reads one TOML file (see docs/config.md); a key
can also be set by a MERIDIAN_* variable or by --set, which wins over both.

SIGTERM drains for at most agent.drain_timeout, a second one ends at once.
SIGHUP, or mrdn config reload, reads the configuration again, takes over what
can change live, and says what needs a restart.`,
		Example:           "  meridiand -t --config decode.toml\n  meridiand --config decode.toml --ports-file /run/meridian/ports.json\n  meridiand --set kv_memory.capacity_bytes=4GiB",
		Args:              cobra.NoArgs,
		Version:           agent.BuildVersion(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	c.Flags().StringVarP(&path, "config", "c", "", "configuration file (default: MERIDIAN_CONFIG, then the search path)")
	c.Flags().BoolVarP(&test, "test", "t", false, "test the configuration and exit")
	c.Flags().StringVar(&portsFile, "ports-file", "", "write the bound addresses to this file, as JSON")
	c.Flags().StringArrayVar(&set, "set", nil, "set a key: table.key=value; may be repeated")
	c.RunE = func(c *cobra.Command, _ []string) error {
		flags, err := assignments(set)
		if err != nil {
			return err
		}
		// The memory that is free is that of the start, for each reload too: what the
		// arena takes is not free any more.
		o := config.Options{Path: path, Env: env, Flags: flags, Memory: sync.OnceValue(config.HostMemory)}
		cfg, warnings, err := openers.Load(o)
		if test && err == nil {
			var more []config.Warning
			more, err = openers.Check(cfg)
			warnings = append(warnings, more...)
		}
		for _, w := range warnings {
			_, _ = fmt.Fprintln(errOut, "warning:", w)
		}
		if err != nil {
			return stopped{err}
		}
		if test {
			if _, err := fmt.Fprintln(out, "the configuration is valid:", source(cfg)); err != nil {
				return stopped{err}
			}
			return nil
		}
		level := new(slog.LevelVar)
		opt := agent.Options{
			Log: agent.NewLogger(errOut, cfg.Agent, level), LogLost: errOut.Lost, Level: level, Version: agent.BuildVersion(),
			Reload: again(o, cfg),
		}
		if err := start(c.Context(), cfg, opt, portsFile); err != nil {
			return stopped{err}
		}
		return nil
	}
	return c
}

// again reads the configuration of a running daemon: the file that it was started
// with, which must still be there.
func again(o config.Options, start *config.Config) func() (*config.Config, []config.Warning, error) {
	if start.File != "" {
		o.Path = start.File
	}
	o.Regular = true
	return func() (*config.Config, []config.Warning, error) { return openers.Load(o) }
}

// assignments takes apart the values of --set.
func assignments(set []string) (map[string]string, error) {
	flags := map[string]string{}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--set %q: it must be table.key=value", s)
		}
		flags[key] = value
	}
	return flags, nil
}

func source(c *config.Config) string {
	if c.File == "" {
		return "no file, defaults and environment"
	}
	return c.File
}
