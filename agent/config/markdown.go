package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/config.md: the schema for people, with the tables of fabrics of
// these kinds.
func Markdown(kinds ...FabricKind) string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "The search path is `./%s`, then `meridian/%s` in the user's config folder;\n`--config` and `MERIDIAN_CONFIG` win over it.\n\n", FileName, FileName)
	b.WriteString(values)
	after := func(name string) {
		for _, f := range formsOf(kinds) {
			if f.after == name {
				section(&b, f.title, f.doc, "", f.keys)
			}
		}
	}
	for _, t := range tablesOf(kinds) {
		section(&b, "["+t.name+"]", t.doc, t.name, t.describe())
		after(t.name)
	}
	after("")
	section(&b, "[fabric.NAME]", fabricDoc, "", []described{kindKey})
	for _, k := range kinds {
		if k.fixed != nil {
			continue
		}
		section(&b, "[fabric.NAME]` with `kind = "+words.show(k.Name), k.doc, "fabric.NAME", k.keys)
	}
	b.WriteString("## `[speculation]`\n\nA table of the seed design that is left out: speculative decoding belongs to the\nengine, which alone can verify a draft. A file that has it gets a warning.\n")
	return b.String()
}

const intro = `# Configuration

<!-- Made from agent/config and the openers by the test of agent/openers (-rewrite); do not edit. -->

One TOML file. Precedence: flag, then environment, then file, then default. An
unknown key is an error, in the file and in the environment. ` + "`mrdn config check`" + `
tests a file, ` + "`mrdn config show --origin`" + ` says where each value came from.

`

const values = `- **bytes** are an integer, or a string with a unit: ` + "`\"64MiB\"`, `\"1.5GB\"`" + `.
- **durations** are a string with a unit: ` + "`\"5s\"`, `\"250ms\"`" + `.
- Lists in a variable are separated by commas. An empty variable counts as none.
- A relative path in the file is taken from the file's folder.
- Secrets are never printed.
- Keys marked ⟳ are taken over by a reload (mrdn config reload, or SIGHUP), which says what changed; the others need a restart.

`

// section is one table of keys; path, where a variable can set them, is that of the
// table.
func section(b *strings.Builder, title, doc, path string, keys []described) {
	fmt.Fprintf(b, "## `%s`\n\n%s\n\n", title, doc)
	if len(keys) == 0 {
		b.WriteString("It has no keys of its own.\n\n")
		return
	}
	head := "| key | type | default | range | meaning |\n|---|---|---|---|---|\n"
	if path != "" {
		head = "| key | type | default | range | variable | meaning |\n|---|---|---|---|---|---|\n"
	}
	b.WriteString(head)
	for _, f := range keys {
		def := f.def
		if !strings.Contains(def, " ") || strings.HasPrefix(def, `"`) {
			def = "`" + def + "`"
		}
		name := "`" + f.name + "`"
		if f.live {
			name += " ⟳"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s ", name, f.kind, def, f.rng)
		if path != "" {
			fmt.Fprintf(b, "| `%s` ", EnvName(path+"."+f.name))
		}
		fmt.Fprintf(b, "| %s |\n", f.doc)
	}
	b.WriteString("\n")
}
