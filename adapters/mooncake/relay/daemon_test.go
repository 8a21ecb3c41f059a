package relay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/adapters/mooncake/internal/realmeta"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/relay"
	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/internal/testbed"
	"meridian/internal/testdaemon"
	"meridian/wire"
)

// Two real engines, and one daemon with a relay in each direction. Neither engine knows
// more than the name of a segment.
func TestTwoRealEnginesThroughOneDaemon(t *testing.T) {
	const n = 8 << 20
	a, b := wheel.Start(t, 2*n), wheel.Start(t, 2*n)
	d := run(t, fmt.Sprintf(`
[fabric.to-a]
kind = "mooncake-relay"
target = "a=%s"
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
[fabric.to-b]
kind = "mooncake-relay"
target = "b=%s"
listen = "127.0.0.1:0"
data = "127.0.0.1:0"
allow = ["app=127.0.0.0/8"]
`, a.Name, b.Name))
	for _, way := range []struct {
		from, to *wheel.Engine
		relay    string
	}{{a, b, "to-b"}, {b, a, "to-a"}} {
		from, to, via := way.from, way.to, strings.TrimPrefix(d.Ports[way.relay][0], "mooncake://")
		if !from.Probe(via) || from.First(via) != to.Addr {
			t.Fatal("the probe, or the address of the first buffer")
		}
		from.Fill(0, n, 1)
		if !from.Move(wheel.Move{Peer: via, Write: true, Here: []int{0}, There: []uint64{to.Addr + n}, Sizes: []int{n}, Sender: "me", Notify: "there it is"}) {
			t.Fatal("the write failed")
		}
		if to.Digest(n, n) != from.Digest(0, n) {
			t.Error("other bytes were written")
		}
		if got := to.Notifies(); len(got) != 1 || got[0] != [2]string{"me", "there it is"} {
			t.Errorf("notifies %q", got)
		}
		to.Fill(0, n, 2)
		if !from.Move(wheel.Move{Peer: via, Here: []int{0}, There: []uint64{to.Addr}, Sizes: []int{n}}) {
			t.Fatal("the read failed")
		}
		if to.Digest(0, n) != from.Digest(0, n) {
			t.Error("other bytes were read")
		}
		if from.Move(wheel.Move{Peer: via, Write: true, Here: []int{0}, There: []uint64{to.Addr + 2*n - 8}, Sizes: []int{16}}) {
			t.Error("a write beyond the memory went well")
		}
	}
	knows(t, d, n)
}

// An engine without a pool opens a connection for each transfer of a batch.
func TestABatchOfARealEngineWithoutAPool(t *testing.T) {
	const n, size = 200, 4096
	a, b := wheel.Start(t, n*size, "MC_TCP_ENABLE_CONNECTION_POOL=0"), wheel.Start(t, n*size)
	d := run(t, fmt.Sprintf("[fabric.to-b]\nkind = \"mooncake-relay\"\ntarget = \"b=%s\"\nlisten = \"127.0.0.1:0\"\ndata = \"127.0.0.1:0\"\n", b.Name))
	m := wheel.Move{Peer: strings.TrimPrefix(d.Ports["to-b"][0], "mooncake://"), Write: true}
	for i := range n {
		m.Here, m.There, m.Sizes = append(m.Here, i*size), append(m.There, b.Addr+uint64(i*size)), append(m.Sizes, size)
	}
	a.Fill(0, n*size, 1)
	if !a.Move(m) || b.Digest(0, n*size) != a.Digest(0, n*size) {
		t.Error("the writes failed, or other bytes were written")
	}
	b.Fill(0, n*size, 2)
	m.Write = false
	if !a.Move(m) || b.Digest(0, n*size) != a.Digest(0, n*size) {
		t.Error("the reads failed, or other bytes were read")
	}
}

// With each kind of metadata server the relay has a name of its own there, and finds the
// target by its.
func TestTwoRealEnginesFindTheRelayOnAMetadataServer(t *testing.T) {
	const n = 1 << 20
	for _, server := range realmeta.Servers[1:] {
		t.Run(server.Name, func(t *testing.T) {
			at := server.Start(t)
			to := wheel.StartAt(t, n, "to", at)
			r, err := relay.New(t.Context(), relay.Config{
				Label: "way", Peer: "to", Target: "to", Server: at, Segment: "way", Epoch: 1, Here: true,
				Listen: "127.0.0.1:0", Data: relay.Ports{Host: "127.0.0.1"}, Refused: func(_ string, _ bool, err error) { t.Error(err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			plane, err := metadata.Open(metadata.Config{Server: at})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = plane.Close() }()
			testbed.Until(t, "the relay is found", func() bool {
				_, _, err := plane.Get(t.Context(), "way")
				return err == nil
			})
			from := wheel.StartAt(t, n, "from", at)
			from.Fill(0, n, 1)
			if from.First("way") != to.Addr || !from.Move(wheel.Move{Peer: "way", Write: true, Here: []int{0}, There: []uint64{to.Addr}, Sizes: []int{n}, Sender: "me", Notify: "there it is"}) {
				t.Error("the write failed")
			}
			if got := to.Notifies(); to.Digest(0, n) != from.Digest(0, n) || len(got) != 1 || got[0] != [2]string{"me", "there it is"} {
				t.Errorf("other bytes were written, or notifies are %q", got)
			}
			r.Drain(t.Context())
			if _, _, err := plane.Get(t.Context(), "way"); !errors.Is(err, wire.CodeAbsent) {
				t.Errorf("after the drain: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A real target is killed and comes back by the same name. A source that keeps what it
// knew of it, as engines do, reaches no new memory; one that asks anew does.
func TestARealTargetThatIsStartedAgain(t *testing.T) {
	const n = 1 << 20
	at := realmeta.Servers[1].Start(t)
	r, err := relay.New(t.Context(), relay.Config{
		Label: "way", Peer: "to", Target: "to", Server: at, Segment: "way", Epoch: 1, Here: true,
		Listen: "127.0.0.1:0", Data: relay.Ports{Host: "127.0.0.1"}, Refused: func(string, bool, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	plane, err := metadata.Open(metadata.Config{Server: at})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plane.Close() }()
	var port uint16
	await := func(what string) {
		testbed.Until(t, what, func() bool {
			d, _, err := plane.Get(t.Context(), "way")
			found := err == nil && d.DataPort != port
			if found {
				port = d.DataPort
			}
			return found
		})
	}
	write := func(from *wheel.Engine, addr uint64) bool {
		return from.Move(wheel.Move{Peer: "way", Write: true, Here: []int{0}, There: []uint64{addr}, Sizes: []int{n}})
	}
	to := wheel.StartAt(t, n, "to", at)
	await("the relay is found")
	from := wheel.StartAt(t, n, "from", at)
	from.Fill(0, n, 1)
	if !write(from, to.Addr) || to.Digest(0, n) != from.Digest(0, n) {
		t.Fatal("the first write")
	}
	to.Kill()
	again := wheel.StartAt(t, n, "to", at)
	before := again.Digest(0, n)
	await("the relay shows the new target")
	for _, addr := range []uint64{to.Addr, again.Addr} {
		if write(from, addr) {
			t.Errorf("a source that knew the target of before wrote to %#x", addr)
		}
	}
	if again.Digest(0, n) != before {
		t.Error("the new memory was written")
	}
	anew := wheel.StartAt(t, n, "anew", at)
	anew.Fill(0, n, 2)
	if !write(anew, again.Addr) || again.Digest(0, n) != anew.Digest(0, n) {
		t.Error("a source that asks anew")
	}
}

// knows compares what command line and metrics say of the relays.
func knows(t *testing.T, d *testdaemon.Daemon, n int) {
	t.Helper()
	adm, err := client.DialAdmin(t.Context(), d.Admin())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = adm.Close() }()
	list, err := adm.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{}
	for _, f := range list.GetFabrics() {
		peers[f.GetLabel()] = fmt.Sprint(f.GetPeers(), f.GetProbes())
	}
	if peers["to-a"] != "[a] true" || peers["to-b"] != "[b] true" {
		t.Errorf("fabrics %v", peers)
	}
	probes, err := adm.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{Fabric: "to-b"})
	if err != nil || len(probes.GetProbes()) != 1 || !probes.GetProbes()[0].GetOk() {
		t.Errorf("probes %v, %v", probes, err)
	}
	doctor, err := adm.Doctor(t.Context(), &adminpb.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]adminpb.Severity{}
	for _, f := range doctor.GetFindings() {
		found[f.GetId()] = f.GetSeverity()
	}
	for _, id := range []string{"to-a.target", "to-b.target", "to-b.memory", "to-b.advertised", "to-b.unacknowledged"} {
		if found[id] != adminpb.Severity_SEVERITY_OK {
			t.Errorf("%s is %v", id, found[id])
		}
	}
	metrics := d.Page("/metrics")
	for _, want := range []string{
		fmt.Sprintf("meridian_relay_bytes_total{direction=\"in\",fabric=\"to-b\",source=\"app\"} %g\n", float64(n)),
		fmt.Sprintf("meridian_relay_bytes_total{direction=\"out\",fabric=\"to-b\",source=\"app\"} %g\n", float64(n)),
		"meridian_relay_requests_total{fabric=\"to-b\",source=\"app\"} 2\n",
		"meridian_relay_notifies_total{fabric=\"to-b\",source=\"app\"} 1\n",
		"meridian_relay_refusals_total{fabric=\"to-b\",reason=\"INVALID\",source=\"app\"} 1\n",
		"meridian_relay_requests_total{fabric=\"to-a\",source=\"other\"} 2\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "meridian_relay_") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

// run runs a daemon with tables of fabrics, and waits until it is ready.
func run(t *testing.T, tables string) *testdaemon.Daemon {
	t.Helper()
	d := testdaemon.Start(t, tables)
	d.Ready(t)
	return d
}
