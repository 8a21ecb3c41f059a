package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/finding"
	"meridian/agent/openers"
)

func newDoctorCmd(a *app) *cobra.Command {
	var all, local bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with this host and its daemon",
		Long: `Checks limits, memory files, congestion control, clock, container and the
variables that transports read, here in this shell, and asks the daemon for the
same as its own process sees it. Each finding has a stable id, a reason and a
fix. The exit code is 1 when a finding is an error; a daemon that does not
answer is a warning.`,
		Example:     "  mrdn doctor\n  mrdn doctor --all -o json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().BoolVar(&all, "all", false, "show what is fine too (JSON and YAML always do)")
	c.Flags().BoolVar(&local, "local", false, "do not ask the daemon")
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		r := doctorResult{all: all, Findings: a.localFindings()}
		if !local {
			r.Findings = merged(r.Findings, a.daemonFindings(ctx))
		}
		for _, f := range r.Findings {
			switch f.Severity {
			case finding.Err:
				r.Errors++
			case finding.Warn:
				r.Warnings++
			}
		}
		if r.Errors > 0 {
			return r, failed("each finding says what to do", "found %s", count(r.Errors, "error"))
		}
		return r, nil
	})
	return c
}

// placed is a finding and where it was made: here, in the daemon, or in both alike.
type placed struct {
	Where string `json:"where"`
	finding.Finding
}

type doctorResult struct {
	Errors   int      `json:"errors"`
	Warnings int      `json:"warnings"`
	Findings []placed `json:"findings"`
	all      bool
}

func (a *app) localFindings() []placed {
	var out []placed
	cfg, warnings, err := a.load()
	if err != nil {
		cfg = nil
		var ce *config.Error
		if errors.As(err, &ce) {
			for _, p := range ce.Problems {
				out = append(out, placed{"here", finding.Finding{
					ID: "config.load", Severity: finding.Err, Subject: configSubject(p), Reason: p.Text,
					Fix: "correct it; mrdn config check tells when it is right",
				}})
			}
		}
	}
	for _, w := range warnings {
		out = append(out, placed{"here", finding.Finding{ID: "config.warning", Severity: finding.Warn, Subject: configSubject(w), Reason: w.Text, Fix: "see docs/config.md"}})
	}
	h := finding.ThisHost(cfg)
	h.Env = a.env
	for _, f := range openers.Findings(h) {
		out = append(out, placed{"here", f})
	}
	return out
}

// merged is both lists, with what both found alike once.
func merged(local, daemon []placed) []placed {
	for _, d := range daemon {
		i := slices.IndexFunc(local, func(l placed) bool { return l.Where == "here" && l.Finding == d.Finding })
		if i < 0 || d.Where == "here" {
			local = append(local, d)
			continue
		}
		local[i].Where = "both"
	}
	return local
}

// configSubject is the place and the key of a problem, without its text.
func configSubject(p config.Problem) string {
	return strings.TrimSpace(p.Where() + " " + p.Key)
}

func (a *app) daemonFindings(ctx context.Context) []placed {
	var out []placed
	_, err := a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
		r, err := adm.Doctor(ctx, &adminpb.DoctorRequest{})
		for _, f := range r.GetFindings() {
			out = append(out, placed{"daemon", finding.Finding{
				ID: f.GetId(), Severity: severityOf(f.GetSeverity()), Subject: f.GetSubject(), Reason: f.GetReason(), Fix: f.GetFix(),
			}})
		}
		return nil, err
	})
	if err != nil {
		f := asCommandFailure(err)
		return []placed{{"here", finding.Finding{
			ID: "daemon.reachable", Severity: finding.Warn, Subject: "admin socket", Reason: "the daemon's findings are missing: " + oneLine(f.Error()), Fix: f.hint,
		}}}
	}
	return out
}

func severityOf(s adminpb.Severity) finding.Severity {
	switch s {
	case adminpb.Severity_SEVERITY_ERR:
		return finding.Err
	case adminpb.Severity_SEVERITY_WARN:
		return finding.Warn
	}
	return finding.OK
}

func (r doctorResult) grid(wide bool) grid {
	g := grid{head: []string{"SEVERITY", "WHERE", "ID", "SUBJECT"}}
	fine := 0
	for _, f := range r.Findings {
		if f.Severity == finding.OK {
			fine++
			if !r.all && !wide {
				continue
			}
		}
		g.rows = append(g.rows, []string{f.Severity.String(), f.Where, f.ID, f.Subject})
		g.line("          " + f.Reason)
		if f.Fix != "" {
			g.line("          fix: " + f.Fix)
		}
	}
	g.note = fmt.Sprintf("%s, %s, %d fine", count(r.Errors, "error"), count(r.Warnings, "warning"), fine)
	return g
}
