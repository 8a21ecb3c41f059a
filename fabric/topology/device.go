package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Kind is what a device is.
type Kind string

// The kinds. InfiniBand, RoCE, IWARP and NoLink are of RDMA ports, the others of network
// interfaces.
const (
	Ethernet   Kind = "ethernet"
	IPoIB      Kind = "ipoib"
	Loopback   Kind = "loopback"
	Bond       Kind = "bond"
	VLAN       Kind = "vlan"
	Bridge     Kind = "bridge"
	Veth       Kind = "veth"
	Other      Kind = "other"
	InfiniBand Kind = "infiniband"
	RoCE       Kind = "roce"
	IWARP      Kind = "iwarp"
	NoLink     Kind = "no link"
)

// RDMA says whether it is a kind of an RDMA port.
func (k Kind) RDMA() bool { return k == InfiniBand || k == RoCE || k == IWARP || k == NoLink }

// Device is a network interface or an RDMA port.
type Device struct {
	Name      string // of a port NAME:PORT, as UCX writes it
	Kind      Kind
	Driver    string // "": unknown
	State     string // as the kernel says it: up, down, active, init
	Up        bool
	Bits      uint64 // a second; 0: unknown
	NUMA      int    // node; -1: unknown
	PCI       string // its address; "": it is not on the bus
	Virtual   bool   // no hardware behind it
	Addresses []netip.Addr
	// Interfaces of an RDMA port are those by which IP reaches it.
	Interfaces []string
	Master     string // of an interface that is a part of another one
	Missing    string // file of an RDMA port without which no process here can use it; "": it is there

	lower []string // interfaces that this one is made of
	path  []string // of bridges to it, from the root of the PCI bus
	skip  string   // why the topology file has it never chosen
}

// GPU is one of NVIDIA's.
type GPU struct {
	PCI    string
	Name   string // "": its driver was not asked
	UUID   string
	Driver string // of the kernel; "": none is bound
	Bytes  uint64
	NUMA   int // -1: unknown
	path   []string
}

// Host is what a host has.
type Host struct {
	Devices []Device // ports first
	GPUs    []GPU
	Nodes   int // NUMA nodes; 0: unknown
	// DriverLoaded says whether the kernel has NVIDIA's driver, so that its library can
	// be asked.
	DriverLoaded bool
	Notes        []string // what a reader should know: what a file has changed, what was left out
}

// find is the device of a name; a name of an RDMA device without a port is its first one.
func (h *Host) find(name string) *Device {
	for i := range h.Devices {
		d := &h.Devices[i]
		if device, _, _ := strings.Cut(d.Name, ":"); d.Name == name || d.Kind.RDMA() && device == name {
			return d
		}
	}
	return nil
}

// Find is the device of a name, if there is one.
func (h *Host) Find(name string) (Device, bool) {
	if d := h.find(name); d != nil {
		return *d, true
	}
	return Device{}, false
}

// Hardware says whether a device but loopback is real.
func (h *Host) Hardware() bool {
	for i := range h.Devices {
		if !h.Devices[i].Virtual {
			return true
		}
	}
	return false
}

// Known is what a driver's library tells of a GPU.
type Known struct {
	PCI, Name, UUID string
	Bytes           uint64
}

// TellGPUs has the GPUs be those that the driver shows to this process: a container sees
// all of the host on the bus.
func (h *Host) TellGPUs(list []Known) {
	on := map[string]GPU{}
	for _, g := range h.GPUs {
		on[g.PCI] = g
	}
	var shown []GPU
	for _, k := range list {
		g, ok := on[k.PCI]
		if !ok {
			g.NUMA = -1
		}
		g.PCI, g.Name, g.UUID, g.Bytes = k.PCI, k.Name, k.UUID, k.Bytes
		delete(on, k.PCI)
		shown = append(shown, g)
	}
	if n := len(on); n > 0 {
		h.Notes = append(h.Notes, fmt.Sprintf("GPUs on the bus that the driver does not show here: %d", n))
	}
	h.GPUs = shown
}

// Distance is how far a device is from a GPU.
type Distance uint8

// Near to far. Unknown is before Far, since hosts of one node do not tell it.
const (
	SameSwitch Distance = iota // below one bridge of the PCI bus
	SameRoot                   // below one root of the PCI bus
	SameNode
	Unknown
	Far // on another NUMA node
)

var distances = [...]string{"below the same PCI bridge", "below the same PCI root", "on the same NUMA node", "at an unknown distance", "on another NUMA node"}

func (d Distance) String() string { return distances[min(int(d), len(distances)-1)] }

// From is the distance of a device from a GPU.
func (d *Device) From(g *GPU) Distance {
	common := 0
	for common < min(len(d.path), len(g.path)) && d.path[common] == g.path[common] {
		common++
	}
	switch {
	case common > 1:
		return SameSwitch
	case common == 1:
		return SameRoot
	case d.NUMA < 0 || g.NUMA < 0:
		return Unknown
	case d.NUMA == g.NUMA:
		return SameNode
	}
	return Far
}

// nearest is the GPU that is nearest, and how near; -1: there is none.
func (d *Device) nearest(gpus []GPU) (which int, far Distance) {
	which, far = -1, Far+1
	for i := range gpus {
		if at := d.From(&gpus[i]); cmp.Less(at, far) {
			which, far = i, at
		}
	}
	return which, far
}
