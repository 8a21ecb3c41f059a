package main

import (
	"slices"
	"testing"

	"meridian/agent/finding"
)

func TestWhatThisProcessAndTheDaemonFindAlikeIsToldOnce(t *testing.T) {
	f := func(id, reason string) finding.Finding {
		return finding.Finding{ID: id, Severity: finding.Warn, Reason: reason}
	}
	got := merged(
		[]placed{{"here", f("clock", "off")}, {"here", f("limits", "1024 here")}},
		[]placed{{"daemon", f("clock", "off")}, {"daemon", f("limits", "4096 there")}, {"daemon", f("peers", "none")}})
	want := []placed{{"both", f("clock", "off")}, {"here", f("limits", "1024 here")}, {"daemon", f("limits", "4096 there")}, {"daemon", f("peers", "none")}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
