package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"meridian/agent/adminpb"
	"meridian/agent/config"
	"meridian/agent/finding"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
)

// Every finding about the daemon's own state says OK and says why not.
func TestStateFindingsSayBothWays(t *testing.T) {
	up := []fabric.Peer{{Name: "p", State: fabric.PeerReady, Via: "tcp"}, {Name: "q", State: fabric.PeerIdle, Code: wire.CodeUnreachable, Text: "not needed yet"}}
	down := []fabric.Peer{{Name: "p", State: fabric.PeerRefused, Code: wire.CodeAuth, Text: "no proof"}}
	for id, c := range map[string]struct {
		sev       finding.Severity
		st        blocks.Stats
		checksums uint64
		peers     []fabric.Peer
		bridge    transfer.BridgeStats
	}{
		"blocks.leaked":         {finding.Err, blocks.Stats{Leaked: 1}, 0, up, transfer.BridgeStats{}},
		"blocks.live_evictions": {finding.Warn, blocks.Stats{LiveEvictions: 2}, 0, up, transfer.BridgeStats{}},
		"leases.aged":           {finding.Warn, blocks.Stats{AgedHolds: 3}, 0, up, transfer.BridgeStats{}},
		"arena.memory":          {finding.Warn, blocks.Stats{AheadRefused: 5}, 0, up, transfer.BridgeStats{}},
		"integrity.checksum":    {finding.Err, blocks.Stats{}, 4, up, transfer.BridgeStats{}},
		"gateway.loop":          {finding.Warn, blocks.Stats{}, 0, up, transfer.BridgeStats{Loops: 1, LoopFrom: "link/b"}},
		"gateway.expired":       {finding.Warn, blocks.Stats{}, 0, up, transfer.BridgeStats{Expired: 1}},
		"peer.p":                {finding.Warn, blocks.Stats{}, 0, down, transfer.BridgeStats{}},
	} {
		for _, f := range stateFindings(blocks.Stats{}, 0, transfer.BridgeStats{}, up) {
			if f.Severity != finding.OK || f.Fix != "" {
				t.Errorf("a healthy daemon: %+v", f)
			}
		}
		seen := false
		for _, f := range stateFindings(c.st, c.checksums, c.bridge, c.peers) {
			if want := f.ID == id; want != (f.Severity == c.sev) || want == (f.Severity == finding.OK) {
				t.Errorf("with %s bad: %+v", id, f)
			} else if want {
				seen = true
				if f.Fix == "" || f.Reason == "" || f.Subject == "" {
					t.Errorf("%s has no reason or fix: %+v", id, f)
				}
			}
		}
		if !seen {
			t.Errorf("%s is not among the findings", id)
		}
	}
}

// What is served and what is documented are the same, in name and type.
func TestEveryServedSeriesIsDocumentedWithItsType(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("k", 2)
	a.put(t, keys, 4<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	doc := MetricsMarkdown()
	served := 0
	for line := range strings.Lines(decode.get(t, "/metrics")) {
		var name, kind string
		if n, _ := fmt.Sscanf(line, "# TYPE %s %s", &name, &kind); n != 2 || !strings.HasPrefix(name, "meridian_") {
			continue
		}
		served++
		if !strings.Contains(doc, fmt.Sprintf("| `%s` | %s |", name, kind)) {
			t.Errorf("%s, a %s, is not documented as such", name, kind)
		}
	}
	if served < 20 {
		t.Errorf("only %d series are served", served)
	}
}

func TestUnreadyNamesEachReason(t *testing.T) {
	n := startNode(t, shortDir(t), "decode", dialler("tcp://127.0.0.1:1", "prefill"))
	until(t, "the arena is tested", func() bool { return len(n.unready()) == 1 })
	code, body := n.getCode(t, "/readyz")
	if code != 503 || !strings.Contains(body, "peers.too_few: 0 of 1 peers") {
		t.Errorf("/readyz: %d %q", code, body)
	}
	st, err := n.adminClient(t).Status(t.Context(), &adminpb.StatusRequest{})
	if err != nil || st.Ready || len(st.Reasons) != 1 || st.Reasons[0].Id != "peers.too_few" {
		t.Errorf("status %+v, %v", st, err)
	}
	n.selftest.mu.Lock()
	n.selftest.arena = wire.CodeChecksum
	n.selftest.mu.Unlock()
	if _, body := n.getCode(t, "/readyz"); !strings.Contains(body, "selftest.arena") {
		t.Errorf("with a broken arena: %q", body)
	}
	if v, _ := n.series(t, "meridian_ready"); v != "0" {
		t.Errorf("meridian_ready is %q", v)
	}
}

// A path that was tested for an earlier incarnation was not tested.
func TestReadinessForgetsTheTestOfAnEarlierIncarnation(t *testing.T) {
	_, decode := pair(t)
	decode.selftest.mu.Lock()
	r := decode.selftest.paths["link/prefill"]
	r.inc--
	decode.selftest.paths["link/prefill"] = r
	decode.selftest.mu.Unlock()
	decode.selftest.poke()
	until(t, "it was tested again", func() bool {
		r, ok := decode.selftest.path("link/prefill")
		return ok && r.inc == decode.node.Peers()[0].Inc
	})
	if v, _ := decode.series(t, `meridian_peer_incarnation_changes_total{peer="prefill"}`); v != "1" {
		t.Errorf("%q incarnation changes, want 1", v)
	}
}

type fullPeer struct{ code wire.Code }

func (p fullPeer) Probe(context.Context, string) (via string, gbps float64, err error) {
	return "tcp", 0, &fabric.Error{Code: p.code, Fabric: "x", Text: "the arena"}
}

// A peer whose arena is full of blocks that somebody may want evicts none for a test: the
// path to it works, and is tried again now and then.
func TestAFullPeerDoesNotMakeTheDaemonUnready(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	n.ready(t)
	s := newSelfTest()
	for name, code := range map[string]wire.Code{"x/full": wire.CodeFull, "x/broken": wire.CodeChecksum} {
		s.record(t.Context(), n.Agent, path{name: name, inc: 7, pr: fullPeer{code}})
	}
	ready, failed := s.judge([]path{{name: "x/full", inc: 7}, {name: "x/broken", inc: 7}}, true)
	if ready != 1 || len(failed) != 1 || !strings.HasPrefix(failed[0].text, "broken: ") {
		t.Errorf("%d ready, failed %v", ready, failed)
	}
	if !strings.Contains(n.log.String(), "has no room for the self-test's block") {
		t.Error("nothing is said of it")
	}
	full := s.paths["x/full"]
	for after, want := range map[time.Duration]bool{selfTestEvery: false, fullAgain: true} {
		if _, ok := s.begin(path{name: "x/full", inc: 7}, full.at.Add(after)); ok != want {
			t.Errorf("tested again after %v: %t", after, ok)
		}
		delete(s.busy, "x/full")
	}
}

// A peer that lends other memory than was tested has its path tested again, whatever the
// test of the memory before has said.
func TestOtherMemoryIsTestedToo(t *testing.T) {
	for what, last := range map[string]pathResult{"worked": {}, "was full": {full: true}, "failed": {err: wire.CodeUnreachable}} {
		s := newSelfTest()
		last.inc, last.lent, last.at = 7, lent{4096, 1 << 20}, time.Now()
		s.paths["x/peer"] = last
		then := last.at.Add(selfTestEvery)
		for _, now := range []lent{{8192, 1 << 20}, {4096, 1 << 21}, {}} {
			if restarted, ok := s.begin(path{name: "x/peer", inc: 7, lent: now}, then); restarted || !ok {
				t.Errorf("what %s, now %v: restarted %t, tested %t", what, now, restarted, ok)
			}
			delete(s.busy, "x/peer")
		}
		if _, ok := s.begin(path{name: "x/peer", inc: 7, lent: last.lent}, then); ok != (last.err != nil) {
			t.Errorf("what %s is tested again as it is: %t", what, ok)
		}
	}
}

func TestOnlyAPathTestedForThisIncarnationCounts(t *testing.T) {
	s := newSelfTest()
	s.paths["link/works"] = pathResult{inc: 7}
	s.paths["link/restarted"] = pathResult{inc: 6}
	s.paths["link/broken"] = pathResult{inc: 7, err: wire.CodeChecksum}
	s.paths["link/broken before"] = pathResult{inc: 6, err: wire.CodeChecksum}
	var peers []path
	for _, name := range []string{"works", "restarted", "broken", "broken before", "new"} {
		peers = append(peers, path{name: "link/" + name, inc: 7})
	}
	ready, failed := s.judge(peers, true)
	if ready != 1 || len(failed) != 1 || failed[0].id != "selftest.link" || !strings.HasPrefix(failed[0].text, "broken: ") {
		t.Errorf("%d ready, failed %v; want one of each: works, broken", ready, failed)
	}
}

func TestThePeerLabelIsBounded(t *testing.T) {
	m := newMetrics("", "")
	for i := range maxPeerLabels {
		if name := fmt.Sprint(i); m.peer(name) != name {
			t.Fatalf("peer %d has no label of its own", i)
		}
	}
	if m.peer("one more") != "other" || m.peer("7") != "7" {
		t.Error("the label peer is not bounded, or forgets")
	}
}

// systemdSocket stands in for systemd.
func systemdSocket(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func hear(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 256)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestTheWatchdogReportsOnlyWhileTheStoreAnswers(t *testing.T) {
	path := filepath.Join(shortDir(t), "notify")
	c := systemdSocket(t, path)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	if got := watchdogEvery(); got != time.Millisecond {
		t.Errorf("every %v, want half of 2 ms", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var asked, before int
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watchdog(ctx, func() bool { asked++; return asked > 3 })
	}()
	if got := hear(t, c); got != "WATCHDOG=1" {
		t.Errorf("systemd hears %q", got)
	}
	stop()
	<-ended
	if before = asked; before < 4 {
		t.Errorf("reported after %d questions, three of which had no answer", before)
	}
	t.Setenv("WATCHDOG_PID", "1")
	if watchdogEvery() != 0 {
		t.Error("another process's watchdog is served")
	}
	watchdog(t.Context(), func() bool { t.Error("asked without a watchdog"); return true }) // returns at once
}

func TestNotifyKnowsAbstractSocketsAndTheirAbsence(t *testing.T) {
	name := "meridian-test-" + filepath.Base(shortDir(t))
	c := systemdSocket(t, "@"+name)
	t.Setenv("NOTIFY_SOCKET", "@"+name)
	if err := notify("READY=1"); err != nil || hear(t, c) != "READY=1" {
		t.Errorf("abstract socket: %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if notify("READY=1") == nil {
		t.Error("nobody listens, and no error")
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify("READY=1"); err != nil {
		t.Errorf("without systemd: %v", err)
	}
}

// Many daemons that start at once in one folder keep one id, and leave one file.
func TestTheIdentityIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	ids := make([][16]byte, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			id, err := newIdentity(config.Agent{Name: "n", StateDir: dir}, time.Now())
			if err != nil {
				t.Error(err)
			}
			ids[i] = id.agent
		})
	}
	wg.Wait()
	if len(slices.Compact(ids)) != 1 || ids[0] == [16]byte{} {
		t.Errorf("ids %x", ids)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
	if id, err := newIdentity(config.Agent{ID: strings.Repeat("ab", 16)}, time.Now()); err != nil || id.agent[0] != 0xab {
		t.Errorf("an id from the configuration: %x, %v", id.agent, err)
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	conn, err := grpc.NewClient("unix://"+n.cfg.Admin.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range res.GetListServicesResponse().GetService() {
		names = append(names, x.Name)
	}
	for _, want := range []string{adminpb.Admin_ServiceDesc.ServiceName, "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
}
