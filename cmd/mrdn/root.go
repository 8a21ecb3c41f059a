package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/agent/llama/pair"
	"meridian/agent/openers"
	"meridian/wire"
)

// app is one run of the command line: where it reads and writes, and the
// values of the flags that every command has.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      []string
	terminal bool // out is one

	output   string
	json     bool
	prepared bool // the flags are read
	noColor  bool
	timeout  time.Duration
	config   string
	admin    string
	pollEach time.Duration   // of status --wait; 0: 250 ms
	grace    time.Duration   // for a command to end when its time is over; 0: defaultGrace
	again    <-chan struct{} // is closed by the second signal; nil: never

	dialEngine func(ctx context.Context, path string, m wire.Manifest) (engine, error)
}

// Access marks in a command's help what running it may change.
const (
	readOnly = "read-only"
	writing  = "writing"
)

const accessKey = "access"

// accessSentence ends each command's help.
var accessSentence = map[string]string{
	readOnly: "The command changes nothing (read-only).",
	writing:  "The command changes or creates something (writing).",
}

// run executes args and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	f := asFailure(err)
	if !a.prepared {
		a.guessOutput(args)
	}
	a.report(f)
	return f.exit
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "mrdn",
		Short: "Look at and work with Meridian daemons",
		Long: `mrdn talks to a meridiand on this host: to its admin socket for state, and to
its engine socket for blocks.

Every command takes -o table, wide, json or yaml. Every flag has a variable:
those of this page as listed, the flag --limit of "mrdn block ls" as
MERIDIAN_CLI_BLOCK_LS_LIMIT, and so on.

Ctrl-C ends a command once what it has started is ended and removed. So does a
second one; a third ends the command at once and leaves that behind.

Exit codes: 0 ok, 1 not found or a check failed, 2 usage, 3 unreachable,
4 refused or not authorised, 5 integrity.`,
		Example:           "  mrdn status\n  mrdn peer list -o wide\n  mrdn doctor",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Annotations:       map[string]string{accessKey: readOnly},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.prepare(c) },
		Args:              noOperand,
		RunE:              a.showCommands,
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", "table", "form of the output: table, wide, json, yaml")
	f.BoolVar(&a.json, "json", false, "short for -o json")
	f.BoolVar(&a.noColor, "no-color", false, "no colour, as NO_COLOR does; there is none in a pipe anyway")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long the command may take")
	f.StringVar(&a.config, "config", "", "configuration file (default: the search path)")
	f.StringVar(&a.admin, "admin", "", "the daemon's admin socket (default: admin.socket of the configuration)")
	root.AddCommand(
		newStatusCmd(a), newPeerCmd(a), newNamespaceCmd(a), newBlockCmd(a), newTransferCmd(a), newFabricCmd(a), newRouteCmd(a), newDoctorCmd(a),
		newErrorsCmd(a), newConfigCmd(a), newCertCmd(a), newDemoCmd(a), newLlamaCmd(a), newChatCmd(a), newBenchCmd(a), newVersionCmd(a), newCompletionCmd(a),
	)
	root.SetHelpCommand(newHelpCmd(root))
	describe(root)
	root.SetUsageTemplate(strings.NewReplacer(
		"{{.LocalFlags.FlagUsages |", fmt.Sprintf("{{.LocalFlags.FlagUsagesWrapped %d |", columns),
		"{{.InheritedFlags.FlagUsages |", fmt.Sprintf("{{.InheritedFlags.FlagUsagesWrapped %d |", columns),
	).Replace(root.UsageTemplate()))
	return root
}

// newHelpCmd is cobra's help, except that a word which is no command is an error.
func newHelpCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about any command",
		Long:  "Shows the help of a command, as its --help does.",
		RunE: func(_ *cobra.Command, args []string) error {
			c := root
			for _, word := range args {
				i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == word })
				if i < 0 {
					return noOperand(c, []string{word})
				}
				c = c.Commands()[i]
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// variableNames are those of the flags whose variable is not the rule's: they
// are keys of the configuration too, or agreed on elsewhere.
var variableNames = map[string]string{
	"config": "MERIDIAN_CONFIG",
	"admin":  config.EnvName("admin.socket"),
	"engine": config.EnvName("engine.socket"),
	"url":    "MERIDIAN_OPENAI_URL",
}

// variable is the environment variable of a flag of c.
func variable(c *cobra.Command, f *pflag.Flag) string {
	if n, ok := variableNames[f.Name]; ok {
		return n
	}
	path := ""
	if c.Root().PersistentFlags().Lookup(f.Name) != f {
		path = strings.TrimPrefix(c.CommandPath(), c.Root().Name()) + " "
	}
	return "MERIDIAN_CLI_" + strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(strings.TrimLeft(path, " ")+f.Name))
}

// describe completes the help of every command: what it may change, and the
// variables of the flags that all share.
func describe(root *cobra.Command) {
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Usage += " [$" + variable(root, f) + "]" })
	each(root, func(c *cobra.Command) {
		if access := c.Annotations[accessKey]; access != "" && !c.HasSubCommands() {
			c.Long = strings.TrimSpace(c.Long) + "\n\n" + accessSentence[access]
		}
		c.Flags().SortFlags = false
	})
}

// each visits a command and all below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		each(sub, f)
	}
}

// prepare takes flags that are not given from their variables, and checks
// those that all commands share.
func (a *app) prepare(c *cobra.Command) error {
	vars := a.variables()
	var bad error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(c, f)
		v, ok := vars[name]
		if f.Changed || !ok || v == "" || bad != nil {
			return
		}
		if err := f.Value.Set(v); err != nil {
			bad = usage("%s=%q: %v", name, v, err)
		}
	})
	if a.json {
		a.output = "json"
	}
	a.prepared = true
	if vars["NO_COLOR"] != "" || vars["TERM"] == "dumb" {
		a.noColor = true
	}
	switch {
	case bad != nil:
		return bad
	case a.output != "table" && a.output != "wide" && a.output != "json" && a.output != "yaml":
		return usage("-o %q: the forms are table, wide, json, yaml", a.output)
	case a.timeout <= 0:
		return usage("--timeout %s: it must be above 0", a.timeout)
	}
	return nil
}

func (a *app) variables() map[string]string {
	vars := map[string]string{}
	for _, e := range a.env {
		if k, v, ok := strings.Cut(e, "="); ok {
			vars[k] = v
		}
	}
	return vars
}

// command makes the RunE of a command whose work is f: a context with the
// timeout, a result that the output layer renders, a failure with its code. A
// result is rendered even when there is a failure too: a failed check has both.
func (a *app) command(f func(ctx context.Context, args []string) (result, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), a.timeout)
		defer cancel()
		r, err := a.within(ctx, func() (result, error) { return f(ctx, args) })
		if r != nil {
			if e := a.render(r); e != nil && err == nil {
				err = e
			}
		}
		if err != nil {
			return asCommandFailure(err)
		}
		return nil
	}
}

// defaultGrace is what a command gets after ^C or --timeout to stop what it has
// started and to clean up: more than the slowest of them takes, a node that drains.
const defaultGrace = pair.StopWait + 5*time.Second

// within runs f, and leaves it behind where it has not returned some time after
// the end of ctx: no command hangs in a read or an open that nothing can end.
func (a *app) within(ctx context.Context, f func() (result, error)) (result, error) {
	type answer struct {
		r   result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := f()
		done <- answer{r, err}
	}()
	select {
	case x := <-done:
		return x.r, x.err
	case <-ctx.Done():
	}
	grace := a.grace
	if grace == 0 {
		grace = defaultGrace
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	for again := a.again; ; {
		select {
		case x := <-done:
			return x.r, x.err
		case <-again:
			_, _ = fmt.Fprintf(a.err, "what was started is being ended and removed, for at most %v; one more signal ends this at once and leaves it\n", grace)
			again = nil
		case <-late.C:
			return nil, ctx.Err()
		}
	}
}

// group is a command that only has others below it.
func group(a *app, use, short, example string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: short + ".", Example: example,
		Annotations: map[string]string{accessKey: readOnly},
		Args:        noOperand,
		RunE:        a.showCommands,
	}
	c.AddCommand(subs...)
	return c
}

// noOperand refuses a word that is no command of c, and says which one may be meant.
func noOperand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	meant, ok := config.Nearest(args[0], names)
	if args[0] == "ls" && slices.Contains(names, "list") {
		meant, ok = "list", true // too short to be near it
	}
	if i := slices.IndexFunc(names, func(n string) bool { return args[0] != "" && strings.HasPrefix(n, args[0]) }); i >= 0 {
		meant, ok = names[i], true
	}
	if ok {
		return usage("%q is no command of %q; did you mean %s %s?", args[0], c.CommandPath(), c.CommandPath(), meant)
	}
	return usage("%q is no command of %q", args[0], c.CommandPath())
}

// showCommands is what a group answers by itself: its help, or the list of its
// commands for a program.
func (a *app) showCommands(c *cobra.Command, _ []string) error {
	if a.output == "table" || a.output == "wide" {
		return c.Help()
	}
	r := commandsResult{[]commandInfo{}}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			r.Commands = append(r.Commands, commandInfo{sub.CommandPath(), sub.Short, sub.Annotations[accessKey]})
		}
	}
	return a.render(r)
}

type commandInfo struct {
	Command string `json:"command"`
	Short   string `json:"short"`
	Access  string `json:"access"`
}

type commandsResult struct {
	Commands []commandInfo `json:"commands"`
}

func (commandsResult) grid(bool) grid { return grid{} }

// exactly is cobra.ExactArgs with a message that names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("%s: %s is missing", c.CommandPath(), names[len(args)])
		case len(args) > len(names):
			return usage("%s: %q is one argument too many", c.CommandPath(), args[len(names)])
		}
		return nil
	}
}

// socketOf finds a socket: the flag or its variable, else the configuration,
// else the default place. A configuration that is found by the search path and
// has an error does not stop a command that needs only a socket; one that was
// named does.
func (a *app) socketOf(flag string, of func(*config.Config) string, fallback func() string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	c, _, err := a.load()
	switch {
	case err == nil:
		return of(c), nil
	case a.config != "":
		return "", err
	}
	return fallback(), nil
}

// load reads the configuration as the daemon would. The memory of the host is
// looked at only when capacity is automatic.
func (a *app) load() (*config.Config, []config.Warning, error) {
	return openers.Load(config.Options{Path: a.config, Env: a.env})
}

// withAdmin runs f on a connection to the daemon's admin socket.
func (a *app) withAdmin(ctx context.Context, f func(*client.Admin) (result, error)) (result, error) {
	path, err := a.socketOf(a.admin, func(c *config.Config) string { return c.Admin.Socket }, client.DefaultAdminSocket)
	if err != nil {
		return nil, err
	}
	adm, err := client.DialAdmin(ctx, path)
	if err != nil {
		return nil, adminSocket.unreachable(strings.TrimPrefix(path, "unix://"), err)
	}
	defer func() { _ = adm.Close() }()
	r, err := f(adm)
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unavailable && adminpb.Detail(err) == nil && ctx.Err() == nil {
		return r, adminSocket.mistaken(path, errors.New(s.Message()))
	}
	return r, err
}
