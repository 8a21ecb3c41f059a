package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
)

func newFabricTopologyCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "topology",
		Short: "List NICs, RDMA ports and GPUs, and which device is chosen and why",
		Long: `Lists the devices of the host as the daemon sees them, and the device that a
fabric takes whose table says devices = "auto", with a reason for each that is
not chosen. What agent.topology_file overrides is said below.`,
		Example:     "  mrdn fabric topology\n  mrdn fabric topology -o json",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			r, err := adm.Topology(ctx, &adminpb.TopologyRequest{})
			if err != nil {
				return nil, err
			}
			return topologyOf(r), nil
		})
	})
	return c
}

type deviceInfo struct {
	Name          string   `json:"name"`
	Kind          string   `json:"kind"`
	Driver        string   `json:"driver,omitempty"`
	State         string   `json:"state"`
	Up            bool     `json:"up"`
	BitsPerSecond uint64   `json:"bits_per_second"`
	NUMANode      int32    `json:"numa_node"`
	PCI           string   `json:"pci,omitempty"`
	Virtual       bool     `json:"virtual"`
	Addresses     []string `json:"addresses"`
	GPUDistances  []string `json:"gpu_distances"`
}

type gpuInfo struct {
	PCI         string `json:"pci"`
	Name        string `json:"name,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	Driver      string `json:"driver,omitempty"`
	MemoryBytes uint64 `json:"memory_bytes"`
	NUMANode    int32  `json:"numa_node"`
}

type rejectedDevice struct {
	Device string `json:"device"`
	Why    string `json:"why"`
}

type deviceChoice struct {
	Devices    string           `json:"devices"`
	NUMANode   int32            `json:"numa_node"`
	Advertise  string           `json:"advertise,omitempty"`
	Overridden bool             `json:"overridden"`
	Reasons    []string         `json:"reasons"`
	Rejected   []rejectedDevice `json:"rejected"`
}

type deviceUse struct {
	Fabric      string `json:"fabric"`
	Devices     string `json:"devices"`
	TakesChoice bool   `json:"takes_choice"`
}

type topologyResult struct {
	Devices   []deviceInfo `json:"devices"`
	GPUs      []gpuInfo    `json:"gpus"`
	GPUDriver string       `json:"gpu_driver,omitempty"`
	GPUNote   string       `json:"gpu_note,omitempty"`
	NUMANodes uint32       `json:"numa_nodes"`
	Choice    deviceChoice `json:"choice"`
	File      string       `json:"topology_file,omitempty"`
	Notes     []string     `json:"notes"`
	Uses      []deviceUse  `json:"uses"`
}

func topologyOf(r *adminpb.TopologyResponse) topologyResult {
	c := r.GetChoice()
	out := topologyResult{
		Devices: []deviceInfo{}, GPUs: []gpuInfo{}, Uses: []deviceUse{}, GPUDriver: r.GetGpuDriver(), GPUNote: r.GetGpuNote(),
		NUMANodes: r.GetNumaNodes(), File: r.GetFile(), Notes: list(r.GetNotes()),
		Choice: deviceChoice{
			Devices: c.GetDevices(), NUMANode: c.GetNumaNode(), Advertise: c.GetAdvertise(), Overridden: c.GetOverridden(),
			Reasons: list(c.GetReasons()), Rejected: []rejectedDevice{},
		},
	}
	for _, d := range r.GetDevices() {
		out.Devices = append(out.Devices, deviceInfo{
			Name: d.GetName(), Kind: d.GetKind(), Driver: d.GetDriver(), State: d.GetState(), Up: d.GetUp(), BitsPerSecond: d.GetBitsPerSecond(),
			NUMANode: d.GetNumaNode(), PCI: d.GetPci(), Virtual: d.GetVirtual(), Addresses: list(d.GetAddresses()), GPUDistances: list(d.GetGpuDistances()),
		})
	}
	for _, g := range r.GetGpus() {
		out.GPUs = append(out.GPUs, gpuInfo{g.GetPci(), g.GetName(), g.GetUuid(), g.GetDriver(), g.GetMemoryBytes(), g.GetNumaNode()})
	}
	for _, j := range c.GetRejected() {
		out.Choice.Rejected = append(out.Choice.Rejected, rejectedDevice{j.GetDevice(), j.GetWhy()})
	}
	for _, u := range r.GetUses() {
		out.Uses = append(out.Uses, deviceUse{u.GetFabric(), u.GetDevices(), u.GetTakesChoice()})
	}
	return out
}

func (r topologyResult) grid(wide bool) grid {
	g := grid{head: []string{"NAME", "KIND", "DRIVER", "STATE", "SPEED", "NUMA", "VIRTUAL", "ADDRESS"}}
	if wide {
		g.head = append(g.head, "PCI", "FROM GPUS")
	}
	for _, d := range r.Devices {
		row := []string{d.Name, d.Kind, d.Driver, d.State, speed(d.BitsPerSecond), nodeNumber(d.NUMANode), yesNo(d.Virtual), strings.Join(d.Addresses, " ")}
		if wide {
			row = append(row, d.PCI, strings.Join(d.GPUDistances, ", "))
		}
		g.rows = append(g.rows, row)
	}
	if !wide {
		g.foldLast()
	}
	g.line("")
	r.gpuLines(&g)
	r.choiceLines(&g)
	for _, u := range r.Uses {
		does := "does not take the choice"
		if u.TakesChoice {
			does = "takes the choice"
		}
		g.line(fmt.Sprintf("fabric %s: devices = %q %s", u.Fabric, u.Devices, does))
	}
	if len(r.Uses) == 0 {
		g.line("no fabric uses it: a table of kind nixl does, with devices = \"auto\"")
	}
	return g
}

func (r topologyResult) gpuLines(g *grid) {
	for i, one := range r.GPUs {
		near := ""
		for _, d := range r.Devices {
			if d.Name == r.Choice.Devices && i < len(d.GPUDistances) {
				near = ", the choice is " + d.GPUDistances[i]
			}
		}
		memory := ""
		if one.MemoryBytes > 0 {
			memory = ", " + config.FormatBytes(one.MemoryBytes)
		}
		g.line(fmt.Sprintf("GPU %d: %s at %s%s, NUMA node %s%s", i, cmp.Or(one.Name, "NVIDIA"), one.PCI, memory, cmp.Or(nodeNumber(one.NUMANode), "unknown"), near))
	}
	switch {
	case r.GPUDriver != "":
		g.line("GPU driver: " + r.GPUDriver)
	case len(r.GPUs) == 0:
		g.line("GPUs: none: " + r.GPUNote)
	default:
		g.line("GPU driver: " + r.GPUNote)
	}
}

func (r topologyResult) choiceLines(g *grid) {
	c := r.Choice
	if c.Overridden {
		g.line("topology file: " + r.File + " overrides the choice")
	} else if r.File != "" {
		g.line("topology file: " + r.File)
	}
	for _, n := range r.Notes {
		g.line("note: " + n)
	}
	g.line("")
	if c.Devices == "" {
		g.line("choice: none")
	} else {
		g.line(fmt.Sprintf("choice: %s, NUMA node %s, address for peers %s", c.Devices, cmp.Or(nodeNumber(c.NUMANode), "unknown"), cmp.Or(c.Advertise, "none")))
	}
	for _, why := range c.Reasons {
		g.line("  " + why)
	}
	if len(c.Rejected) > 0 {
		g.line("not chosen:")
	}
	for _, j := range c.Rejected {
		g.line("  " + j.Device + ": " + j.Why)
	}
	g.line("")
}

func nodeNumber(n int32) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

func speed(bits uint64) string {
	switch {
	case bits == 0:
		return ""
	case bits < 1e9:
		return fmt.Sprintf("%d Mb/s", bits/1e6)
	}
	return strconv.FormatFloat(float64(bits)/1e9, 'f', -1, 64) + " Gb/s"
}
