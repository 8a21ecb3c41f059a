package nixl_test

import (
	"strings"
	"testing"

	"meridian/adapters/nixl/internal/wheel"
)

// at is the address of a kind that the daemon says it listens at.
func (h *house) at(fabric, scheme string) string {
	h.t.Helper()
	for _, a := range h.ports[fabric] {
		if addr, ok := strings.CutPrefix(a, scheme); ok {
			return addr
		}
	}
	h.t.Fatalf("no %s of %s in %v", scheme, fabric, h.ports)
	return ""
}

// An unmodified agent sends its metadata to the daemon's own listener. One that has a
// listener itself gets the daemon's by the same connection; it may fetch them too.
func TestADaemonSharesBlocksWithAnAgentThatSendsItsMetadata(t *testing.T) {
	a := &app{Agent: wheel.Listen(t, "app", 8<<20), t: t}
	h := newHouse(t, nixlTable(t, "app=listener://app", `listen = "127.0.0.1:0"`))
	at := h.at("nixl", "nixl://")
	a.Send(at)
	sharesBlocks(t, a, h, func(from string) { a.Fetch(from, at) })
}
