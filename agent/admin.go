package agent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"meridian/agent/adminpb"
	"meridian/agent/config"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
	proto "meridian/wire/link"
)

const (
	defaultBlocks    = 1000
	defaultTransfers = 100
)

// adminServer is adminpb's service.
type adminServer struct {
	adminpb.UnimplementedAdminServer
	a       *Agent
	reader  *objectReader
	looking chan struct{} // at the devices of the host
}

// adminError turns an error with a code into one of the API.
func adminError(err error) error {
	c := wire.CodeOf(err)
	info, _ := wire.LookupCode(fmt.Sprint(uint16(c)))
	return adminpb.Error(&adminpb.ErrorDetail{Code: uint32(c), Name: info.Name, Fix: info.Fix}, err.Error())
}

// unknownName is the answer to a name that is none of those there are.
func unknownName(what, name string, names []string) error {
	fix := fmt.Sprintf("there is no %s here", what)
	if len(names) > 0 {
		slices.Sort(names)
		fix = fmt.Sprintf("the names are %s", strings.Join(slices.Compact(names), ", "))
	}
	if n, ok := config.Nearest(name, names); ok {
		fix = fmt.Sprintf("did you mean %s? %s", n, fix)
	}
	return adminpb.Error(&adminpb.ErrorDetail{Code: uint32(wire.CodeAbsent), Name: wire.CodeAbsent.String(), Fix: fix},
		fmt.Sprintf("no %s is called %q", what, name))
}

func (s *adminServer) peerNames() []string {
	var names []string
	for _, p := range s.a.peers() {
		names = append(names, p.Name)
	}
	return names
}

// Status says who the daemon is, whether it is ready, and how full it is.
func (s *adminServer) Status(context.Context, *adminpb.StatusRequest) (*adminpb.StatusResponse, error) {
	a := s.a
	out := &adminpb.StatusResponse{
		Name: a.id.name, Agent: hex.EncodeToString(a.id.agent[:]), Incarnation: a.id.incarnation,
		Version: a.opt.Version, WireVersion: wire.Version, LinkVersion: proto.Version,
		Pid: uint32(os.Getpid()), UptimeMs: uint64(time.Since(a.started).Milliseconds()),
		Drain: adminpb.DrainState(a.drain.Load() + 1), Arena: s.arena(),
		EngineSessions: uint32(a.engines.Stats().Sessions),
		Namespaces:     uint32(a.spaces.Len()), ConfigPath: a.cfg.File,
	}
	for _, e := range a.engines.Engines() {
		out.Engines = append(out.Engines, &adminpb.EngineUsage{
			Name: e.Name, Sessions: uint32(e.Sessions), Namespaces: uint32(e.Namespaces), Requests: uint32(e.Requests),
		})
	}
	for _, r := range a.unready() {
		out.Reasons = append(out.Reasons, &adminpb.Reason{Id: r.id, Text: r.text})
	}
	out.Ready = len(out.Reasons) == 0
	for _, p := range a.listening() {
		out.Ports = append(out.Ports, &adminpb.Port{Kind: p.Kind, Address: p.Address})
	}
	for _, p := range a.peers() {
		if p.Listed {
			out.PeersConfigured++
		}
		if p.State == fabric.PeerReady {
			out.PeersReady++
		}
	}
	return out, nil
}

func (s *adminServer) arena() *adminpb.ArenaUsage {
	st := s.a.store.Stats()
	out := &adminpb.ArenaUsage{
		CapacityBytes: st.Capacity, UsedBytes: st.Used, ReservedBytes: st.ReservedBytes,
		QuarantinedBytes: st.QuarantinedBytes,
		Leases:           uint64(st.Leases), Segments: uint32(st.Segments), CapacityNote: s.a.cfg.KVMemory.CapacityNote,
	}
	for t := range st.Blocks {
		out.Blocks += uint64(st.Blocks[t])
		out.LeasedBytes += st.BlockBytes[t] - st.IdleBytes[t]
		out.Tiers = append(out.Tiers, &adminpb.TierUsage{Tier: pbTier(wire.Tier(t)),
			Blocks: uint64(st.Blocks[t]), Bytes: st.BlockBytes[t], Evictions: st.Evictions[t]})
	}
	return out
}

func pbTier(t wire.Tier) adminpb.Tier { return adminpb.Tier(t + 1) }

// ListPeers lists every configured peer, connected or not.
func (s *adminServer) ListPeers(_ context.Context, req *adminpb.ListPeersRequest) (*adminpb.ListPeersResponse, error) {
	out := &adminpb.ListPeersResponse{}
	for _, p := range s.a.peers() {
		if req.Name != "" && req.Name != p.Name {
			continue
		}
		row := &adminpb.Peer{
			Name: p.Name, Fabric: p.Fabric, Incarnation: p.Inc, Address: p.Addr, State: pbState(p.State),
			ReasonCode: uint32(p.Code), Reason: p.Text, Transport: p.Via, Lanes: uint32(p.Lanes),
			RttNs: uint64(p.RTT), Tenants: p.Tenants,
		}
		if p.Agent != ([16]byte{}) {
			row.Agent = hex.EncodeToString(p.Agent[:])
		}
		for _, ns := range p.Spaces {
			row.Namespaces = append(row.Namespaces, ns.String())
		}
		out.Peers = append(out.Peers, row)
	}
	if req.Name != "" && len(out.Peers) == 0 {
		return nil, unknownName("peer", req.Name, s.peerNames())
	}
	return out, nil
}

func pbState(s fabric.PeerState) adminpb.PeerState {
	switch s {
	case fabric.PeerReady:
		return adminpb.PeerState_PEER_STATE_READY
	case fabric.PeerRefused:
		return adminpb.PeerState_PEER_STATE_REFUSED
	case fabric.PeerIdle:
		return adminpb.PeerState_PEER_STATE_IDLE
	case fabric.PeerDraining:
		return adminpb.PeerState_PEER_STATE_DRAINING
	default:
		return adminpb.PeerState_PEER_STATE_CONNECTING
	}
}

// ListBlocks streams the published blocks that match.
func (s *adminServer) ListBlocks(req *adminpb.ListBlocksRequest, out grpc.ServerStreamingServer[adminpb.Block]) error {
	limit := int(req.Limit)
	if limit == 0 {
		limit = defaultBlocks
	}
	var sent int
	var failed error
	s.a.store.List(func(v blocks.View) bool { // the store is not locked meanwhile
		if req.Tier != adminpb.Tier_TIER_UNSPECIFIED && pbTier(v.Tier) != req.Tier {
			return true
		}
		if req.Namespace != "" && v.NS.String() != req.Namespace {
			return true
		}
		failed = out.Send(pbBlock(v))
		sent++
		return failed == nil && sent < limit
	})
	return failed
}

func pbBlock(v blocks.View) *adminpb.Block {
	where := "arena"
	if v.Seg == 0 {
		where = v.Where.Fabric
	}
	return &adminpb.Block{
		Namespace: v.NS.String(), Key: v.Key.String(), Tier: pbTier(v.Tier), Where: where,
		Length: v.Head.BodyLen, Sum: v.Head.Sum.String(), Attest: adminpb.Attest(v.Att + 1), Refs: uint32(v.Refs), Pins: uint32(v.Pins),
		Slot: v.Ref.Slot, Generation: v.Ref.Gen, Segment: v.Seg, Offset: v.Off,
		Header: hex.EncodeToString(v.Head.Append(nil)), HeaderTier: pbTier(v.Head.Tier),
	}
}

// StatBlock describes one block.
func (s *adminServer) StatBlock(_ context.Context, req *adminpb.StatBlockRequest) (*adminpb.Block, error) {
	v, err := s.stat(req.Key)
	if err != nil {
		return nil, adminError(err)
	}
	return pbBlock(v), nil
}

func (s *adminServer) stat(text string) (blocks.View, error) {
	key, err := wire.ParseKey(text)
	if err != nil {
		return blocks.View{}, fmt.Errorf("%w: %w", err, wire.CodeInvalid)
	}
	v, err := s.a.store.Stat(key)
	if err != nil {
		return v, fmt.Errorf("block %s: %w", text, err)
	}
	return v, nil
}

// VerifyBlock hashes the block again where it lies.
func (s *adminServer) VerifyBlock(_ context.Context, req *adminpb.VerifyBlockRequest) (*adminpb.VerifyBlockResponse, error) {
	v, err := s.stat(req.Key)
	if err != nil {
		return nil, adminError(err)
	}
	began := time.Now()
	err = s.a.store.Verify(v)
	out := &adminpb.VerifyBlockResponse{
		Ok: err == nil, Want: v.Head.Sum.String(), Got: v.Head.Sum.String(), Length: v.Head.BodyLen,
		DurationNs: uint64(time.Since(began)), Attest: adminpb.Attest(v.Att + 1),
	}
	var bad *wire.ChecksumError
	switch {
	case errors.As(err, &bad):
		out.Got = bad.Got.String()
		s.a.checksumFailed("arena")
		s.a.log.Error("checksum failure: the block was taken out of the index", "code", wire.CodeChecksum.String(),
			"number", uint16(wire.CodeChecksum), "where", "arena", "key", req.Key, "want", out.Want, "got", out.Got)
	case err != nil:
		return nil, adminError(err)
	}
	return out, nil
}

// ListTransfers lists running transfers first, then the recent ones.
func (s *adminServer) ListTransfers(_ context.Context, req *adminpb.ListTransfersRequest) (*adminpb.ListTransfersResponse, error) {
	limit := int(req.Limit)
	if limit == 0 {
		limit = defaultTransfers
	}
	out := &adminpb.ListTransfersResponse{}
	now := time.Now()
	rows := s.a.mover.Log.List(limit, req.Peer, req.RunningOnly)
	if names := s.peerNames(); req.Peer != "" && len(rows) == 0 && !slices.Contains(names, req.Peer) {
		return nil, unknownName("peer", req.Peer, names)
	}
	for _, t := range rows {
		row := &adminpb.Transfer{
			Id: t.ID, Fabric: t.Fabric, Peer: t.Peer, Direction: adminpb.Direction_DIRECTION_OUT, Op: string(t.Op), Class: uint32(t.Class),
			Via: t.Via, Bytes: t.Bytes, Items: uint32(t.Items), FailedItems: uint32(t.Failed), Running: t.Running,
			AgeMs: uint64(now.Sub(t.Began).Milliseconds()), DurationNs: uint64(t.Took), Code: uint32(t.Code),
		}
		if t.In {
			row.Direction = adminpb.Direction_DIRECTION_IN
		}
		out.Transfers = append(out.Transfers, row)
	}
	return out, nil
}

// ListFabrics lists the fabrics of this daemon.
func (s *adminServer) ListFabrics(context.Context, *adminpb.ListFabricsRequest) (*adminpb.ListFabricsResponse, error) {
	out := &adminpb.ListFabricsResponse{}
	via := map[string][]string{}
	for _, m := range s.a.moved.list() {
		via[m.Fabric] = appendNew(via[m.Fabric], m.Transport)
	}
	for name, f := range s.a.whole {
		c := f.Caps()
		row := &adminpb.Fabric{
			Label: name, Enabled: true, Via: via[name], Verified: c.Verified, Persistent: c.Persistent,
			OneSided: c.OneSided, TwoPhase: c.TwoPhase, MaxItemBytes: uint64(c.MaxItem), MaxBatch: uint32(c.MaxBatch),
		}
		if e, ok := f.(fabric.Enabler); ok {
			if missing := e.Enabled(); missing != nil {
				row.Enabled, row.Reason = false, missing.Error()
			}
		}
		if g, ok := f.(fabric.Peered); ok {
			_, relay := f.(fabric.Relay)
			for _, p := range g.Peers() {
				if p.Listed {
					row.Peers = append(row.Peers, p.Name)
				}
				if err := p.Err(); relay && row.Enabled && err != nil {
					row.Reason = err.Error()
				}
			}
			row.Probes = len(row.Peers) > 0
		} else {
			_, row.Probes = f.(fabric.Prober)
		}
		out.Fabrics = append(out.Fabrics, row)
	}
	return out, nil
}

func appendNew(list []string, v string) []string {
	for _, have := range list {
		if have == v {
			return list
		}
	}
	return append(list, v)
}

// Doctor returns the findings of the daemon.
func (s *adminServer) Doctor(context.Context, *adminpb.DoctorRequest) (*adminpb.DoctorResponse, error) {
	out := &adminpb.DoctorResponse{}
	for _, f := range s.a.findings() {
		out.Findings = append(out.Findings, &adminpb.Finding{
			Id: f.ID, Severity: adminpb.Severity(f.Severity + 1), Subject: f.Subject, Reason: f.Reason, Fix: f.Fix,
		})
	}
	return out, nil
}

// Reload reads the configuration again, as SIGHUP does.
func (s *adminServer) Reload(ctx context.Context, req *adminpb.ReloadRequest) (*adminpb.ReloadResponse, error) {
	r, err := s.a.reload(ctx, req.DryRun)
	if err != nil {
		if !req.DryRun {
			s.a.log.Error("the configuration was not taken over", "err", err)
		}
		return nil, adminError(err)
	}
	out := &adminpb.ReloadResponse{File: r.file, Applied: pbChanges(r.applied), Restart: pbChanges(r.restart)}
	for _, w := range r.warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	return out, nil
}

func pbChanges(changes []config.Change) []*adminpb.Change {
	out := make([]*adminpb.Change, len(changes))
	for i, c := range changes {
		out[i] = &adminpb.Change{Key: c.Key, Old: c.Old, New: c.New, What: c.What}
	}
	return out
}
