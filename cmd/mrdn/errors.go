package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent/config"
	"meridian/wire"
)

func newErrorsCmd(a *app) *cobra.Command {
	lookup := &cobra.Command{
		Use:         "lookup CODE",
		Short:       "Explain an error code, by name or number",
		Long:        "Says what a code of a log line, a metric or an answer means, how far it reaches,\nand what to do about it. Codes never change their meaning.",
		Example:     "  mrdn errors lookup 104\n  mrdn errors lookup NS_UNKNOWN",
		Args:        exactly("CODE"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	lookup.RunE = a.command(func(_ context.Context, args []string) (result, error) {
		info, ok := wire.LookupCode(args[0])
		if !ok {
			var names []string
			for _, c := range wire.Codes() {
				names = append(names, c.Code.String())
			}
			if meant, ok := config.Nearest(strings.ToUpper(args[0]), names); ok {
				return nil, failed("mrdn errors list shows all codes", "no code is called %q; did you mean %s?", args[0], meant)
			}
			return nil, failed("mrdn errors list shows all codes", "no code is called %q", args[0])
		}
		return codeOf(info), nil
	})
	all := &cobra.Command{
		Use:         "list",
		Short:       "List every error code",
		Long:        "Lists every code with its number, its name and how far it reaches.",
		Example:     "  mrdn errors list",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	all.RunE = a.command(func(context.Context, []string) (result, error) {
		r := codesResult{[]codeResult{}}
		for _, info := range wire.Codes() {
			r.Codes = append(r.Codes, codeOf(info))
		}
		return r, nil
	})
	return group(a, "errors", "The error codes and what they mean", "  mrdn errors lookup CHECKSUM", lookup, all)
}

type codeResult struct {
	Code  uint16 `json:"code"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

func codeOf(i wire.CodeInfo) codeResult {
	return codeResult{uint16(i.Code), i.Name, i.Scope, i.Text, i.Fix}
}

func (r codeResult) grid(bool) grid {
	return grid{rows: [][]string{
		{"code", number(int(r.Code))}, {"name", r.Name}, {"reaches", r.Scope}, {"means", r.Text}, {"do", r.Fix},
	}}
}

type codesResult struct {
	Codes []codeResult `json:"codes"`
}

func (r codesResult) grid(wide bool) grid {
	g := grid{head: []string{"CODE", "NAME", "REACHES", "MEANS"}}
	if wide {
		g.head = append(g.head, "DO")
	}
	for _, c := range r.Codes {
		row := []string{number(int(c.Code)), c.Name, c.Scope, c.Text}
		if wide {
			row = append(row, c.Fix)
		}
		g.rows = append(g.rows, row)
	}
	return g
}

// codeNumber is a code as a daemon sends it; one above 16 bits is none that
// exists.
func codeNumber(n uint32) wire.Code { return wire.Code(min(n, 0xffff)) }
