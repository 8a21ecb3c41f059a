package topology

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a made-up sysfs, with links as the kernel has them.
type tree struct {
	t         *testing.T
	root      string
	index     int
	addresses map[string][]string
}

func newTree(t *testing.T) *tree {
	s := &tree{t: t, root: t.TempDir(), addresses: map[string][]string{}}
	s.write("class/net/bonding_masters", "")
	s.iface("virtual/net/lo", "lo", map[string]string{"type": "772", "operstate": "unknown", "carrier": "1"}, "127.0.0.1", "::1")
	return s
}

func (s *tree) write(path, text string) {
	s.t.Helper()
	full := filepath.Join(s.root, "sys", path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// link makes a relative link, as sysfs has them.
func (s *tree) link(path, to string) {
	s.t.Helper()
	full := filepath.Join(s.root, "sys", path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		s.t.Fatal(err)
	}
	rel, err := filepath.Rel(filepath.Dir(full), filepath.Join(s.root, "sys", to))
	if err == nil {
		err = os.Symlink(rel, full)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// pci makes a function of the bus. at is below devices: pci0000:00/0000:00:01.0/0000:01:00.0.
func (s *tree) pci(at string, numa int, driver string, files map[string]string) {
	s.t.Helper()
	at = "devices/" + at
	s.write(at+"/numa_node", fmt.Sprint(numa))
	for name, text := range files {
		s.write(at+"/"+name, text)
	}
	if driver != "" {
		s.write("bus/pci/drivers/"+driver+"/uevent", "")
		s.link(at+"/driver", "bus/pci/drivers/"+driver)
	}
	s.link("bus/pci/devices/"+filepath.Base(at), at)
}

// iface makes an interface at a place below devices.
func (s *tree) iface(at, name string, files map[string]string, addresses ...string) {
	s.t.Helper()
	s.index++
	at = "devices/" + at
	all := map[string]string{"type": "1", "operstate": "up", "carrier": "1", "speed": "-1", "ifindex": fmt.Sprint(s.index), "iflink": fmt.Sprint(s.index), "uevent": "INTERFACE=" + name}
	for k, v := range files {
		all[k] = v
	}
	for k, v := range all {
		s.write(at+"/"+k, v)
	}
	if parent, _, ok := strings.Cut(at, "/net/"); ok && !strings.Contains(at, "virtual") {
		s.link(at+"/device", parent)
	}
	s.link("class/net/"+name, at)
	s.addresses[name] = addresses
}

// rdma makes a device with one port on a function.
func (s *tree) rdma(at, name, interfaceName string, files map[string]string) {
	s.t.Helper()
	dir := "devices/" + at + "/infiniband/" + name
	all := map[string]string{
		"node_type": "1: CA", "ports/1/state": "4: ACTIVE", "ports/1/rate": "100 Gb/sec (4X EDR)", "ports/1/link_layer": "Ethernet",
		"ports/1/gid_attrs/ndevs/0": interfaceName, "ports/1/gid_attrs/ndevs/1": interfaceName,
	}
	for k, v := range files {
		all[k] = v
	}
	for k, v := range all {
		s.write(dir+"/"+k, v)
	}
	if !strings.HasPrefix(at, "virtual") {
		s.link(dir+"/device", "devices/"+at)
		s.write("devices/"+at+"/infiniband_verbs/uverbs-"+name+"/ibdev", name)
		s.write("../dev/infiniband/uverbs-"+name, "")
	}
	s.link("class/infiniband/"+name, dir)
}

// mlx is a NIC of 100 Gb/s with its interface and its RDMA port.
func (s *tree) mlx(at string, n, numa int, files map[string]string, addresses ...string) {
	s.t.Helper()
	eth := fmt.Sprintf("ens%d", n)
	s.pci(at, numa, "mlx5_core", nil)
	s.iface(at+"/net/"+eth, eth, map[string]string{"speed": "100000"}, addresses...)
	s.rdma(at, fmt.Sprintf("mlx5_%d", n), eth, files)
}

func (s *tree) gpu(at string, numa int) {
	s.t.Helper()
	s.pci(at, numa, "nvidia", map[string]string{"vendor": "0x10de", "class": "0x030200"})
	s.write("module/nvidia/version", "570.1")
}

func (s *tree) source() Source {
	return Source{Root: s.root, Addresses: func(name string) (out []netip.Addr) {
		for _, a := range s.addresses[name] {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}}
}

func (s *tree) read() Host {
	s.t.Helper()
	h, err := Read(s.source())
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// choice is the choice, and why each other device was not chosen.
func (s *tree) choice(f *File) (c Choice, why map[string]string) {
	s.t.Helper()
	h := s.read()
	if f != nil {
		f.Apply(&h)
	}
	c, why = Choose(&h, f), map[string]string{}
	for _, r := range c.Rejected {
		why[r.Device] = r.Why
	}
	if got := len(why) + len(strings.Split(c.Devices, ",")); c.Devices != "" && got != len(h.Devices) {
		s.t.Errorf("%d devices are spoken of, of %d: %+v", got, len(h.Devices), c)
	}
	return c, why
}
