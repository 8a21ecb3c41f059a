package agent

import (
	"testing"

	grpccodes "google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/wire"
)

func (n *testNode) adminClient(t testing.TB) *client.Admin {
	t.Helper()
	a, err := client.DialAdmin(t.Context(), n.cfg.Admin.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func verifyRequest(k wire.Key) *adminpb.VerifyBlockRequest {
	return &adminpb.VerifyBlockRequest{Key: k.String()}
}

func TestAdminSeesPeersBlocksTransfersAndFabrics(t *testing.T) {
	prefill, decode := pair(t)
	a, b := prefill.engine(t), decode.engine(t)
	keys := a.keys("prompt", 3)
	a.put(t, keys, 10<<10, wire.OutputCritical, 0)
	b.mustFetch(t, keys)
	c := decode.adminClient(t)
	st, err := c.Status(t.Context(), &adminpb.StatusRequest{})
	if err != nil || !st.Ready || st.PeersReady != 1 || st.EngineSessions != 1 || len(st.Engines) != 1 || st.Engines[0].Sessions != 1 || st.Engines[0].Namespaces != 1 || st.Arena.Blocks < 3 || st.Name != "decode" {
		t.Errorf("status %+v, %v", st, err)
	}
	peers, err := c.ListPeers(t.Context(), &adminpb.ListPeersRequest{})
	if err != nil || len(peers.Peers) != 1 || peers.Peers[0].State != adminpb.PeerState_PEER_STATE_READY || peers.Peers[0].Transport != "tcp" {
		t.Errorf("peers %+v, %v", peers, err)
	}
	block, err := c.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: keys[1].String()})
	if err != nil || block.Length != 10<<10 || block.HeaderTier != adminpb.Tier_TIER_OUTPUT_CRITICAL || block.Attest != adminpb.Attest_ATTEST_PRODUCER {
		t.Errorf("block %+v, %v", block, err)
	}
	ok, err := c.VerifyBlock(t.Context(), verifyRequest(keys[1]))
	if err != nil || !ok.Ok || ok.Want != block.Sum {
		t.Errorf("verify %+v, %v", ok, err)
	}
	tr, err := c.ListTransfers(t.Context(), &adminpb.ListTransfersRequest{})
	pulled := false
	for _, x := range tr.GetTransfers() {
		pulled = pulled || x.Op == "pull" && x.Direction == adminpb.Direction_DIRECTION_IN && x.Bytes == 3*10<<10 && x.Via == "tcp" && !x.Running
	}
	if err != nil || !pulled {
		t.Errorf("transfers %+v, %v: no pull of 3 blocks", tr, err)
	}
	fabrics, err := c.ListFabrics(t.Context(), &adminpb.ListFabricsRequest{})
	if err != nil || len(fabrics.Fabrics) != 1 || fabrics.Fabrics[0].Label != "link" || len(fabrics.Fabrics[0].Via) == 0 {
		t.Errorf("fabrics %+v, %v", fabrics, err)
	}
	probe, err := c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{})
	if err != nil || len(probe.Probes) != 1 || !probe.Probes[0].Ok || probe.Probes[0].Via != "tcp" || probe.Probes[0].GbytesPerSecond <= 0 {
		t.Errorf("probe %+v, %v", probe, err)
	}
}

func TestAdminErrorsCarryTheirCode(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	c := n.adminClient(t)
	for name, call := range map[string]struct {
		do   func() error
		code wire.Code
		grpc grpccodes.Code
	}{
		"unknown block": {func() error {
			_, err := c.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: wire.Key{7}.String()})
			return err
		}, wire.CodeAbsent, grpccodes.NotFound},
		"no key": {func() error {
			_, err := c.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: "xyz"})
			return err
		}, wire.CodeInvalid, grpccodes.InvalidArgument},
		"unknown peer": {func() error {
			_, err := c.ListPeers(t.Context(), &adminpb.ListPeersRequest{Name: "nobody"})
			return err
		}, wire.CodeAbsent, grpccodes.NotFound},
		"nothing to probe": {func() error {
			_, err := c.ProbeFabric(t.Context(), &adminpb.ProbeFabricRequest{})
			return err
		}, wire.CodeAbsent, grpccodes.NotFound},
	} {
		err := call.do()
		if d := adminpb.Detail(err); d == nil || wire.Code(d.Code) != call.code || d.Name != call.code.String() {
			t.Errorf("%s: detail %+v of %v, want %v", name, d, err, call.code)
		}
		if got := status.Code(err); got != call.grpc {
			t.Errorf("%s: %v, want %v", name, got, call.grpc)
		}
	}
}

func TestHealthServiceFollowsReadiness(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	n.ready(t)
	conn, err := grpc.NewClient("unix://"+n.cfg.Admin.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	h := healthpb.NewHealthClient(conn)
	until(t, "the health service says SERVING", func() bool {
		res, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: adminpb.Admin_ServiceDesc.ServiceName})
		return err == nil && res.Status == healthpb.HealthCheckResponse_SERVING
	})
	if err := n.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the health service says NOT_SERVING", func() bool {
		res, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && res.Status == healthpb.HealthCheckResponse_NOT_SERVING
	})
}

func TestDoctorNamesAPeerThatIsNotReady(t *testing.T) {
	n := startNode(t, shortDir(t), "decode", dialler("tcp://127.0.0.1:1", "prefill"))
	res, err := n.adminClient(t).Doctor(t.Context(), &adminpb.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]adminpb.Severity{}
	for _, f := range res.Findings {
		seen[f.Id] = f.Severity
	}
	if seen["peer.prefill"] != adminpb.Severity_SEVERITY_WARN || seen["blocks.leaked"] != adminpb.Severity_SEVERITY_OK {
		t.Errorf("findings %v", seen)
	}
}
