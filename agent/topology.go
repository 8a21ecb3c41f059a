package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"meridian/agent/adminpb"
	"meridian/agent/openers"
	"meridian/wire"
)

// topologyTimeout bounds a look at the devices of the host, and the wait for those of
// others: NVIDIA's driver may take its time.
const topologyTimeout = 45 * time.Second

// Topology lists the devices of the host, and the choice.
func (s *adminServer) Topology(ctx context.Context, _ *adminpb.TopologyRequest) (*adminpb.TopologyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	select { // one at a time: each may start a process
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil, adminError(fmt.Errorf("the devices are being looked at for somebody else: %w", wire.CodeBusy))
	}
	t, err := openers.LookAtDevices(ctx, s.a.cfg, s.a.log)
	if err != nil {
		return nil, adminError(fmt.Errorf("%w: %w", err, wire.CodeConfig))
	}
	return pbTopology(&t), nil
}

func pbTopology(t *openers.Topology) *adminpb.TopologyResponse {
	out := &adminpb.TopologyResponse{
		GpuDriver: t.GPUDriver, GpuNote: t.GPUNote, File: t.File, Notes: t.Host.Notes, NumaNodes: uint32(t.Host.Nodes),
		Choice: &adminpb.DeviceChoice{
			Devices: t.Choice.Devices, NumaNode: int32(t.Choice.NUMA), Overridden: t.Choice.File != "", Reasons: t.Choice.Reasons,
		},
	}
	if t.Choice.Advertise.IsValid() {
		out.Choice.Advertise = t.Choice.Advertise.String()
	}
	for _, r := range t.Choice.Rejected {
		out.Choice.Rejected = append(out.Choice.Rejected, &adminpb.DeviceRejection{Device: r.Device, Why: r.Why})
	}
	for i := range t.Host.Devices {
		d := &t.Host.Devices[i]
		row := &adminpb.Device{
			Name: d.Name, Kind: string(d.Kind), Driver: d.Driver, State: d.State, Up: d.Up, BitsPerSecond: d.Bits,
			NumaNode: int32(d.NUMA), Pci: d.PCI, Virtual: d.Virtual,
		}
		for _, a := range d.Addresses {
			row.Addresses = append(row.Addresses, a.String())
		}
		for g := range t.Host.GPUs {
			row.GpuDistances = append(row.GpuDistances, d.From(&t.Host.GPUs[g]).String())
		}
		out.Devices = append(out.Devices, row)
	}
	for _, g := range t.Host.GPUs {
		out.Gpus = append(out.Gpus, &adminpb.GPU{Pci: g.PCI, Name: valid(g.Name), Uuid: valid(g.UUID), Driver: g.Driver, MemoryBytes: g.Bytes, NumaNode: int32(g.NUMA)})
	}
	for _, u := range t.Uses {
		out.Uses = append(out.Uses, &adminpb.DeviceUse{Fabric: u.Fabric, Devices: u.Devices, TakesChoice: u.Takes})
	}
	return out
}

// valid is a foreign library's text as protobuf takes it.
func valid(s string) string { return strings.ToValidUTF8(s, "?") }
