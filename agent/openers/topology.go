package openers

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"meridian/adapters/nixl"
	"meridian/agent/config"
	"meridian/fabric/topology"
)

// autoDevices is the value of devices that takes the choice.
const autoDevices = "auto"

// Topology is what a daemon knows of the devices of its host, and which one a fabric
// takes that leaves it to the daemon.
type Topology struct {
	Host   topology.Host
	Choice topology.Choice
	File   string // the topology file; "": there is none

	GPUDriver string // its version; "": it was not asked, and GPUNote says why
	GPUNote   string
	Uses      []DeviceUse
}

// DeviceUse is a fabric that uses devices.
type DeviceUse struct {
	Fabric  string
	Devices string // as its table has them
	Takes   bool   // the choice
}

// LookAtDevices reads the host and the topology file, asks the driver for the GPUs where
// there is one, and chooses. It takes as long as the driver, and no longer than ctx.
func LookAtDevices(ctx context.Context, c *config.Config, log *slog.Logger) (Topology, error) {
	helper := nixl.HelperConfig{Log: log}
	var uses []DeviceUse
	for _, t := range nixlTables(c) {
		helper.Path = t.helper
		uses = append(uses, DeviceUse{Fabric: t.name, Devices: t.devices, Takes: t.devices == autoDevices})
	}
	t, err := look(ctx, topology.Live(), c.Agent.TopologyFile, func(ctx context.Context) (string, []topology.Known, error) { return askGPUs(ctx, helper) })
	t.Uses = uses
	return t, err
}

// asker asks the driver for its version and its GPUs.
type asker func(ctx context.Context) (driver string, gpus []topology.Known, err error)

func look(ctx context.Context, from topology.Source, file string, ask asker) (t Topology, err error) {
	f, err := topologyFile(file)
	if err != nil {
		return t, err
	}
	if t.Host, err = topology.Read(from); err != nil {
		return t, err
	}
	switch {
	case t.Host.DriverLoaded:
		var list []topology.Known
		if t.GPUDriver, list, err = ask(ctx); err != nil {
			t.GPUNote = "the driver could not be asked: " + err.Error()
			break
		}
		t.Host.TellGPUs(list)
	case len(t.Host.GPUs) > 0:
		t.GPUNote = "NVIDIA's driver is not loaded"
	default:
		t.GPUNote = "none of NVIDIA's is on the bus, and its driver is not loaded"
	}
	if f != nil {
		t.File = file
		f.Apply(&t.Host)
	}
	t.Choice = topology.Choose(&t.Host, f)
	return t, nil
}

// topologyFile reads the file of a configuration; nil: there is none.
func topologyFile(path string) (*topology.File, error) {
	if path == "" {
		return nil, nil
	}
	return topology.ReadFile(path)
}

// checkTopologyFile is what is wrong with the topology file.
func checkTopologyFile(c *config.Config) *config.Problem {
	if _, err := topologyFile(c.Agent.TopologyFile); err != nil {
		p := c.Problem("agent.topology_file", err.Error())
		return &p
	}
	return nil
}

func askGPUs(ctx context.Context, helper nixl.HelperConfig) (driver string, gpus []topology.Known, err error) {
	driver, list, err := nixl.GPUs(ctx, helper)
	for _, g := range list {
		gpus = append(gpus, topology.Known{PCI: g.PCI, Name: g.Name, UUID: g.UUID, Bytes: g.Bytes})
	}
	return driver, gpus, err
}

// chooseDevices gives the devices for a start of the helper, and tells the log why.
func chooseDevices(c *config.Config, helper nixl.HelperConfig) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		t, err := look(ctx, topology.Live(), c.Agent.TopologyFile, func(ctx context.Context) (string, []topology.Known, error) { return askGPUs(ctx, helper) })
		if err == nil {
			err = t.Choice.Err()
		}
		if err != nil {
			return "", err
		}
		helper.Log.Info("devices were chosen for NIXL", "devices", t.Choice.Devices, "why", strings.Join(t.Choice.Reasons, "; "))
		return t.Choice.Devices, nil
	}
}

// nixlTable is what is looked at of a table of NIXL agents.
type nixlTable struct {
	name, devices, helper string
	far                   []string // peers that may be beyond this host
}

// meet are the addresses by which a peer and the daemon find each other: its own, or those
// of the listener or store that its entry names.
func (s *nixlSettings) meet(addr string) []string {
	switch scheme, _, found := strings.Cut(addr, "://"); {
	case !found:
		return []string{addr}
	case scheme == "listener":
		return []string{s.listen}
	case scheme == "tcpstore":
		return []string{s.tcpstore}
	}
	return s.etcd
}

func nixlTables(c *config.Config) (out []nixlTable) {
	for _, f := range c.Fabrics {
		s, ok := f.Settings.(*nixlSettings)
		if !ok {
			continue
		}
		t := nixlTable{name: f.Name, devices: s.devices, helper: s.helper}
		for _, p := range s.peers {
			name, addr, _ := strings.Cut(p, "=")
			if !slices.ContainsFunc(s.meet(addr), func(at string) bool {
				host, _, _ := strings.Cut(at, ":")
				return !onThisHost(host)
			}) {
				continue
			}
			t.far = append(t.far, name)
		}
		out = append(out, t)
	}
	return out
}
