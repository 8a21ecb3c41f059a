package link

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page is what authors of other implementations have: a type or a limit that
// changes here and not there is a fork of the protocol.
func TestTheProtocolPageHasEveryTypeAndLimit(t *testing.T) {
	b, err := os.ReadFile("../../docs/spec/link-v1.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(b), ",", "") // numbers with thousands separators
	need := []string{helloMagic, "0x82F63B78",
		fmt.Sprintf("| DATA payload | %d KiB + %d |", MaxChunk>>10, DataPrefixLen),
		fmt.Sprintf("| control payload trailer included | %d MiB |", MaxControl>>20),
		fmt.Sprintf("| items a batch | %d |", MaxItems),
		fmt.Sprintf("| leases of one RELEASE | %d |", MaxLeases),
		fmt.Sprintf("| text | %d bytes |", MaxText),
		fmt.Sprintf("| manifest | %d bytes |", MaxManifest),
		fmt.Sprintf("requests that the sender takes at once: 1 to %d |", MaxReqs),
		fmt.Sprintf("items a batch: 1 to %d |", MaxItems),
		fmt.Sprintf("offset included: %d to %d |", MinFrame, MaxData),
		fmt.Sprintf("promised and not ended: 1 to %d |", MaxBytesInFlight),
		fmt.Sprintf("without lane 0: 0 to %d.", MaxLinger.Milliseconds()),
		fmt.Sprintf("| auth elements; bytes of one | %d; %d |", MaxTLVs, MaxTLV),
		fmt.Sprintf("| segments of one MAP | %d |", MaxSegs),
		fmt.Sprintf("| prompt tokens of BEGIN | %d |", MaxPrompt),
		fmt.Sprintf("| requests tokens of one TOKENS | %d; %d |", MaxRows, MaxTokens),
		fmt.Sprintf("| tokens of one PHASE | %d |", MaxInject),
		fmt.Sprintf("| prompt and decoded tokens of RESUME | %d |", MaxPrompt),
		fmt.Sprintf("| holders of one LOAD | %d |", MaxHolders),
		fmt.Sprintf("| tokens of one PHASEAT | %d |", MaxInject),
		fmt.Sprintf("| blocks of one EVICTED | %d |", MaxItems),
		fmt.Sprintf("| secret of a group | 0 or %d bytes |", GroupSecret),
		fmt.Sprintf("| reservation (RESERVE) | %.0f s |", MaxLease.Seconds()),
		fmt.Sprintf("| ranges of one WINDOW | %d |", MaxRanges),
		fmt.Sprintf("| lanes of a session | 1 + %d |", MaxLanes),
		fmt.Sprintf("| requests in flight a session and direction | %d ", MaxReqs),
		fmt.Sprintf("| body bytes in flight a session and direction | %d MiB ", MaxBytesInFlight>>20),
		fmt.Sprintf("| lease | %.0f s |", MaxLease.Seconds()),
		fmt.Sprintf("| deadline | %.0f s |", MaxDeadline.Seconds()),
		fmt.Sprintf("| namespaces of a session | %d |", MaxNamespaces),
		fmt.Sprintf("| sessions of a peer | %d |", MaxSessions),
		fmt.Sprintf("| connections before HELLO 4 in all; from one source | %d; %d unless configured otherwise |", HalfOpen, HalfOpenPerSource),
		fmt.Sprintf("| HELLO exchange | %.0f s |", HelloTimeout.Seconds()),
		fmt.Sprintf("| silence before PING; unanswered PINGs | %.0f s; %d |", PingEvery.Seconds(), MaxPings),
		fmt.Sprintf("| request without progress | %.0f s |", NoProgress.Seconds()),
		fmt.Sprintf("| session without lane 0 | %.0f s ", Linger.Seconds()),
		fmt.Sprintf("| reading on after ERROR | %.0f s |", DrainError.Seconds()),
	}
	for v := range 256 {
		if ty := Type(v); ty.Known() {
			lo, hi := ty.bounds()
			need = append(need, fmt.Sprintf("| %d | %v |", v, ty), fmt.Sprintf("| %d %v | %d | %d |", v, ty, lo, hi))
		}
	}
	for _, s := range need {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}
