package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is read.
const (
	maxDevices = 1024    // interfaces and ports, each
	maxFile    = 4 << 10 // bytes of a file of sysfs
	maxPorts   = 64      // of an RDMA device
)

// Source is where a host is read.
type Source struct {
	Root string // the folder that has sys
	// Addresses are those of an interface, which sysfs does not have.
	Addresses func(name string) []netip.Addr
}

// Live is the host that we run on.
func Live() Source { return Source{Root: "/", Addresses: addressesOf} }

func addressesOf(name string) []netip.Addr {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	list, err := i.Addrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

func (s Source) path(parts ...string) string {
	return filepath.Join(append([]string{s.Root, "sys"}, parts...)...)
}

// text is a small file's content, "" where it cannot be read: many of sysfs refuse that
// while a device is down.
func text(parts ...string) string {
	f, err := os.Open(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}

// names are those in a folder, in order.
func names(folder string) []string {
	list, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// Read reads a host. A host without a device is no error; one whose sysfs is not there is.
func Read(s Source) (Host, error) {
	h := Host{}
	if _, err := os.Stat(s.path("class")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return h, fmt.Errorf("%s is not there: sysfs is not mounted: %w", s.path("class"), err)
		}
		return h, err
	}
	interfaces := s.interfaces(&h)
	h.Devices = append(s.ports(&h, interfaces), interfaces...)
	h.GPUs = s.gpus()
	h.DriverLoaded = exists(s.path("module", "nvidia"))
	for _, n := range names(s.path("devices", "system", "node")) {
		if strings.HasPrefix(n, "node") {
			h.Nodes++
		}
	}
	return h, nil
}

// few cuts a list of names.
func few(h *Host, what string, list []string) []string {
	if n := len(list); n > maxDevices {
		h.Notes = append(h.Notes, fmt.Sprintf("%d %s, of which %d are looked at", n, what, maxDevices))
		return list[:maxDevices]
	}
	return list
}

// interfaces are those of the network, the real ones first.
func (s Source) interfaces(h *Host) []Device {
	all := names(s.path("class", "net"))
	all = slices.DeleteFunc(all, func(n string) bool { return n == "bonding_masters" })
	isVirtual := map[string]bool{}
	for _, n := range all {
		isVirtual[n] = virtual(real(s.path("class", "net", n)))
	}
	slices.SortStableFunc(all, func(a, b string) int { return compareBool(isVirtual[a], isVirtual[b]) })
	var out []Device
	for _, n := range few(h, "network interfaces", all) {
		out = append(out, s.one(n, isVirtual[n]))
	}
	// A bond or a VLAN is as real as what it is made of.
	for range 4 { // a VLAN on a bridge on a bond
		for i := range out {
			d := &out[i]
			for _, l := range d.lower {
				at := slices.IndexFunc(out, func(o Device) bool { return o.Name == l })
				if at < 0 || out[at].Virtual || !d.Virtual {
					continue
				}
				d.Virtual, d.Driver = false, cmp.Or(d.Driver, out[at].Driver)
				d.NUMA, d.PCI, d.path = out[at].NUMA, out[at].PCI, out[at].path
			}
		}
	}
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// one is an interface.
func (s Source) one(name string, isVirtual bool) Device {
	dir := s.path("class", "net", name)
	d := Device{Name: name, Kind: kindOf(dir, isVirtual), Virtual: isVirtual, State: text(dir, "operstate"), Driver: driverOf(dir)}
	d.Up = d.State == "up" || d.State == "unknown" && text(dir, "carrier") == "1"
	if mbits, err := strconv.ParseInt(text(dir, "speed"), 10, 32); err == nil && mbits > 0 { // -1: unknown
		d.Bits = uint64(mbits) * 1e6
	}
	d.PCI, d.NUMA, d.path = place(real(dir))
	if m, err := os.Readlink(filepath.Join(dir, "master")); err == nil {
		d.Master = filepath.Base(m)
	}
	for _, n := range names(dir) {
		if l, ok := strings.CutPrefix(n, "lower_"); ok {
			d.lower = append(d.lower, l)
		}
	}
	if s.Addresses != nil {
		d.Addresses = usable(s.Addresses(name))
	}
	return d
}

// usable are addresses that another host may reach, IPv4 first.
func usable(list []netip.Addr) []netip.Addr {
	list = slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool {
		return !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast()
	})
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return compareBool(a.Is6(), b.Is6()) })
	return list
}

// kindOf is the kind of an interface, by its hardware type and what drivers make.
func kindOf(dir string, isVirtual bool) Kind {
	made := ""
	for line := range strings.Lines(text(dir, "uevent")) {
		if t, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			made = t
		}
	}
	const arphrdEther, arphrdInfiniBand, arphrdLoopback = "1", "32", "772"
	switch kind := text(dir, "type"); {
	case kind == arphrdLoopback:
		return Loopback
	case exists(dir, "bonding"), made == "bond":
		return Bond
	case made == "vlan":
		return VLAN
	case exists(dir, "bridge"), made == "bridge":
		return Bridge
	case kind == arphrdInfiniBand:
		return IPoIB
	case kind != arphrdEther || made != "" && isVirtual:
		return Other
	case isVirtual && text(dir, "iflink") != text(dir, "ifindex"):
		return Veth // the other end is another interface, often of another container
	case isVirtual:
		return Other
	}
	return Ethernet
}

// ports are those of the RDMA devices.
func (s Source) ports(h *Host, interfaces []Device) []Device {
	var out []Device
	for _, name := range few(h, "RDMA devices", names(s.path("class", "infiniband"))) {
		dir := s.path("class", "infiniband", name)
		list := names(filepath.Join(dir, "ports"))
		for _, port := range list[:min(len(list), maxPorts)] {
			out = append(out, s.port(dir, name, port, interfaces))
		}
	}
	return out
}

func (s Source) port(dir, name, port string, interfaces []Device) Device {
	at := filepath.Join(dir, "ports", port)
	d := Device{Name: name + ":" + port, Kind: portKind(text(dir, "node_type"), text(at, "link_layer")), Driver: driverOf(dir)}
	d.State = strings.ToLower(afterColon(text(at, "state")))
	d.Up = d.State == "active"
	d.Bits = rate(text(at, "rate"))
	d.PCI, d.NUMA, d.path = place(real(dir))
	// rxe has the name of its interface in a file; its place may be that of the NIC.
	d.Virtual = virtual(real(dir)) || exists(dir, "parent")
	for _, v := range names(filepath.Join(dir, "device", "infiniband_verbs")) { // a container may have sysfs, and not the file
		if file := filepath.Join("dev", "infiniband", v); !exists(s.Root, file) {
			d.Missing = "/" + file
		}
	}
	ndevs := filepath.Join(at, "gid_attrs", "ndevs")
	for _, n := range names(ndevs) { // one a GID, most of them empty
		if i := text(ndevs, n); i != "" && !slices.Contains(d.Interfaces, i) {
			d.Interfaces = append(d.Interfaces, i)
		}
	}
	if len(d.Interfaces) == 0 { // IP over InfiniBand: it is on the same function
		d.Interfaces = names(filepath.Join(dir, "device", "net"))
	}
	for _, i := range interfaces {
		if slices.Contains(d.Interfaces, i.Name) {
			d.Addresses = append(d.Addresses, i.Addresses...)
			if i.Master != "" { // the addresses of a bond's part are the bond's
				for _, m := range interfaces {
					if m.Name == i.Master {
						d.Addresses = append(d.Addresses, m.Addresses...)
					}
				}
			}
		}
	}
	d.Addresses = usable(d.Addresses)
	return d
}

func portKind(node, link string) Kind {
	const rnic, unspecified = "4", "7"
	node, _, _ = strings.Cut(node, ":")
	switch {
	case node == unspecified:
		return NoLink
	case node == rnic:
		return IWARP
	case link == "InfiniBand":
		return InfiniBand
	case link == "Ethernet":
		return RoCE
	}
	return NoLink
}

// afterColon is the word of "4: ACTIVE".
func afterColon(s string) string {
	if _, word, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(word)
	}
	return s
}

// rate is "100 Gb/sec (4X EDR)" in bits a second.
func rate(s string) uint64 {
	number, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v <= 0 || v > 1e6 || !strings.HasPrefix(unit, "Gb/sec") {
		return 0
	}
	return uint64(v * 1e9)
}

// real is where a folder of a class is in the tree of devices.
func real(dir string) string {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return dir
	}
	return path
}

func virtual(path string) bool {
	return strings.Contains(path, filepath.Join("sys", "devices", "virtual")+string(filepath.Separator))
}

func driverOf(dir string) string {
	path, err := os.Readlink(filepath.Join(dir, "device", "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(path)
}

var (
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)
	pciRoot    = regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`)
)

// place is where a device is: its PCI address, its NUMA node, and the bridges above it.
func place(path string) (pci string, numa int, bridges []string) {
	numa = -1
	parts := strings.Split(path, string(filepath.Separator))
	for i, p := range parts {
		switch {
		case pciRoot.MatchString(p):
			bridges = append(bridges, p)
		case pciAddress.MatchString(p):
			if pci != "" {
				bridges = append(bridges, pci)
			}
			pci = p
			if n, err := strconv.Atoi(text(strings.Join(parts[:i+1], string(filepath.Separator)), "numa_node")); err == nil && n >= 0 {
				numa = n
			}
		}
	}
	return pci, numa, bridges
}

// gpus are NVIDIA's on the PCI bus.
func (s Source) gpus() []GPU {
	const nvidia, vga, threeD = "0x10de", "0x0300", "0x0302"
	var out []GPU
	for _, n := range names(s.path("bus", "pci", "devices")) {
		dir := s.path("bus", "pci", "devices", n)
		class := text(dir, "class")
		if text(dir, "vendor") != nvidia || !strings.HasPrefix(class, vga) && !strings.HasPrefix(class, threeD) {
			continue
		}
		g := GPU{}
		g.PCI, g.NUMA, g.path = place(real(dir))
		if d, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
			g.Driver = filepath.Base(d)
		}
		if out = append(out, g); len(out) == maxDevices {
			break
		}
	}
	return out
}
