package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

var rewrite = flag.Bool("rewrite", false, "write docs/cli.md anew")

func tree() *cobra.Command { return newRoot(&app{}) }

// arguments are those with which each command that needs any is run. The demo
// and the bench are not: they start daemons, and have tests of their own.
var arguments = map[string][]string{
	"mrdn block stat":    {goodKey},
	"mrdn block verify":  {goodKey},
	"mrdn block put":     {"-"},
	"mrdn block get":     {"KEY-OF-PUT"},
	"mrdn errors lookup": {"CHECKSUM"},
	"mrdn route add":     {"--fabric", "link"},

	"mrdn fabric object get": {"attic", "page"},
	"mrdn cert issue":        {"--name", "prefill-1", "--tenant", "acme"},
	"mrdn completion":        {"bash"},
}

var startDaemons = map[string]bool{
	"mrdn demo": true, "mrdn bench load": true, "mrdn bench link": true, "mrdn bench peers": true, "mrdn bench mooncake": true, "mrdn bench nixl": true, "mrdn bench bridge": true, "mrdn bench llama": true, "mrdn bench cache": true, "mrdn bench think": true, "mrdn bench force": true, "mrdn bench force record": true,
	"mrdn llama up": true, "mrdn llama run": true, "mrdn chat": true,
}

func TestEveryCommandIsDescribed(t *testing.T) {
	each(tree(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		path := c.CommandPath()
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: short %q, long %q, example %q", path, c.Short, c.Long, c.Example)
		}
		if strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short text ends in a full stop", path)
		}
		if access := c.Annotations[accessKey]; access != readOnly && access != writing {
			t.Errorf("%s: is it read-only or writing?", path)
		} else if !c.HasSubCommands() && !strings.HasSuffix(c.Long, "("+access+").") {
			t.Errorf("%s: its help does not say that it is %s", path, access)
		}
		if !strings.Contains(c.Example, path) {
			t.Errorf("%s: the example does not show it:\n%s", path, c.Example)
		}
		for line := range strings.Lines(c.Long) {
			if len(line) > 82 {
				t.Errorf("%s: a line of the help is longer than a terminal: %q", path, line)
			}
		}
	})
}

func TestEveryCommandAnswersInJSONAndYAML(t *testing.T) {
	s := newShell(t, newDaemon())
	s.in = "a block"
	key := strings.TrimSpace(s.run(t, "block", "put", "-").out)
	each(tree(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Hidden || startDaemons[path] {
			return
		}
		args := append(strings.Fields(path)[1:], arguments[path]...)
		for i, arg := range args {
			if arg == "KEY-OF-PUT" {
				args[i] = key
			}
		}
		for _, form := range []string{"json", "yaml", "table", "wide"} {
			if path == "mrdn cert ca" || path == "mrdn cert issue" {
				args = append(args, "--dir", form)
			}
			if path == "mrdn cert issue" {
				s.run(t, "cert", "ca", "--dir", form)
				args = append(args, "--ca", form)
			}
			got := s.run(t, append(args, "-o", form)...)
			if path == "mrdn fabric object get" && (form == "table" || form == "wide") {
				got.err = strings.TrimPrefix(got.err, "6 bytes, unverified: opaque, not a block\n")
			}
			if got.exit != exitOK || got.err != "" || got.out == "" {
				t.Errorf("%s -o %s: exit %d, %s", path, form, got.exit, got.err)
				continue
			}
			var v map[string]any
			switch form {
			case "json":
				if err := json.Unmarshal([]byte(got.out), &v); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, got.out)
				}
			case "yaml":
				if err := yaml.Unmarshal([]byte(got.out), &v); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, got.out)
				}
			}
		}
	})
}

func TestEveryFailureIsJSONUnderJSON(t *testing.T) {
	s := newShell(t, nil)
	for _, args := range [][]string{{"status"}, {"block", "stat"}, {"nothing"}, {"errors", "lookup", "nope"}, {"peer", "list", "--nope"}} {
		got := s.run(t, append(args, "--json")...)
		var v struct {
			Error struct {
				Message string
				Exit    int
			}
		}
		if err := json.Unmarshal([]byte(got.err), &v); err != nil || got.out != "" {
			t.Errorf("%v: %v in %q, and %q", args, err, got.err, got.out)
		}
		if v.Error.Message == "" || v.Error.Exit != got.exit || got.exit == exitOK {
			t.Errorf("%v: exit %d, error %+v", args, got.exit, v.Error)
		}
	}
}

func TestAWordThatIsNoCommandIsAnsweredWithTheOneMeant(t *testing.T) {
	s := newShell(t, nil)
	for _, c := range []struct{ args, says string }{
		{"stat", `"stat" is no command of "mrdn"; did you mean mrdn status?`},
		{"peer lst", `did you mean mrdn peer list?`},
		{"transfer ls", `did you mean mrdn transfer list?`},
		{"block list", `did you mean mrdn block ls?`},
		{"help stat", `"stat" is no command of "mrdn"; did you mean mrdn status?`},
		{"help peer lst", `did you mean mrdn peer list?`},
		{"block xyzzy", `"xyzzy" is no command of "mrdn block"` + "\n"},
	} {
		expect(t, s.run(t, strings.Fields(c.args)...), exitUsage, "", c.says)
	}
}

func TestHelpOfACommandIsWhatItsHelpFlagShows(t *testing.T) {
	s := newShell(t, nil)
	for _, args := range []string{"", "peer", "peer list"} {
		words := strings.Fields(args)
		flag, word := s.run(t, append(words, "--help")...), s.run(t, append([]string{"help"}, words...)...)
		if word.exit != exitOK || word.out == "" || word.out != flag.out {
			t.Errorf("help %s: exit %d, %q, want %q", args, word.exit, word.out, flag.out)
		}
	}
}

func TestOptionsOfAComparisonThatAreWrongAreUsageAndMeasureNothing(t *testing.T) {
	s := newShell(t, nil)
	got := s.run(t, "bench", "peers", "--quick", "--only", "nobody")
	expect(t, got, exitUsage, "", `"nobody" is no system; there are link`)
	if got.out != "" {
		t.Errorf("it shows a report: %q", got.out)
	}
}

func TestEverySharedFlagHasAVariable(t *testing.T) {
	root := tree()
	seen := map[string]bool{}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		name := variable(root, f)
		if !strings.HasPrefix(name, "MERIDIAN_") || seen[name] || !strings.Contains(f.Usage, "$"+name) {
			t.Errorf("--%s: variable %q, usage %q", f.Name, name, f.Usage)
		}
		seen[name] = true
	})
	if len(seen) == 0 {
		t.Error("no shared flags")
	}
}

func TestDocumentIsMadeFromTheTree(t *testing.T) {
	const path = "../../docs/cli.md"
	got := document(tree())
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s is not what the command tree says (%v); run this test with -rewrite", path, err)
	}
}

// document is docs/cli.md.
func document(root *cobra.Command) string {
	var b bytes.Buffer
	b.WriteString("# The command line\n\n<!-- Made from the command tree by the test of cmd/mrdn; do not edit. -->\n\n")
	each(root, func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		depth := strings.Repeat("#", min(4, 2+strings.Count(c.CommandPath(), " ")))
		fmt.Fprintf(&b, "%s %s\n\n%s\n\n", depth, c.CommandPath(), c.Long)
		if c.Runnable() && !c.HasSubCommands() {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
		}
		fmt.Fprintf(&b, "Examples:\n\n```\n%s\n```\n\n", dedent(c.Example))
		flags := c.LocalNonPersistentFlags()
		title := "Flags"
		if c == root {
			flags, title = c.PersistentFlags(), "Flags of every command"
		}
		table := ""
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			def := f.DefValue
			if def != "" {
				def = "`" + def + "`"
			}
			table += fmt.Sprintf("| `%s` | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", "\\|"))
		})
		if table != "" {
			fmt.Fprintf(&b, "%s:\n\n| flag | default | meaning |\n|---|---|---|\n%s\n", title, table)
		}
	})
	return b.String()
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

// A terminal has 80 columns: no line of a help is cut or broken by it.
func TestHelpFitsATerminal(t *testing.T) {
	each(tree(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		var b bytes.Buffer
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Error(err)
		}
		for line := range strings.SplitSeq(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
	})
}
