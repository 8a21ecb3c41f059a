package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/config.md: the schema for people.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "The search path is `./%s`, then `meridian/%s` in the user's config folder;\n`--config` and `MERIDIAN_CONFIG` win over it.\n\n", FileName, FileName)
	b.WriteString(values)
	for _, t := range tables() {
		section(&b, t, "["+t.name+"]", true)
		switch t.name {
		case "telemetry":
			section(&b, modelTable, "[model.NAME]", false)
		case "link.tls":
			section(&b, peerTable, "[[link.peer]]", false)
		}
	}
	section(&b, routeTable, "[[route]]", false)
	b.WriteString("## `[speculation]`\n\nA table of the seed design that is left out: speculative decoding belongs to the\nengine, which alone can verify a draft. A file that has it gets a warning.\n")
	return b.String()
}

const intro = `# Configuration

<!-- Made from the schema in agent/config by its test; do not edit. -->

One TOML file. Precedence: flag, then environment, then file, then default. An
unknown key is an error, in the file and in the environment. ` + "`mrdn config check`" + `
tests a file, ` + "`mrdn config show --origin`" + ` says where each value came from.

`

const values = `- **bytes** are an integer, or a string with a unit: ` + "`\"64MiB\"`, `\"1.5GB\"`" + `.
- **durations** are a string with a unit: ` + "`\"5s\"`, `\"250ms\"`" + `.
- Lists in a variable are separated by commas. An empty variable counts as none.
- A relative path in the file is taken from the file's folder.
- Secrets are never printed.
- Keys marked ⟳ are taken over by a reload (SIGHUP); the others need a restart.

`

func section[S any](b *strings.Builder, t table[S], title string, env bool) {
	fmt.Fprintf(b, "## `%s`\n\n%s\n\n", title, t.doc)
	head := "| key | type | default | range | meaning |\n|---|---|---|---|---|\n"
	if env {
		head = "| key | type | default | range | variable | meaning |\n|---|---|---|---|---|---|\n"
	}
	b.WriteString(head)
	for _, f := range t.fields {
		def := f.def
		if !strings.Contains(def, " ") || strings.HasPrefix(def, `"`) {
			def = "`" + def + "`"
		}
		name := "`" + f.name + "`"
		if f.live {
			name += " ⟳"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s ", name, f.kind, def, f.rng)
		if env {
			fmt.Fprintf(b, "| `%s` ", EnvName(t.name+"."+f.name))
		}
		fmt.Fprintf(b, "| %s |\n", f.doc)
	}
	b.WriteString("\n")
}
