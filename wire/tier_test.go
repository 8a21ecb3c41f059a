package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestTierNames(t *testing.T) {
	for tier, name := range map[Tier]string{0: "ThinkComplete", 1: "ThinkActive", 2: "OutputCritical", 3: "tier 3", 255: "tier 255"} {
		if tier.String() != name {
			t.Errorf("tier %d is %q, want %q", uint8(tier), tier, name)
		}
	}
	for text, want := range map[string]Tier{
		"ThinkComplete": ThinkComplete, "think_active": ThinkActive, "OUTPUT-CRITICAL": OutputCritical, "0": 0, "1": 1, "2": 2,
	} {
		if got, err := ParseTier(text); err != nil || got != want {
			t.Errorf("ParseTier(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "3", "-1", "00", "think", "tier 0"} {
		if _, err := ParseTier(text); !errors.Is(err, CodeInvalid) || !strings.Contains(err.Error(), "OutputCritical") {
			t.Errorf("ParseTier(%q): %v", text, err)
		}
	}
}

func TestAttestNames(t *testing.T) {
	for a, name := range map[Attest]string{AttestNone: "none", AttestIngest: "ingest", AttestProducer: "producer", 7: "attest 7"} {
		if a.String() != name {
			t.Errorf("attest %d is %q, want %q", uint8(a), a, name)
		}
	}
	if (Attest(0)) != AttestNone {
		t.Error("the zero value vouches for bytes")
	}
}
