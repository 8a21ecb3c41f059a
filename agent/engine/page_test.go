package engine

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"meridian/scheduler"
)

// What PHASE may say stands on the protocol page: a kind or a reason that the
// scheduler gets and the page has not would reach engines unexplained.
func TestTheProtocolPageHasEveryKindAndReasonOfPhase(t *testing.T) {
	b, err := os.ReadFile("../../docs/spec/link-v1.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(b), "### PHASE")
	part, _, _ = strings.Cut(part, "### FINISH")
	_, part, found := strings.Cut(part, "| kind | what |")
	kinds, reasons, more := strings.Cut(part, "| reason | why |")
	if !found || !more {
		t.Fatal("the page has no table of kinds, or none of reasons")
	}
	for k := scheduler.EventKind(1); !strings.HasPrefix(k.String(), "event("); k++ {
		row := strings.Contains(kinds, fmt.Sprintf("\n| %d |", k))
		if sent := k != scheduler.Refused && k != scheduler.Offload; sent != row {
			t.Errorf("kind %d (%s): on the page %v, sent %v", k, k, row, sent)
		}
	}
	for r := scheduler.NoReason; !strings.HasPrefix(r.String(), "reason("); r++ {
		row := strings.Contains(reasons, fmt.Sprintf("\n| %d |", r))
		if sent := r != scheduler.Full && r != scheduler.Duplicate; sent != row {
			t.Errorf("reason %d (%s): on the page %v, sent %v", r, r, row, sent)
		}
	}
}
