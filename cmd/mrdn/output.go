package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// result is what a command answers: the value itself for JSON and YAML, and
// its view as a table.
type result interface {
	grid(wide bool) grid
}

// grid is a table: without a head it is a list of names and values. A row of
// one cell is a line of its own that no column is widened for.
type grid struct {
	head []string
	rows [][]string
	note string // a line below, such as "no peers are configured"
}

// columns are those of a terminal that a table should fit.
const columns = 80

// line adds a line of its own, wrapped at words.
func (g *grid) line(text string) {
	for _, l := range wrapped(text, columns) {
		g.rows = append(g.rows, []string{l})
	}
}

// foldLast puts the last cell of a row below the row, where the table would be too wide
// with it; and further ones, where it would be too wide without it too.
func (g *grid) foldLast() {
	const below = "below"
	keep, head, used := len(g.head)-1, "", 0
	for ; keep > 0; keep-- {
		lead := [][]string{g.head[:keep]}
		for _, row := range g.rows {
			lead = append(lead, row[:min(keep, len(row))])
		}
		used = 0
		for _, w := range widths(lead) {
			used += w + 2
		}
		if head = strings.Join(g.head[keep:], ", "); used+max(len(head), len(below)) <= columns {
			break
		}
	}
	var out [][]string
	for _, row := range g.rows {
		if len(row) == 1 || keep == len(g.head)-1 && used+utf8.RuneCountInString(printable(row[keep])) <= columns {
			out = append(out, row)
			continue
		}
		at := len(out)
		out = append(out, append(append([]string{}, row[:keep]...), ""))
		for i, cell := range row[keep:] {
			if cell == "" {
				continue
			}
			text := "    " + printable(cell)
			if len(row) > keep+1 {
				text = "    " + g.head[keep+i] + ": " + printable(cell)
			}
			for _, l := range wrapped(text, columns) {
				out = append(out, []string{l})
			}
			out[at][keep] = below
		}
	}
	g.head, g.rows = append(append([]string{}, g.head[:keep]...), head), out
}

// wrapped cuts a text at spaces, later lines indented as the first and two more. A word
// that is too long stays whole.
func wrapped(text string, width int) []string {
	words := strings.Fields(text)
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	if len(words) == 0 {
		return []string{text}
	}
	lines := []string{indent + words[0]}
	for _, w := range words[1:] {
		last := &lines[len(lines)-1]
		if utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(w) <= width {
			*last += " " + w
		} else {
			lines = append(lines, indent+"  "+w)
		}
	}
	return lines
}

// folded wraps each line of a note at words, to what a terminal has.
func folded(note string) string {
	var out []string
	for line := range strings.SplitSeq(note, "\n") {
		out = append(out, wrapped(line, columns)...)
	}
	return strings.Join(out, "\n")
}

// raw is a result whose table form is bytes as they are: the body of a block,
// a completion script.
type raw interface {
	result
	bytes() []byte
}

// remarked is a result of which standard error says something, where standard output has
// no place for it: JSON and YAML have.
type remarked interface {
	result
	remark() string
}

// render writes r to standard output in the form that was asked for.
func (a *app) render(r result) error {
	switch a.output {
	case "json":
		b, err := encodeJSON(r)
		if err != nil {
			return err
		}
		_, err = a.out.Write(b)
		return err
	case "yaml":
		return a.renderYAML(r)
	}
	if m, ok := r.(remarked); ok {
		if _, err := fmt.Fprintln(a.err, printable(m.remark())); err != nil {
			return err
		}
	}
	if b, ok := r.(raw); ok {
		_, err := a.out.Write(b.bytes())
		return err
	}
	g := r.grid(a.output == "wide")
	return writeGrid(a.out, g, a.terminal && !a.noColor)
}

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// renderYAML goes by JSON, which is YAML too, so that both have the same names
// and order.
func (a *app) renderYAML(r result) error {
	b, err := encodeJSON(r)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return err
	}
	blockStyle(&n)
	out, err := yaml.Marshal(&n)
	if err != nil {
		return err
	}
	_, err = a.out.Write(out)
	return err
}

// blockStyle drops the braces and quotes that came from JSON; yaml quotes
// again what needs it.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle // an empty list has no block form
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func writeGrid(w io.Writer, g grid, colour bool) error {
	rows := g.rows
	if g.head != nil && len(g.rows) > 0 {
		rows = append([][]string{g.head}, g.rows...)
	}
	width := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		for j, cell := range row {
			text := printable(cell)
			if len(row) == 1 && cell == "" {
				text = "" // an empty line
			}
			pad := 0
			if j < len(row)-1 {
				pad = width[j] - utf8.RuneCountInString(text) + 2
			}
			b.WriteString(paint(text, colour))
			b.WriteString(strings.Repeat(" ", pad))
		}
		b.WriteString("\n")
	}
	if g.note != "" {
		b.WriteString(plain(g.note) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func widths(rows [][]string) []int {
	var w []int
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for j, cell := range row {
			if j == len(w) {
				w = append(w, 0)
			}
			w[j] = max(w[j], utf8.RuneCountInString(printable(cell)))
		}
	}
	return w
}

// printable keeps control characters, which a peer may have chosen, from the
// terminal, and shows that a cell is empty.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(shown, s)
}

// plain is printable for a text of more than one line.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return shown(r)
	}, s)
}

func shown(r rune) rune {
	if r < 0x20 || (r >= 0x7f && r < 0xa0) {
		return '?'
	}
	return r
}

// colours of the words that say how something is.
var colours = map[string]string{
	"ok": "32", "ready": "32", "OK": "32", "serving": "32",
	"WARN": "33", "connecting": "33", "draining": "33",
	"ERR": "31", "refused": "31", "failed": "31", "not ready": "31",
}

func paint(text string, colour bool) string {
	if c := colours[text]; colour && c != "" {
		return "\x1b[" + c + "m" + text + "\x1b[0m"
	}
	return text
}

// short shows the beginning of an id, which is enough to tell a few apart.
func short(id string, wide bool) string {
	if wide || len(id) <= 12 {
		return id
	}
	return id[:12]
}

// duration shows d with three digits or so.
func duration(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return d.Round(10 * time.Nanosecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func number[T uint32 | uint64 | int](n T) string { return fmt.Sprint(n) }
