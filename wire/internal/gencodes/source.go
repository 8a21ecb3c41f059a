package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// entry is one element of errors.json.
type entry struct {
	Code  uint16 `json:"code"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Text  string `json:"text"`
	Fix   string `json:"fix"`
}

// scope is a kind of code: how far a failure of that kind reaches.
type scope struct {
	name, reach string
	low, high   uint16 // its numbers, both included; OK is 0 and outside
}

var scopes = []scope{
	{"item", "One item of a batch; the others go on.", 100, 199},
	{"request", "One request; the connection goes on.", 200, 299},
	{"connection", "One connection (lane), which is closed; nothing else is disturbed.", 300, 399},
	{"payload", "One payload or manifest, which is refused.", 400, 499},
	{"config", "The daemon's configuration: it does not start, or goes on with what it had.", 600, 699},
}

var namePattern = regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)

// parse reads errors.json and refuses what would make an ambiguous table.
func parse(source []byte) ([]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(source))
	dec.DisallowUnknownFields()
	var list []entry
	if err := dec.Decode(&list); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	names := make(map[string]uint16, len(list))
	for i, e := range list {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("code %d: %w", e.Code, err)
		}
		if i > 0 && e.Code <= list[i-1].Code {
			return nil, fmt.Errorf("code %d: numbers must rise, and %d stands before it", e.Code, list[i-1].Code)
		}
		// A look-up ignores underscores, so names must differ without them.
		flat := strings.ReplaceAll(e.Name, "_", "")
		if other, ok := names[flat]; ok {
			return nil, fmt.Errorf("code %d: name %s is taken by %d", e.Code, e.Name, other)
		}
		names[flat] = e.Code
	}
	if len(list) == 0 || list[0].Code != 0 || list[0].Name != "OK" {
		return nil, errors.New("the first entry must be 0 OK")
	}
	return list, nil
}

func (e entry) check() error {
	if !namePattern.MatchString(e.Name) {
		return fmt.Errorf("name %q is not UPPER_CASE", e.Name)
	}
	// A look-up takes these off the front of what it is asked for.
	for _, prefix := range []string{"CODE", "MRDN"} {
		if strings.HasPrefix(e.Name, prefix) {
			return fmt.Errorf("name %q begins with the prefix %s", e.Name, prefix)
		}
	}
	for field, v := range map[string]string{"text": e.Text, "fix": e.Fix} {
		if v == "" || strings.TrimSpace(v) != v || strings.ContainsAny(v, "\n\r|`") {
			return fmt.Errorf("%s %q is empty, or holds a line break, a bar, a backquote or outer blanks", field, v)
		}
	}
	for _, s := range scopes {
		if s.name != e.Scope {
			continue
		}
		if e.Code != 0 && (e.Code < s.low || e.Code > s.high) {
			return fmt.Errorf("scope %s has the numbers %d to %d", s.name, s.low, s.high)
		}
		return nil
	}
	return fmt.Errorf("scope %q is unknown", e.Scope)
}

// constName turns NS_UNKNOWN into CodeNSUnknown.
func constName(name string) string {
	var b strings.Builder
	b.WriteString("Code")
	for part := range strings.SplitSeq(name, "_") {
		switch part {
		case "OK", "NS", "CRC": // initialisms keep their capitals
			b.WriteString(part)
		default:
			b.WriteString(part[:1] + strings.ToLower(part[1:]))
		}
	}
	return b.String()
}
