package bridgetest

import (
	"fmt"
	"testing"

	"meridian/wire"
)

// large is a namespace of blocks that go on while they come.
var large = wire.Manifest{Tenant: "acme", Model: "m", Role: "large", BlockTokens: 16, BlockBytes: 4 << 20}

func largeKey(name string) wire.Key { return wire.KeyOf(large.Namespace(), []byte(name)) }

const roomy = "[gateway]\nqueue_bytes = \"64MiB\"\n"

// through is a counter of the blocks that went on while they came.
func through(outcome string, n int) string {
	return fmt.Sprintf(`meridian_gateway_cut_through_total{from="link",outcome=%q,to="link"} %d`, outcome, n)
}

// A large block goes from one daemon through another to a third while it comes, with the
// same header and body, and is shown as such.
func TestABlockGoesOnWhileItComes(t *testing.T) {
	far := startSized(t, "far", "64MiB", "16MiB", large, listens("house"))
	h := startSized(t, "house", "64MiB", "16MiB", large, dials(far)+"[[link.peer]]\nname = \"edge\"\ntenants = [\"acme\"]\n"+roomy+
		"[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"far\"\n")
	edge := startSized(t, "edge", "64MiB", "16MiB", large, dials(h)+writesThrough)
	edge.meets("house")
	h.meets("far")
	for i := range 3 {
		key, body := largeKey(fmt.Sprint("b", i)), content(4<<20-i, uint64(i))
		edge.store(key, body)
		same(t, "link to link", payloadOf(t, wire.OutputCritical, body), far.holds(key))
	}
	h.shows(through("forwarded", 3))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="link"} 3`)
	h.showsTransfer("link", "out", "cut-through")
}
