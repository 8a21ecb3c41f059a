package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"meridian/agent/adminpb"
	"meridian/wire"
)

const (
	goodKey   = "0f3c000000000000000000000000000000000000000000000000000000000001"
	absentKey = "0f3c000000000000000000000000000000000000000000000000000000000002"
	badKey    = "0f3c000000000000000000000000000000000000000000000000000000000003"
)

// daemon is an admin server with one of everything.
type daemon struct {
	adminpb.UnimplementedAdminServer
	notReady atomic.Int32     // so many Status calls say no
	asked    func(left int32) // at each Status; nil: nothing
	err      error            // what every call but Status answers; nil: a real answer
	probes   []*adminpb.Probe
	fabrics  []*adminpb.Fabric // nil: those of ListFabrics
	peers    []*adminpb.Peer   // nil: those of ListPeers
	findings []*adminpb.Finding
	hang     bool // calls last until the caller gives up
}

// answer lets every call through, or hang.
func (d *daemon) answer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if d.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return next(ctx, req)
}

func (d *daemon) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if d.hang {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return next(srv, s)
}

func (d *daemon) Status(context.Context, *adminpb.StatusRequest) (*adminpb.StatusResponse, error) {
	r := &adminpb.StatusResponse{
		Name: "decode-1", Agent: "000102030405060708090a0b0c0d0e0f", Incarnation: 7, Version: "v0.3.0", WireVersion: 1, LinkVersion: 1,
		Pid: 42, UptimeMs: 61_000, Ready: true, Drain: adminpb.DrainState_DRAIN_STATE_SERVING,
		Ports:      []*adminpb.Port{{Kind: "link", Address: "tcp://127.0.0.1:7400"}},
		PeersReady: 1, PeersConfigured: 2,
		Arena: &adminpb.ArenaUsage{CapacityBytes: 1 << 30, UsedBytes: 3 << 20, Blocks: 12, CapacityNote: "auto",
			Tiers: []*adminpb.TierUsage{{Tier: adminpb.Tier_TIER_OUTPUT_CRITICAL, Blocks: 12, Bytes: 3 << 20, Evictions: 1}}},
	}
	left := d.notReady.Add(-1)
	if d.asked != nil {
		d.asked(left)
	}
	if left >= 0 {
		r.Ready, r.Reasons = false, []*adminpb.Reason{{Id: "peers.too_few", Text: "0 of 1"}}
	}
	return r, nil
}

func (d *daemon) ListPeers(_ context.Context, r *adminpb.ListPeersRequest) (*adminpb.ListPeersResponse, error) {
	out := &adminpb.ListPeersResponse{}
	peers := []*adminpb.Peer{
		{Name: "prefill-1", State: adminpb.PeerState_PEER_STATE_READY, Transport: "tcp", Lanes: 4, RttNs: 16_543, Address: "tcp://127.0.0.1:7401", Tenants: []string{"acme"}},
		{Name: "prefill-2", State: adminpb.PeerState_PEER_STATE_REFUSED, ReasonCode: 109, Reason: "dtype: ours f16, theirs bf16\x1b[2J"},
	}
	if d.peers != nil {
		peers = d.peers
	}
	for _, p := range peers {
		if r.GetName() == "" || r.GetName() == p.GetName() {
			out.Peers = append(out.Peers, p)
		}
	}
	return out, d.err
}

func (d *daemon) ListBlocks(r *adminpb.ListBlocksRequest, s grpc.ServerStreamingServer[adminpb.Block]) error {
	for i := range r.GetLimit() {
		if i == 3 {
			break
		}
		if err := s.Send(&adminpb.Block{Key: goodKey, Tier: max(r.GetTier(), adminpb.Tier_TIER_THINK_COMPLETE), Where: "arena", Length: 16384, Attest: adminpb.Attest_ATTEST_PRODUCER}); err != nil {
			return err
		}
	}
	return d.err
}

func (d *daemon) StatBlock(_ context.Context, r *adminpb.StatBlockRequest) (*adminpb.Block, error) {
	if r.GetKey() == absentKey {
		return nil, adminpb.Error(&adminpb.ErrorDetail{Code: 100, Name: "ABSENT", Fix: "compute it, or ask another holder"}, "block "+r.GetKey()+" is not here")
	}
	return &adminpb.Block{Key: r.GetKey(), Tier: adminpb.Tier_TIER_OUTPUT_CRITICAL, Where: "arena", Length: 16384, Attest: adminpb.Attest_ATTEST_INGEST}, d.err
}

func (d *daemon) VerifyBlock(_ context.Context, r *adminpb.VerifyBlockRequest) (*adminpb.VerifyBlockResponse, error) {
	return &adminpb.VerifyBlockResponse{Ok: r.GetKey() != badKey, Want: "aa", Got: "bb", Length: 16384, DurationNs: 4321}, d.err
}

func (d *daemon) ListTransfers(_ context.Context, r *adminpb.ListTransfersRequest) (*adminpb.ListTransfersResponse, error) {
	out := &adminpb.ListTransfersResponse{Transfers: []*adminpb.Transfer{
		{Id: 2, Running: true, Peer: "prefill-1", Direction: adminpb.Direction_DIRECTION_IN, Op: "pull", Via: "tcp", Bytes: 1 << 20, Items: 64, AgeMs: 12},
	}}
	if !r.GetRunningOnly() {
		out.Transfers = append(out.Transfers, &adminpb.Transfer{Id: 1, Peer: "prefill-1", Direction: adminpb.Direction_DIRECTION_OUT, Op: "push", Via: "tcp", DurationNs: 1e6, Bytes: 1e6, Code: 200})
	}
	return out, d.err
}

func (d *daemon) ListNamespaces(context.Context, *adminpb.ListNamespacesRequest) (*adminpb.ListNamespacesResponse, error) {
	return &adminpb.ListNamespacesResponse{Namespaces: []*adminpb.Namespace{
		{Namespace: "5e1f", Tenant: "acme", Model: "m", Role: "kv", BlockBytes: 1 << 20, Configured: true, Engines: 2, Peers: []string{"b", "c"}, Manifest: "block_bytes=1048576\n"},
		{Namespace: "77aa", Tenant: "acme", Model: "n", Role: "kv", BlockBytes: 4096},
	}}, d.err
}

func (d *daemon) ListFabrics(context.Context, *adminpb.ListFabricsRequest) (*adminpb.ListFabricsResponse, error) {
	if d.fabrics != nil {
		return &adminpb.ListFabricsResponse{Fabrics: d.fabrics}, d.err
	}
	return &adminpb.ListFabricsResponse{Fabrics: []*adminpb.Fabric{{Label: "link", Enabled: true, Via: []string{"tcp"}, Verified: true, Probes: true}, {Label: "nixl", Reason: "not in this build"}}}, d.err
}

func (d *daemon) ListRoutes(context.Context, *adminpb.ListRoutesRequest) (*adminpb.ListRoutesResponse, error) {
	return &adminpb.ListRoutesResponse{Routes: []*adminpb.RouteState{
		{Route: &adminpb.Route{From: "nixl", Fabric: "mooncake"}, Text: "from=nixl -> prefer mooncake", Taken: 12, Passed: 3, Origin: "file"},
	}}, d.err
}

func (d *daemon) ExplainRoute(_ context.Context, q *adminpb.RouteQuery) (*adminpb.ExplainRouteResponse, error) {
	out := &adminpb.ExplainRouteResponse{Steps: []*adminpb.RouteStep{{Text: "from=nixl -> prefer mooncake", Chosen: true, Reason: "matches, and the fabric can take the block"}}, Fabric: "mooncake", Peer: "app"}
	switch q.GetFrom() {
	case "link":
		return &adminpb.ExplainRouteResponse{Steps: out.Steps, Code: 207, Text: "no route is left"}, d.err
	case "nixl":
		out.Wanted, out.Text = "link", "UNREACHABLE: no peer is ready"
	}
	return out, d.err
}

func (d *daemon) TestRoute(_ context.Context, q *adminpb.RouteQuery) (*adminpb.TestRouteResponse, error) {
	failed := &adminpb.RouteAttempt{Fabric: "link", Peer: "b", Code: 207, Text: "no lane"}
	if q.GetFrom() == "link" {
		return &adminpb.TestRouteResponse{Attempts: []*adminpb.RouteAttempt{failed}, Code: 207, Text: "no route is left"}, d.err
	}
	if q.GetFrom() == "bad" {
		failed.Code = 104
	}
	return &adminpb.TestRouteResponse{Attempts: []*adminpb.RouteAttempt{failed, {Fabric: "mooncake", Peer: "app", Ok: true, Via: "tcp", DurationNs: 1_500_000, GbytesPerSecond: 0.5}}}, d.err
}

func (d *daemon) AddRoute(_ context.Context, r *adminpb.AddRouteRequest) (*adminpb.AddRouteResponse, error) {
	return &adminpb.AddRouteResponse{Toml: "[[route]]\ntier = \"" + r.GetRoute().GetTier() + "\"\nfabric = \"" + r.GetRoute().GetFabric() + "\"\n"}, d.err
}

func (d *daemon) ProbeFabric(context.Context, *adminpb.ProbeFabricRequest) (*adminpb.ProbeFabricResponse, error) {
	return &adminpb.ProbeFabricResponse{Probes: d.probes}, d.err
}

func (d *daemon) ListMetadata(context.Context, *adminpb.ListMetadataRequest) (*adminpb.ListMetadataResponse, error) {
	return &adminpb.ListMetadataResponse{Count: 3, Entries: []*adminpb.Metadata{
		{Fabric: "hub", Name: "decode-0", Label: "metadata", From: "10.0.0.1:40312", Pid: 4242, AgeMs: 61_000, Bytes: 427, Alive: true},
		{Fabric: "hub", Name: "decode-1", Label: "metadata", From: "10.0.0.2:40312", Pid: 7, AgeMs: 500, Bytes: 427},
	}}, d.err
}

func (d *daemon) Topology(context.Context, *adminpb.TopologyRequest) (*adminpb.TopologyResponse, error) {
	return &adminpb.TopologyResponse{
		Devices: []*adminpb.Device{
			{Name: "mlx5_0:1", Kind: "infiniband", Driver: "mlx5_core", State: "active", Up: true, BitsPerSecond: 400e9, NumaNode: 1, Addresses: []string{"10.0.0.1"}, GpuDistances: []string{"on the same NUMA node"}},
			{Name: "enp193s0f0np0", Kind: "ethernet", Driver: "mlx5_core", State: "up", Up: true, BitsPerSecond: 2500e6, NumaNode: -1, Addresses: []string{"10.0.0.2", "2001:db8:1234:5678:9abc:def0:1234:5678"}, GpuDistances: []string{"at an unknown distance"}},
			{Name: "lo", Kind: "loopback", State: "unknown", NumaNode: -1, Virtual: true, GpuDistances: []string{"at an unknown distance"}},
		},
		Gpus:      []*adminpb.GPU{{Pci: "0000:91:00.0", Name: "NVIDIA H200", MemoryBytes: 141 << 30, NumaNode: 1}},
		GpuDriver: "570.1", File: "/etc/meridian/topology.toml", NumaNodes: 2, Notes: []string{"the topology file overrides mlx5_0:1: NUMA node 1"},
		Choice: &adminpb.DeviceChoice{
			Devices: "mlx5_0:1", NumaNode: 1, Advertise: "10.0.0.1", Overridden: true,
			Reasons:  []string{"the topology file /etc/meridian/topology.toml overrides the choice"},
			Rejected: []*adminpb.DeviceRejection{{Device: "enp193s0f0np0", Why: "on another NUMA node from the GPUs, and mlx5_0:1 is on the same NUMA node\x1b[2J"}, {Device: "lo", Why: "loopback reaches this host only"}},
		},
		Uses: []*adminpb.DeviceUse{{Fabric: "nixl", Devices: "auto", TakesChoice: true}, {Fabric: "other", Devices: "lo"}},
	}, d.err
}

// ReadObject answers what the key says.
func (d *daemon) ReadObject(r *adminpb.ReadObjectRequest, s grpc.ServerStreamingServer[adminpb.ObjectPart]) error {
	parts := []*adminpb.ObjectPart{
		{Size: 6, Verification: adminpb.Verification_VERIFICATION_UNVERIFIED}, {Data: []byte("opa")}, {Data: []byte("que")},
	}
	switch r.GetKey() {
	case "proved":
		parts[0].Verification = adminpb.Verification_VERIFICATION_CRC64
	case "longer":
		parts = append(parts, parts[1])
	case "shorter":
		parts = parts[:2]
	case "huge":
		parts[0].Size = 1 << 60
	case "absent":
		return adminpb.Error(&adminpb.ErrorDetail{Code: 100, Name: "ABSENT", Fix: absentFix}, "attic: no such object (-704)")
	}
	for _, p := range parts {
		if err := s.Send(p); err != nil {
			return err
		}
	}
	return d.err
}

func (d *daemon) Reload(_ context.Context, r *adminpb.ReloadRequest) (*adminpb.ReloadResponse, error) {
	out := &adminpb.ReloadResponse{File: "/etc/meridian.toml", Restart: []*adminpb.Change{{Key: "link.lanes", Old: "2", New: "4", What: "changed"}}}
	out.Applied = []*adminpb.Change{{Key: "link.psk", What: "changed"}}
	return out, d.err
}

func (d *daemon) Doctor(context.Context, *adminpb.DoctorRequest) (*adminpb.DoctorResponse, error) {
	return &adminpb.DoctorResponse{Findings: d.findings}, d.err
}

func newDaemon() *daemon {
	return &daemon{
		probes:   []*adminpb.Probe{{Fabric: "link", Peer: "prefill-1", Ok: true, Via: "tcp", GbytesPerSecond: 3.25}},
		findings: []*adminpb.Finding{{Id: "limits.nofile", Severity: adminpb.Severity_SEVERITY_OK, Subject: "RLIMIT_NOFILE", Reason: "enough"}},
	}
}

// outcome is what one run of the command line did.
type outcome struct {
	exit     int
	out, err string
}

// shell runs command lines against one daemon.
type shell struct {
	socket   string
	engine   *engineDouble
	env      []string
	terminal bool
	in       string
	stdin    io.Reader     // instead of in
	grace    time.Duration // as app's
}

func newShell(t *testing.T, d *daemon) *shell {
	t.Helper()
	t.Chdir(t.TempDir()) // no meridian.toml of the source tree, and files land here
	s := &shell{socket: filepath.Join(t.TempDir(), "a.sock"), engine: &engineDouble{}}
	if d == nil {
		return s
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(d.answer), grpc.StreamInterceptor(d.stream))
	adminpb.RegisterAdminServer(g, d)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return s
}

func (s *shell) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return s.runIn(t.Context(), args...)
}

func (s *shell) runIn(ctx context.Context, args ...string) outcome {
	var out, err bytes.Buffer
	var in io.Reader = strings.NewReader(s.in)
	if s.stdin != nil {
		in = s.stdin
	}
	a := &app{
		in: in, out: &out, err: &err, terminal: s.terminal, grace: s.grace,
		env:      append([]string{"MERIDIAN_ADMIN_SOCKET=" + s.socket, "MERIDIAN_ENGINE_SOCKET=engine.sock"}, s.env...),
		pollEach: time.Millisecond,
		dialEngine: func(ctx context.Context, _ string, m wire.Manifest) (engine, error) {
			if s.engine.hang {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if s.engine.dialErr != nil {
				return nil, s.engine.dialErr
			}
			s.engine.ns = m.Namespace()
			return s.engine, nil
		},
	}
	exit := a.run(ctx, args)
	return outcome{exit, out.String(), err.String()}
}

// engineDouble is an engine's socket with blocks in a map.
type engineDouble struct {
	ns      wire.Namespace
	blocks  map[wire.Key]stored
	dialErr error
	corrupt bool // bodies come out with a bit turned
	hang    bool // dialling lasts until the caller gives up
	fetched bool // the last Get was allowed to ask peers
}

type stored struct {
	head wire.Header
	body []byte
}

func (e *engineDouble) Namespace() wire.Namespace { return e.ns }
func (e *engineDouble) Close() error              { return nil }

func (e *engineDouble) Put(_ context.Context, key wire.Key, tier wire.Tier, body []byte) error {
	if _, ok := e.blocks[key]; ok {
		return wire.CodeExists
	}
	if e.blocks == nil {
		e.blocks = map[wire.Key]stored{}
	}
	e.blocks[key] = stored{wire.Header{BodyLen: uint32(len(body)), Tier: tier, Sum: wire.SumOf(body)}, bytes.Clone(body)}
	return nil
}

func (e *engineDouble) Get(_ context.Context, key wire.Key, fetch bool) (wire.Header, []byte, error) {
	e.fetched = fetch
	s, ok := e.blocks[key]
	if !ok {
		return wire.Header{}, nil, wire.CodeAbsent
	}
	body := bytes.Clone(s.body)
	if e.corrupt {
		body[0] ^= 1
	}
	return s.head, body, nil
}
