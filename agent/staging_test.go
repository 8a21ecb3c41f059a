package agent

import (
	"testing"

	"meridian/agent/client"
)

// Engines that connect and open a namespace, one after the other and all at once,
// take no memory beyond kv_memory.capacity_bytes, whatever engine.staging_bytes is.
func TestConnectingEnginesTakeNoMemoryBeyondTheCapacity(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	most := n.cfg.KVMemory.Capacity
	fits := 0
	for range 10 {
		c, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Open(t.Context(), testManifest("acme")); err == nil {
			fits++
		}
		if st := n.store.Stats(); st.StagingBytes+st.SegmentBytes > most {
			t.Fatalf("%d bytes of rings and %d of segments, kv_memory.capacity_bytes is %d", st.StagingBytes, st.SegmentBytes, most)
		}
	}
	if fits < 4 {
		t.Errorf("only %d engines found room for a ring", fits)
	}
}
