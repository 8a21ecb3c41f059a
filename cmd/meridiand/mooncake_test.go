package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"meridian/internal/realpart"
)

// Mooncake's own benchmark as initiator, in both directions, against a daemon. What it
// writes is no block: nobody names it, and the window ends with the daemon.
func TestTransferEngineBenchReadsAndWritesADaemon(t *testing.T) {
	p := beginWith(t, `[security]
tenants = ["acme"]
[fabric.mooncake]
peers = ["bench=127.0.0.1:1"]
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
tenants = ["acme"]
window_bytes = "32MiB"
`)
	go func() { _, _ = io.Copy(io.Discard, p.logs) }()
	p.get(t, "/metrics")
	b, err := os.ReadFile(p.ports)
	if err != nil {
		t.Fatal(err)
	}
	var ports map[string][]string
	if err := json.Unmarshal(b, &ports); err != nil || len(ports["mooncake"]) == 0 {
		t.Fatalf("%s: %v", b, err)
	}
	segment := strings.TrimPrefix(ports["mooncake"][0], "mooncake://")
	for _, op := range []string{"read", "write"} {
		out, err := realpart.TransferBench(t, "--mode=initiator", "--segment_id="+segment, "--operation="+op,
			"--block_size=65536", "--batch_size=16", "--threads=2", "--buffer_size=33554432", "--duration=1").CombinedOutput()
		done := regexp.MustCompile(`Test completed: duration [0-9.]+, batch count ([1-9][0-9]*), throughput`).Find(out)
		if err != nil || done == nil {
			t.Fatalf("%s: %v\n%s", op, err, out)
		}
		t.Logf("%s: %s", op, done)
	}
	if page := p.get(t, "/readyz"); !strings.Contains(page, "ready") {
		t.Errorf("afterwards: %s", page)
	}
	p.stops(t)
}
