package openers

import (
	"fmt"
	"slices"
	"strings"

	"meridian/agent/finding"
	"meridian/fabric/topology"
)

// topologyChecks are what fabrics that use devices of this host need. Where none goes
// beyond loopback, nothing is wrong.
var topologyChecks = []finding.Check{
	{ID: "topology.file", About: "the topology file, and what it overrides", Run: finding.One(checkOverrides)},
	{ID: "topology.devices", About: "the devices of fabrics that name them, or leave the choice to the daemon", Run: checkDevices},
	{ID: "topology.ports", About: "RDMA ports that are not active", Run: finding.One(checkPorts)},
	{ID: "topology.numa", About: "devices of fabrics against the NUMA nodes of the GPUs", Run: checkNUMA},
}

// devicesOf is the host with what the topology file says, and the choice. used says
// whether a fabric goes beyond loopback, so that any of it matters.
func devicesOf(h *finding.Host) (host topology.Host, choice topology.Choice, tables []nixlTable, used bool, err error) {
	if h.Config == nil || h.Devices == nil {
		return host, choice, nil, false, nil
	}
	tables = nixlTables(h.Config)
	used = slices.ContainsFunc(tables, func(t nixlTable) bool { return t.devices != "lo" || len(t.far) > 0 })
	if !used {
		return host, choice, tables, false, nil
	}
	f, err := topologyFile(h.Config.Agent.TopologyFile)
	if err != nil {
		return host, choice, tables, true, err
	}
	if host, err = h.Devices(); err != nil {
		return host, choice, tables, true, err
	}
	if f != nil {
		f.Apply(&host)
	}
	return host, topology.Choose(&host, f), tables, true, nil
}

const nobodyAsks = "no fabric of this daemon uses devices beyond loopback"

func checkOverrides(h *finding.Host) finding.Finding {
	if h.Config == nil || h.Config.Agent.TopologyFile == "" {
		return finding.Fine("agent.topology_file", "there is none")
	}
	path := h.Config.Agent.TopologyFile
	subject := "agent.topology_file = " + path
	f, err := topologyFile(path)
	switch {
	case err != nil:
		return finding.Failed(subject, err.Error(), "correct it: docs/nixl.md has its form")
	case f.Choice != nil:
		return finding.Fine(subject, "it overrides the choice: "+f.Choice.Devices)
	}
	return finding.Fine(subject, "it overrides what the kernel says of devices; mrdn fabric topology shows which")
}

func checkDevices(h *finding.Host) []finding.Finding {
	host, choice, tables, used, err := devicesOf(h)
	switch {
	case err != nil:
		return []finding.Finding{finding.Warned("devices", "they cannot be looked at: "+err.Error(), "mrdn fabric topology says more")}
	case !used:
		return []finding.Finding{finding.Fine("devices", nobodyAsks)}
	}
	var out []finding.Finding
	for _, t := range tables {
		subject := fmt.Sprintf("fabric.%s.devices = %s", t.name, t.devices)
		switch t.devices {
		case "lo":
			out = append(out, loopbackOnly(subject, t, &host, &choice))
		case autoDevices:
			out = append(out, automatic(subject, &host, &choice))
		case "all":
			out = append(out, finding.Warned(subject, "UCX may tell peers the address of a bridge that only this host has", `set devices = "auto", or name the device that the peers are on`))
		default:
			out = append(out, named(subject, t.devices, &host))
		}
	}
	return out
}

func loopbackOnly(subject string, t nixlTable, host *topology.Host, choice *topology.Choice) finding.Finding {
	if len(t.far) == 0 {
		return finding.Fine(subject, "all its peers are on this host")
	}
	reason := "UCX uses loopback only, and peers may be on other hosts: " + strings.Join(t.far, ", ")
	if host.Hardware() && choice.Devices != "" {
		return finding.Warned(subject, reason, fmt.Sprintf(`set devices = "auto", which is %s here, and insecure = true`, choice.Devices))
	}
	return finding.Warned(subject, reason, "this host has no device that reaches them: mrdn fabric topology says why")
}

func automatic(subject string, host *topology.Host, choice *topology.Choice) finding.Finding {
	if err := choice.Err(); err != nil {
		return finding.Failed(subject, "there is none to choose: "+err.Error(), "enable a port, or name a device in devices or in agent.topology_file")
	}
	subject += ", which is " + choice.Devices
	first, _, _ := strings.Cut(choice.Devices, ",")
	if d, ok := host.Find(first); ok && d.Virtual && choice.File == "" {
		return finding.Warned(subject, "this host has virtual devices only, as a container has: what is behind it, how fast and where, is not known here",
			"give the container the host's network or an RDMA device, or say what is known in agent.topology_file")
	}
	return finding.Fine(subject, choice.Reasons[0])
}

// named looks at devices that a table names.
func named(subject, devices string, host *topology.Host) finding.Finding {
	for name := range strings.SplitSeq(devices, ",") {
		switch d, ok := host.Find(name); {
		case !ok:
			return finding.Failed(subject, "this host has no "+name, "mrdn fabric topology lists what there is")
		case d.Kind == topology.Loopback:
		case !d.Up:
			return finding.Failed(subject, fmt.Sprintf("the port of %s is %s", name, d.State), "enable it, or name another one")
		case d.Missing != "":
			return finding.Failed(subject, d.Missing+" of "+name+" is not here", "give it to the container, or name another device")
		case d.Virtual && d.Kind.RDMA():
			return finding.Warned(subject, name+" is RDMA done by software: slower than TCP", `set devices = "auto", or name a real one`)
		case d.Virtual && d.Kind != topology.Veth:
			return finding.Warned(subject, name+" is virtual: no hardware is behind it, and other hosts may not reach it", `set devices = "auto", or name a real one`)
		}
	}
	return finding.Fine(subject, "it is there and up")
}

func checkPorts(h *finding.Host) finding.Finding {
	host, _, _, used, err := devicesOf(h)
	if err != nil || !used {
		return finding.Fine("RDMA ports", nobodyAsks) // topology.devices has the error
	}
	var down []string
	n := 0
	for _, d := range host.Devices {
		if !d.Kind.RDMA() || d.Kind == topology.NoLink || d.Virtual {
			continue
		}
		if n++; !d.Up {
			down = append(down, d.Name+" is "+d.State)
		}
	}
	subject := fmt.Sprintf("RDMA ports: %d", n)
	if len(down) > 0 {
		return finding.Warned(subject, "not active, so they are never chosen: "+strings.Join(down, ", "), "look at the cable, the switch and the subnet manager; ignore it where the port is spare")
	}
	return finding.Fine(subject, "each is active")
}

func checkNUMA(h *finding.Host) []finding.Finding {
	host, choice, tables, used, err := devicesOf(h)
	if err != nil || !used || len(host.GPUs) == 0 {
		return []finding.Finding{finding.Fine("NUMA nodes of devices", "nothing to compare")}
	}
	var out []finding.Finding
	for _, t := range tables {
		devices := t.devices
		if devices == autoDevices {
			devices = choice.Devices
		}
		first, _, _ := strings.Cut(devices, ",")
		d, ok := host.Find(first)
		if !ok || d.Kind == topology.Loopback {
			continue
		}
		at := "an unknown NUMA node"
		if d.NUMA >= 0 {
			at = fmt.Sprintf("NUMA node %d", d.NUMA)
		}
		subject := fmt.Sprintf("fabric.%s: %s on %s", t.name, d.Name, at)
		if slices.ContainsFunc(host.GPUs, func(g topology.GPU) bool { return d.From(&g) != topology.Far }) {
			out = append(out, finding.Fine(subject, "as near to a GPU as is known"))
			continue
		}
		out = append(out, finding.Warned(subject, "every GPU is on another node, so all bytes cross between the sockets", "use a NIC of the GPUs' node: mrdn fabric topology shows them"))
	}
	if len(out) == 0 {
		out = append(out, finding.Fine("NUMA nodes of devices", "nothing to compare"))
	}
	return out
}
