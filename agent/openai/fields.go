package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// fields are the members of one JSON object. The first that is wrong is kept
// and the rest of the reading goes on with defaults, so that a parser reads
// straight through and asks once at its end. null is the same as absent.
type fields struct {
	at   string // path of the object, with the dot behind it
	m    map[string]json.RawMessage
	bad  **Error         // shared by all objects of one body
	read map[string]bool // names that were asked for; nil: nobody wants to know
}

// Bounds of the names that are told of members that nobody reads.
const (
	maxIgnored     = 16
	maxIgnoredName = 64
)

// unread are the names of members that nothing has asked for, in order, the first
// maxIgnored of them.
func (f *fields) unread() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.m)) {
		if f.read[name] || len(names) == maxIgnored {
			continue
		}
		if len(name) > maxIgnoredName {
			name = strings.ToValidUTF8(name[:maxIgnoredName], "") + "…"
		}
		names = append(names, name)
	}
	return names
}

func (f *fields) failed() *Error { return *f.bad }

func (f *fields) fail(name, code, format string, args ...any) {
	if *f.bad == nil {
		path := f.at + name
		*f.bad = invalid(path, code, "%s: %s", path, fmt.Sprintf(format, args...))
	}
}

func (f *fields) get(name string) (json.RawMessage, bool) {
	if f.read != nil {
		f.read[name] = true
	}
	raw, ok := f.m[name]
	return raw, ok && string(raw) != "null"
}

// wrongType says what a field is and what it should be.
func (f *fields) wrongType(name string, raw json.RawMessage, want string) {
	f.fail(name, "invalid_type", "it is %s; it must be %s", kindOf(raw), want)
}

func (f *fields) boolean(name string, def bool) bool {
	raw, ok := f.get(name)
	if !ok {
		return def
	}
	if s := string(raw); s != "true" && s != "false" {
		f.wrongType(name, raw, "true or false")
		return def
	}
	return string(raw) == "true"
}

func (f *fields) integer(name string, def, low, high int64) int64 {
	raw, ok := f.get(name)
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case kindOf(raw) != "a number":
		f.wrongType(name, raw, "an integer")
	case err != nil && strings.ContainsAny(string(raw), ".eE"):
		f.fail(name, "invalid_type", "%s is not an integer", clip(raw))
	case err != nil || n < low || n > high:
		f.fail(name, "invalid_value", "%s is not between %d and %d", clip(raw), low, high)
	default:
		return n
	}
	return def
}

// number takes low ≤ x ≤ high, or low < x when above is set.
func (f *fields) number(name string, def, low, high float64, above bool) float64 {
	raw, ok := f.get(name)
	if !ok {
		return def
	}
	if kindOf(raw) != "a number" {
		f.wrongType(name, raw, "a number")
		return def
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || x < low || x > high || above && x == low {
		bound := "between"
		if above {
			bound = "above the first of"
		}
		f.fail(name, "invalid_value", "%s is not %s %v and %v", clip(raw), bound, low, high)
		return def
	}
	return x
}

// text is a string without NUL.
func (f *fields) text(name string) string {
	raw, ok := f.get(name)
	if !ok {
		return ""
	}
	return f.textOf(name, raw)
}

func (f *fields) textOf(name string, raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		f.wrongType(name, raw, "a string")
		return ""
	}
	if at := strings.IndexByte(s, 0); at >= 0 {
		f.fail(name, "invalid_value", "it has a NUL at byte %d", at)
		return ""
	}
	return s
}

// list are the elements of an array; nil when the field is absent.
func (f *fields) list(name string) []json.RawMessage {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	var l []json.RawMessage
	if json.Unmarshal(raw, &l) != nil {
		f.wrongType(name, raw, "an array")
	}
	return l
}

// object is a field that is an object; without members when it is absent.
func (f *fields) object(name string) *fields {
	raw, ok := f.get(name)
	if !ok {
		return &fields{at: f.at + name + ".", bad: f.bad}
	}
	return f.objectOf(name, raw)
}

func (f *fields) objectOf(name string, raw json.RawMessage) *fields {
	sub := &fields{at: f.at + name + ".", bad: f.bad}
	if json.Unmarshal(raw, &sub.m) != nil || sub.m == nil {
		f.wrongType(name, raw, "an object")
	}
	return sub
}

// kindOf names the type of a JSON value, by its first byte.
func kindOf(raw []byte) string {
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return "an object"
		case '[':
			return "an array"
		case '"':
			return "a string"
		case 't', 'f':
			return "a boolean"
		case 'n':
			return "null"
		}
		return "a number"
	}
	return "nothing"
}

// clip shows a value in a message, shortened.
func clip(raw []byte) string {
	if len(raw) > 40 {
		return strings.ToValidUTF8(string(raw[:40]), "") + "…"
	}
	return string(raw)
}
