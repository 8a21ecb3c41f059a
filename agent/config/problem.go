package config

import (
	"strconv"
	"strings"

	"meridian/wire"
)

// Problem is one thing that is wrong, or worth a warning.
type Problem struct {
	File string // where it was written: a path, a variable's name, or "flag"; empty: nowhere in particular
	Line int    // in a file; 0 if not known
	Key  string // table.key
	Text string // what is wrong, with the value and the range
}

// String is one line: meridian.toml:12: scheduler.min_think_tokens: ...
func (p Problem) String() string {
	s := p.Where()
	if s != "" {
		s += ": "
	}
	if p.Key != "" {
		s += p.Key + ": "
	}
	return s + p.Text
}

// Where is file:line, or the variable or flag; empty if the problem was written
// nowhere in particular.
func (p Problem) Where() string {
	if p.File != "" && p.Line > 0 {
		return p.File + ":" + strconv.Itoa(p.Line)
	}
	return p.File
}

// Warning is a problem that stops nothing.
type Warning = Problem

// Error is every problem that Load found. It matches wire.CodeConfig.
type Error struct {
	Problems []Problem
}

// Error lists the problems on one line.
func (e *Error) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.String()
	}
	return strings.Join(parts, "; ")
}

// Unwrap makes errors.Is(err, wire.CodeConfig) true.
func (e *Error) Unwrap() error { return wire.CodeConfig }
