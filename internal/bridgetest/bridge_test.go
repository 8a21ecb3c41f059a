package bridgetest

import (
	"testing"

	"meridian/adapters/mooncake/realengine"
	"meridian/internal/testbed"
	"meridian/wire"
)

// A payload that a real process of Mooncake has made arrives at a real agent of NIXL, and
// one of that agent at the process of Mooncake, through one daemon. The header is the
// same at both ends.
func TestABlockGoesFromMooncakeToNIXLAndBack(t *testing.T) {
	t.Run("an engine has the namespace open", func(t *testing.T) { mooncakeAndNIXL(t, start, "") })
	t.Run("the configuration has it open", func(t *testing.T) {
		alone := func(t *testing.T, name, text string) *house { return startAlone(t, name, "32MiB", "1MiB", text) }
		mooncakeAndNIXL(t, alone, "[[namespace]]\ntenant = \"acme\"\nmodel = \"m\"\nrole = \"kv\"\nblock_tokens = 16\nblock_bytes = 262144\n")
	})
}

func mooncakeAndNIXL(t *testing.T, run func(t *testing.T, name, text string) *house, tables string) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := run(t, "house", mooncakeTable(m.Engine)+nixlTable(t, n)+tables+`
[[route]]
from = "mooncake"
fabric = "nixl"
[[route]]
from = "nixl"
fabric = "mooncake"
`)
	n.meet()
	there, back := keyOf("there"), keyOf("back")
	body := testbed.Content(50_000, 1)
	head := m.makes(body, wire.OutputCritical)
	m.brings(h, there, len(head)+len(body))
	same(t, "Mooncake to NIXL", append(head, body...), n.takes(there))

	payload := payloadOf(t, wire.ThinkActive, testbed.Content(70_000, 2))
	n.brings(back, payload)
	same(t, "NIXL to Mooncake", payload, m.takes(back))
	h.shows(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"} 1`)
	h.shows(`meridian_gateway_bytes_total{from="nixl",to="mooncake"} 70000`)
}
