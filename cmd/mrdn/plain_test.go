package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// A note and an error may have in them what a server says: no control character of it
// reaches the terminal.
func TestNotesAndErrorsHaveNoControlCharacters(t *testing.T) {
	var out, err bytes.Buffer
	if e := writeGrid(&out, grid{note: "model \x1b[2Jm\u009b\n\tnext"}, false); e != nil {
		t.Fatal(e)
	}
	if got, want := out.String(), "model ?[2Jm?\n\tnext\n"; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
	a := &app{err: &err}
	a.report(&failure{err: errors.New("it says \x1b]0;x\x07"), hint: "try\x1b[1m"})
	if got, want := err.String(), "error: it says ?]0;x?\nhint: try?[1m\n"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestJoinedErrorsStayApartInOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"one":                            "one",
		"interrupted\nmkdir x: no":       "interrupted; mkdir x: no",
		"a:\n\tb  c\r\n\n d.\ne\n":       "a: b c; d. e",
		errors.Join(io.EOF, nil).Error(): "EOF",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
