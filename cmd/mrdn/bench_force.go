package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent"
	"meridian/bench/force"
	"meridian/internal/safefile"
)

func newBenchForceCmd(a *app) *cobra.Command {
	opt := force.Defaults()
	var files []string
	var out string
	c := &cobra.Command{
		Use:   "force",
		Short: "Show what forcing the end of thinking saves, and where it fires",
		Long: `Replays recorded signals of requests that think (entropy, p_end, eat, rpdi)
through the scheduler's own core, with the thresholds of the configuration, and
shows which requests are forced, why, at which token, and how many thinking
tokens that saves. On flat series no signal may force: if one does, the command
fails. -o wide adds what each threshold changes.

Nothing is measured: the same flags give the same report on every machine. The
recordings that are part of the program are of a small model without thinking
markers of its own, and say so; synthetic ones are labelled. Those of
--recording come from mrdn bench force record, or from another engine in the
same format: docs/results.md describes it.

` + accessSentence[readOnly],
		Example:     "  mrdn bench force\n  mrdn bench force -o wide --out results\n  mrdn bench force --recording own.jsonl.gz --config meridian.toml --json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringSliceVar(&files, "recording", nil, "files of recorded signals (default: those of the program)")
	f.IntVar(&opt.Synthetic, "synthetic", opt.Synthetic, "requests of each synthetic recording; 0: flat ones only")
	f.Uint64Var(&opt.Seed, "seed", opt.Seed, "seed of the synthetic recordings")
	f.StringVar(&out, "out", "", "folder for report.json and report.md; made if absent")
	c.RunE = a.longCommand(func(ctx context.Context, _ []string) (result, error) {
		cfg, _, err := a.load()
		if err != nil {
			return nil, err
		}
		opt.Rules = agent.SignalConfig(cfg)
		if opt.Recordings, err = readRecordings(files); err != nil {
			return nil, usage("--recording: %v", err)
		}
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		if err := readyReport(out); err != nil {
			return nil, err
		}
		opt.Progress = a.progress("replaying")
		rep, err := force.Run(ctx, opt)
		if err != nil {
			return nil, err
		}
		if out != "" {
			err = writeReport(out, rep, map[string]string{"report.md": rep.Markdown()})
		}
		if rep.FalseTriggers > 0 && err == nil {
			err = failed("the thresholds of the configuration are too eager; docs/config.md has the defaults", "%s on flat series", count(rep.FalseTriggers, "false trigger"))
		}
		return benchForceResult{rep}, err
	})
	c.AddCommand(newBenchForceRecordCmd(a))
	return c
}

// readRecordings reads the files, or the recordings that are part of this program.
func readRecordings(files []string) ([]force.Recording, error) {
	if len(files) == 0 {
		return force.Recordings()
	}
	var all []force.Recording
	for _, name := range files {
		r, err := force.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

type benchForceResult struct{ force.Report }

func (r benchForceResult) grid(wide bool) grid {
	g := reportGrid(r.Rows, r.Note)
	if wide {
		head, rows := r.GridRows()
		g.rows = append(g.rows, []string{""}, head)
		g.rows = append(g.rows, rows...)
	}
	return g
}

// recordTimeout is for a slow machine and twenty prompts.
const recordTimeout = 12 * time.Hour

func newBenchForceRecordCmd(a *app) *cobra.Command {
	opt := force.RecordDefaults()
	var l llamaFlags
	var prompts, out string
	c := &cobra.Command{
		Use:   "record",
		Short: "Record the signals of a real model for bench force",
		Long: `Starts a llama-server, lets its model answer prompts after a start marker of
thinking, and writes for each token the entropy of its distribution, the
probabilities of the end marker's first token and of the end of the sequence,
and now and then the entropy after an appended end marker (eat). Entropy is of
the most likely tokens and so a lower bound; the file says of how many, and
which share of the probability they had at least.

It takes about a minute per thousand tokens with a small model. When it is
interrupted the file gets the requests that are whole by then. The same seed
gives the same tokens on the same machine and build of llama-server.`,
		Example:     "  mrdn bench force record --file own.jsonl.gz\n  mrdn bench force record --server llama-server --model think.gguf \\\n      --tokens 8000 --context 10000 --prompts prompts.txt --file own.jsonl.gz",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: writing},
	}
	f := c.Flags()
	f.StringVar(&out, "file", "recording.jsonl.gz", "where the recording goes")
	f.StringVar(&opt.Name, "name", opt.Name, "the recording's name")
	f.StringVar(&prompts, "prompts", "", "file with a prompt in each line (default: 20 of ours)")
	f.IntVar(&opt.Tokens, "tokens", opt.Tokens, "tokens of an answer, at most")
	f.IntVar(&opt.Top, "top", opt.Top, "most likely tokens to ask for")
	f.Uint32Var(&opt.Seed, "seed", opt.Seed, "seed of the first prompt; the next has the next")
	f.Float64Var(&opt.Temperature, "temperature", opt.Temperature, "temperature of sampling")
	f.StringVar(&opt.Start, "start", opt.Start, "marker that opens thinking")
	f.StringVar(&opt.End, "end", opt.End, "marker that ends it")
	f.IntVar(&opt.EATEvery, "eat-every", opt.EATEvery, "tokens between two values of eat; 0: none")
	f.BoolVar(&opt.Hold, "hold", false, "never draw the end of the sequence, so that a model goes on that would have ended")
	f.StringVar(&l.opt.Server, "server", "", "llama-server binary (default: the fetched one)")
	f.StringVar(&l.opt.Model, "model", "", "GGUF file (default: the fetched one)")
	f.StringSliceVar(&l.opt.Args, "args", []string{"-ngl", "0", "--device", "none"}, "further arguments of llama-server, separated by commas")
	f.IntVar(&l.opt.Context, "context", 4096, "tokens of the server's context")
	f.IntVar(&l.opt.Threads, "threads", 1, "threads of the server")
	l.opt.Slots, l.mem = 1, "auto"
	c.RunE = a.commandWithin(recordTimeout, func(ctx context.Context, _ []string) (result, error) {
		if prompts != "" {
			b, err := safefile.Read(prompts, 16<<20)
			if err != nil {
				return nil, usage("--prompts: %v", err)
			}
			opt.Prompts = strings.Split(strings.TrimSpace(string(b)), "\n")
		}
		if err := opt.Check(); err != nil {
			return nil, usage("%v", err)
		}
		if err := safefile.Check(out); err != nil {
			return nil, usage("--file: %v", err)
		}
		server, err := l.options(ctx, a)
		if err != nil {
			return nil, err
		}
		opt.Server = *server
		opt.Progress = func(s string) { _, _ = fmt.Fprintln(a.err, "recording:", s) }
		rec, err := force.Record(ctx, opt)
		if len(rec.Requests) == 0 {
			return nil, err
		}
		var b bytes.Buffer
		if e := force.Write(&b, rec); e != nil {
			return nil, errors.Join(err, e)
		}
		if err != nil {
			err = fmt.Errorf("%s has the first %s only: %w", out, count(len(rec.Requests), "request"), err)
		}
		return recordResult{File: out, Bytes: b.Len(), Header: rec.Header}, errors.Join(err, safefile.Write(out, b.Bytes(), 0o644))
	})
	return c
}

// recordResult says what was written.
type recordResult struct {
	File   string       `json:"file"`
	Bytes  int          `json:"bytes"`
	Header force.Header `json:"header"`
}

func (r recordResult) grid(bool) grid {
	h := r.Header
	return grid{rows: [][]string{
		{"file", filepath.Clean(r.File)}, {"bytes", number(r.Bytes)}, {"requests", number(h.Requests)}, {"model", h.Model}, {"engine", h.Engine},
		{"signals", fmt.Sprintf("of the %d most likely of %d tokens, at least %v of the probability", h.Top, h.Vocabulary, h.LeastMass)},
	}}
}
