package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"meridian/agent/config"
	"meridian/agent/openers"
)

func newConfigCmd(a *app) *cobra.Command {
	return group(a, "config", "The daemon's configuration", "  mrdn config check\n  mrdn config show --origin\n  mrdn config reload --dry-run", newConfigShowCmd(a), newConfigCheckCmd(a), newConfigReloadCmd(a))
}

func newConfigShowCmd(a *app) *cobra.Command {
	var origin, changed bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show every key with its value, and where that came from",
		Long: `Shows the configuration that a daemon started here and now would use: flags
apart, the MERIDIAN_* variables above the file above the defaults. Secrets are
redacted.`,
		Example:     "  mrdn config show\n  mrdn config show --origin --changed",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().BoolVar(&origin, "origin", false, "where each value was written (JSON and YAML always say)")
	c.Flags().BoolVar(&changed, "changed", false, "only what is not a default")
	c.RunE = a.command(func(context.Context, []string) (result, error) {
		if c.Flags().Changed("admin") {
			return nil, usage("--admin %s: config show reads the files of this host and asks no daemon; --config names another file, and mrdn config reload --dry-run compares it with what a daemon has in force", a.admin)
		}
		cfg, _, err := a.load()
		if err != nil {
			return nil, err
		}
		r := configResult{File: cfg.File, Keys: []config.Origin{}, origin: origin}
		for _, o := range cfg.Origins() {
			if !changed || o.Source != "default" {
				r.Keys = append(r.Keys, o)
			}
		}
		return r, nil
	})
	return c
}

type configResult struct {
	File   string          `json:"file"`
	Keys   []config.Origin `json:"keys"`
	origin bool
}

func (r configResult) grid(wide bool) grid {
	g := grid{head: []string{"KEY", "VALUE"}}
	if r.origin || wide {
		g.head = append(g.head, "SOURCE", "AT", "NOTE")
	}
	for _, o := range r.Keys {
		row := []string{o.Key, o.Value}
		if r.origin || wide {
			row = append(row, o.Source, o.At, o.Note)
		}
		g.rows = append(g.rows, row)
	}
	return g
}

func newConfigCheckCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Test a configuration without starting anything",
		Long: `Reads the configuration as the daemon would, and the certificates that it names,
and lists every problem with its file and line, and every warning. The exit code
is 1 when there is a problem. Run it as a user who may read the private key.`,
		Example:     "  mrdn config check\n  mrdn config check deploy/decode.toml -o json",
		Args:        cobra.MaximumNArgs(1),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(_ context.Context, args []string) (result, error) {
		o := config.Options{Path: a.config, Env: a.env}
		if len(args) > 0 {
			o.Path = args[0]
		}
		cfg, warnings, err := openers.Load(o)
		if err == nil {
			var more []config.Warning
			more, err = openers.Check(cfg)
			warnings = append(warnings, more...)
		}
		r := checkResult{File: o.Find(), OK: err == nil, Problems: []problem{}, Warnings: []problem{}}
		for _, w := range warnings {
			r.Warnings = append(r.Warnings, problemOf(w))
		}
		var ce *config.Error
		if errors.As(err, &ce) {
			for _, p := range ce.Problems {
				r.Problems = append(r.Problems, problemOf(p))
			}
			return r, failed("docs/config.md lists every key with its range", "%s in the configuration", count(len(r.Problems), "problem"))
		}
		return r, err
	})
	return c
}

// problemIn is what a daemon would refuse of these keys and values, where all else is
// as by default.
func problemIn(values map[string]string) (config.Problem, bool) {
	_, _, err := openers.Load(config.Options{Path: os.DevNull, Flags: values})
	if bad, ok := errors.AsType[*config.Error](err); ok {
		return bad.Problems[0], true
	}
	return config.Problem{}, false
}

type problem struct {
	Where string `json:"where"`
	Key   string `json:"key,omitempty"`
	Text  string `json:"text"`
	line  string
}

func problemOf(p config.Problem) problem {
	return problem{p.Where(), p.Key, p.Text, p.String()}
}

type checkResult struct {
	File     string    `json:"file"`
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
	Warnings []problem `json:"warnings"`
}

func (r checkResult) grid(bool) grid {
	var g grid
	for _, p := range r.Problems {
		g.rows = append(g.rows, []string{"ERR", p.line})
	}
	for _, w := range r.Warnings {
		g.rows = append(g.rows, []string{"WARN", w.line})
	}
	if r.OK {
		file := r.File
		if file == "" {
			file = "no file: defaults and environment"
		}
		g.rows = append(g.rows, []string{"ok", file})
	}
	return g
}
