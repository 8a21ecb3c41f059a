package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options says where the configuration comes from.
type Options struct {
	Path  string            // the file; empty: MERIDIAN_CONFIG, then the search path
	Env   []string          // as os.Environ returns it; nil: no variables
	Flags map[string]string // table.key to value, as text

	// Kinds are the fabrics that this build has: openers.Kinds of those that the daemon
	// is given besides.
	Kinds []FabricKind

	// Regular refuses a file that is empty, as one is while it is written, and one
	// that is a pipe or a device: a reload must not wait for one, nor take what it has
	// left for a configuration.
	Regular bool

	// Memory tells how much memory is free, for capacity "auto"; nil asks the
	// host.
	Memory func() Memory
}

// fileVariable names the file, where Options do not.
const fileVariable = "MERIDIAN_CONFIG"

// FileName is what the search path looks for.
const FileName = "meridian.toml"

// SearchPath lists where a configuration file is looked for, first match wins:
// the current folder, then the user's config folder as env tells it.
func SearchPath(env []string) []string {
	paths := []string{FileName}
	vars := variables(env)
	dir := vars["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(dir) && filepath.IsAbs(vars["HOME"]) {
		dir = filepath.Join(vars["HOME"], ".config")
	}
	if filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "meridian", FileName))
	}
	return paths
}

// Find returns the file that Load(o) reads, or "" when there is none and the
// defaults and the environment are all there is. A file that was named and
// does not exist is returned all the same: Load says so.
func (o Options) Find() string {
	if o.Path != "" {
		return o.Path
	}
	if p := variables(o.Env)[fileVariable]; p != "" {
		return p
	}
	for _, p := range SearchPath(o.Env) {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// Load reads, merges and checks a configuration. The error is an *Error with
// every problem; warnings come with or without one.
func Load(o Options) (*Config, []Warning, error) {
	l := newLoader(o.Kinds, variables(o.Env))
	if path := o.Find(); path != "" {
		l.readFile(path, o.Regular)
	}
	l.implyFabrics(o.Flags)
	l.readEnv()
	l.readFlags(o.Flags)
	l.dropUnused()
	if o.Memory == nil {
		o.Memory = HostMemory
	}
	if len(l.problems) == 0 {
		l.cfg.origins = l.origins()
	}
	written, warned := l.problems, len(l.warnings)
	l.problems = nil
	memory := o.Memory()
	l.resolve(memory)
	l.check()
	l.checkMemory(memory)
	l.checkMode()
	follows := func(p Problem) bool { return l.follows(p, written) }
	l.problems = append(written, slices.DeleteFunc(l.problems, follows)...)
	l.warnings = append(l.warnings[:warned], slices.DeleteFunc(l.warnings[warned:], follows)...)
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
	if len(l.problems) > 0 {
		return nil, l.warnings, &Error{l.problems}
	}
	return l.cfg, l.warnings, nil
}

// follows tells whether p, found by comparing keys, may be there only because of
// a problem with what was written: of its own key, of one that its text names, or,
// for what is missing, of one in the same table.
func (l *loader) follows(p Problem, written []Problem) bool {
	if len(written) > 0 && l.partial && strings.HasPrefix(p.Text, "missing") {
		return true
	}
	for _, w := range written {
		keys := []string{w.Key}
		if _, meant, ok := strings.Cut(w.Text, "did you mean "); ok {
			meant = strings.TrimSuffix(meant, "?")
			if dot := strings.LastIndexByte(w.Key, '.'); dot >= 0 && !strings.Contains(meant, ".") {
				meant = w.Key[:dot+1] + meant // of the same entry
			}
			keys = append(keys, meant)
		}
		for _, key := range keys {
			if key == "" {
				continue
			}
			tab := key[:max(strings.LastIndexByte(key, '.'), 0)]
			if i := strings.IndexByte(tab, '['); i >= 0 {
				tab = tab[:i]
			}
			if p.Key == key || strings.Contains(p.Text, key) || strings.Contains(p.Text, "["+tab+"]") ||
				tab != "" && strings.HasPrefix(p.Key, tab+".") && strings.HasPrefix(p.Text, "missing") ||
				strings.Contains(p.Text, "["+key+"]") {
				return true
			}
		}
	}
	return false
}

// newLoader begins a configuration that has the defaults.
func newLoader(kinds []FabricKind, vars map[string]string) *loader {
	l := &loader{cfg: &Config{kinds: kinds}, from: map[string]source{}, vars: vars, tried: map[string]bool{}}
	for k := range fixedKinds(kinds) {
		l.cfg.Fabrics = append(l.cfg.Fabrics, Fabric{Name: k.Name, Kind: k.Name, Settings: k.fixed.fresh()})
	}
	for _, t := range l.tables() {
		for _, f := range t.fields {
			f.reset(l.cfg)
		}
	}
	return l
}

// tablesOf are all tables that exist once.
func tablesOf(kinds []FabricKind) []table[Config] {
	out := slices.Concat(seedTables, ourTables, []table[Config]{quotaTable})
	for k := range fixedKinds(kinds) {
		out = append(out, k.fixed.tables...)
	}
	return out
}

func (l *loader) tables() []table[Config] { return tablesOf(l.cfg.kinds) }

// source is where a value was written.
type source struct {
	kind string // file, env, flag
	at   string // path, variable, or the flag's key
	line int
}

type loader struct {
	cfg      *Config
	file     string
	lines    lines
	vars     map[string]string
	from     map[string]source // by table.key; not there: the default
	problems []Problem
	warnings []Warning
	fabrics  []*oneFabric    // in the order of their names, once all are known
	tried    map[string]bool // names of [fabric.NAME], right or wrong
	partial  bool            // statements of the file were left out because they are not TOML
}

// fail records a problem at the place where key was written.
func (l *loader) fail(key, format string, args ...any) {
	l.problems = append(l.problems, l.problem(key, format, args...))
}

func (l *loader) warn(key, format string, args ...any) {
	l.warnings = append(l.warnings, l.problem(key, format, args...))
}

func (l *loader) problem(key, format string, args ...any) Problem {
	p := Problem{Key: key, Text: fmt.Sprintf(format, args...)}
	switch s, ok := l.from[key]; {
	case ok:
		p.File, p.Line = s.at, s.line
	case l.file != "":
		if n := l.lines.of(key); n > 0 {
			p.File, p.Line = l.file, n
		}
	}
	return p
}

func variables(env []string) map[string]string {
	vars := map[string]string{}
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok {
			vars[k] = v
		}
	}
	return vars
}

const envPrefix = "MERIDIAN_"

// EnvName is the variable of a key: MERIDIAN_ARENA_VERIFY for arena.verify.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Reserved variables are no keys: the file's place, the command line's own
// settings, and those that the client library in other languages reads.
func reserved(name string) bool {
	return name == fileVariable || name == "MERIDIAN_OPENAI_URL" || strings.HasPrefix(name, "MERIDIAN_CLI_") || strings.HasPrefix(name, "MERIDIAN_PY_")
}

func (l *loader) readEnv() {
	keys := map[string][]string{} // by variable
	for _, key := range l.known() {
		keys[EnvName(key)] = append(keys[EnvName(key)], key)
	}
	set := make([]string, 0, len(l.vars))
	for name, value := range l.vars {
		// An empty variable is as good as none: that is how scripts and
		// compose files leave one out.
		if value != "" && strings.HasPrefix(name, envPrefix) && !reserved(name) {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	for _, name := range set {
		switch of := keys[name]; len(of) {
		case 0:
			l.problems = append(l.problems, Problem{File: name, Text: l.unknownVariable(name, slices.Collect(maps.Keys(keys)))})
		case 1:
			l.setText(of[0], l.vars[name], source{kind: "env", at: name})
		default:
			l.problems = append(l.problems, Problem{File: name, Text: "is the variable of " + strings.Join(of, " and of ") + ": set them in the file"})
		}
	}
}

// known are all keys that a variable or a flag can set.
func (l *loader) known() []string {
	var out []string
	for _, t := range l.tables() {
		for _, f := range t.fields {
			out = append(out, t.name+"."+f.name)
		}
	}
	for _, f := range l.fabrics {
		for _, s := range f.keys {
			out = append(out, f.path()+"."+s.name)
		}
	}
	return out
}

func (l *loader) unknownVariable(name string, names []string) string {
	for _, f := range l.forms() {
		if strings.HasPrefix(name, EnvName(f.path)+"_") {
			return l.plurals() + " are set in the file only"
		}
	}
	return "unknown variable" + didYouMean(Nearest(name, names))
}

func didYouMean(name string, ok bool) string {
	if !ok {
		return ""
	}
	return "; did you mean " + name + "?"
}

func (l *loader) readFlags(flags map[string]string) {
	keys := make([]string, 0, len(flags))
	for k := range flags {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		l.setText(k, flags[k], source{kind: "flag", at: "flag"})
	}
}

// setText sets a key of a table from a variable or a flag.
func (l *loader) setText(key, text string, s source) {
	f, ok := l.setting(key)
	if !ok {
		l.problems = append(l.problems, Problem{File: s.at, Key: key, Text: "unknown key" + l.suggest(key)})
		return
	}
	l.from[key] = s
	if err := f.setText(text); err != nil {
		l.reject(key, f.secret, fmt.Sprintf("%q", text), err)
	}
}

// reject names the key, the value (unless it is secret) and the range.
func (l *loader) reject(key string, secret bool, value string, err error) {
	if secret {
		value = redacted
	}
	l.fail(key, "%s %s", value, err)
}

// setting is the key of a table that exists once, or of a fabric's.
func (l *loader) setting(key string) (setting, bool) {
	dot := max(strings.LastIndexByte(key, '.'), 0)
	tab, name := key[:dot], strings.TrimPrefix(key[dot:], ".")
	var keys []setting
	for _, t := range l.tables() {
		if t.name == tab {
			keys = t.settings(l.cfg)
		}
	}
	for _, f := range l.fabrics {
		if f.path() == tab {
			keys = f.keys
		}
	}
	i := slices.IndexFunc(keys, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, false
	}
	return keys[i], true
}

// CheckVariable says which key a MERIDIAN_* variable sets, in a build with these kinds
// of fabrics. The key is empty
// for a variable that is none of the daemon's keys and that Load lets pass.
// The error is what Load would say about the variable alone.
func CheckVariable(name, value string, kinds ...FabricKind) (key string, err error) {
	if strings.HasPrefix(name, EnvName("fabric")+"_") {
		return "", nil // what it sets depends on the tables of the file
	}
	l := newLoader(kinds, map[string]string{name: value})
	l.readEnv()
	if len(l.problems) > 0 {
		return "", &Error{l.problems}
	}
	for k := range l.from {
		key = k
	}
	return key, nil
}
