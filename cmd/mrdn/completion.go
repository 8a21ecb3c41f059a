package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"
)

func newCompletionCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:         "completion SHELL",
		Short:       "Print a completion script for bash, zsh or fish",
		Long:        "Prints a script that lets the shell complete commands and flags. The script is\nthe output itself; under -o json it is a string.",
		Example:     "  source <(mrdn completion bash)\n  mrdn completion fish > ~/.config/fish/completions/mrdn.fish",
		Args:        exactly("SHELL"),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(_ context.Context, args []string) (result, error) {
		var b bytes.Buffer
		var err error
		switch args[0] {
		case "bash":
			err = c.Root().GenBashCompletionV2(&b, true)
		case "zsh":
			err = c.Root().GenZshCompletion(&b)
		case "fish":
			err = c.Root().GenFishCompletion(&b, true)
		default:
			return nil, usage("%q: the shells are bash, zsh, fish", args[0])
		}
		return scriptResult{args[0], b.String()}, err
	})
	return c
}

type scriptResult struct {
	Shell  string `json:"shell"`
	Script string `json:"script"`
}

func (r scriptResult) grid(bool) grid { return grid{} }
func (r scriptResult) bytes() []byte  { return []byte(r.Script) }
