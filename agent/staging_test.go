package agent

import (
	"testing"

	"meridian/agent/client"
	"meridian/wire"
)

// Engines that connect and open a namespace take nothing of the arena. Those that
// put, one after the other and all at once, take no memory beyond
// kv_memory.capacity_bytes, whatever engine.staging_bytes is.
func TestEnginesTakeNoMemoryBeyondTheCapacity(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "[quota]\nprocess_engines = 10\n") // all are one process
	most := n.cfg.KVMemory.Capacity
	fits := 0
	for i := range 10 {
		c, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		before := n.store.Stats().StagingBytes
		ns, err := c.Open(t.Context(), testManifest("acme"))
		if now := n.store.Stats().StagingBytes; err != nil || now != before {
			t.Errorf("opening a namespace took %d bytes, %v", now-before, err)
		}
		if c.Put(t.Context(), []client.Block{{NS: ns, Key: wire.Key{1, byte(i)}, Body: []byte{1}}})[0] == nil {
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
