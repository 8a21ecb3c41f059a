package topology

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const (
	port0 = "pci0000:00/0000:00:01.0"
	port1 = "pci0000:80/0000:80:01.0"
)

func TestAHostWithNothing(t *testing.T) {
	s := newTree(t)
	c, why := s.choice(nil)
	if c.Devices != "" || c.NUMA != -1 || c.Advertise.IsValid() || c.Err() == nil || !strings.Contains(c.Err().Error(), "lo: loopback reaches this host only") {
		t.Errorf("%+v: %v", c, c.Err())
	}
	if !reflect.DeepEqual(why, map[string]string{"lo": "loopback reaches this host only"}) {
		t.Error(why)
	}
	if _, err := Read(Source{Root: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "sysfs is not mounted") {
		t.Error(err)
	}
}

// Soft RoCE and bridges break topologies that take what comes first (Mooncake#1052).
func TestAHostWithVirtualDevicesOnly(t *testing.T) {
	s := newTree(t)
	s.iface("virtual/net/docker0", "docker0", map[string]string{"uevent": "DEVTYPE=bridge", "bridge/stp_state": "0"}, "172.17.0.1")
	s.iface("virtual/net/tun0", "tun0", map[string]string{"type": "65534"}, "10.8.0.2")
	s.iface("virtual/net/dummy0", "dummy0", nil, "10.9.0.2")
	s.rdma("virtual", "rxe0", "docker0", nil)
	c, why := s.choice(nil)
	if c.Devices != "" || c.Err() == nil {
		t.Errorf("%+v", c)
	}
	for name, want := range map[string]string{
		"rxe0:1": "virtual: RDMA done by software", "docker0": "virtual: a bridge of this host only",
		"tun0": "virtual: no hardware behind it", "dummy0": "virtual: no hardware behind it",
	} {
		if why[name] != want {
			t.Errorf("%s: %q, want %q", name, why[name], want)
		}
	}
	if h := s.read(); h.Hardware() {
		t.Error("a virtual device counts as hardware")
	}
}

// A container has one end of a veth pair, and nothing else.
func TestAContainerHasItsVeth(t *testing.T) {
	s := newTree(t)
	s.iface("virtual/net/eth0", "eth0", map[string]string{"iflink": "999", "speed": "10000"}, "fe80::1", "10.1.2.3")
	c, _ := s.choice(nil)
	if c.Devices != "eth0" || c.Advertise.String() != "10.1.2.3" || !strings.Contains(strings.Join(c.Reasons, " "), "no hardware can be used") {
		t.Errorf("%+v", c)
	}
	s.pci(port0+"/0000:01:00.0", 0, "e1000e", nil)
	s.iface(port0+"/0000:01:00.0/net/ens1", "ens1", map[string]string{"speed": "1000"}, "10.0.0.1")
	if c, why := s.choice(nil); c.Devices != "ens1" || why["eth0"] != "virtual, and ens1 is hardware" {
		t.Errorf("%+v", c)
	}
}

func TestSoftRoCEOnARealNICIsVirtual(t *testing.T) {
	s := newTree(t)
	s.pci(port0+"/0000:01:00.0", 0, "virtio-pci", nil)
	s.iface(port0+"/0000:01:00.0/virtio2/net/eth0", "eth0", nil, "10.0.0.1")
	s.rdma(port0+"/0000:01:00.0", "rxe0", "eth0", map[string]string{"parent": "eth0"}) // as older kernels have it
	c, why := s.choice(nil)
	if c.Devices != "eth0" || c.NUMA != 0 || !strings.Contains(why["rxe0:1"], "RDMA done by software") {
		t.Errorf("%+v", c)
	}
}

func TestAnInactivePortIsNotChosen(t *testing.T) {
	s := newTree(t)
	s.mlx(port0+"/0000:01:00.0", 0, 0, map[string]string{"ports/1/state": "1: DOWN", "ports/1/rate": "400 Gb/sec (4X NDR)"})
	s.mlx(port0+"/0000:02:00.0", 1, 0, nil, "10.0.0.2")
	s.mlx(port0+"/0000:03:00.0", 2, 0, map[string]string{"node_type": "7: unspecified", "ports/1/link_layer": "Unspecified"}, "10.0.0.3")
	c, why := s.choice(nil)
	if c.Devices != "mlx5_1:1" || c.Advertise.String() != "10.0.0.2" {
		t.Errorf("%+v", c)
	}
	for name, want := range map[string]string{
		"mlx5_0:1": "its port is down", "mlx5_2:1": "RDMA without a link layer", "ens1": "its RDMA port mlx5_1:1 is better",
		"ens0": "no address", "ens2": "no RDMA, which mlx5_1:1 has",
	} {
		if !strings.Contains(why[name], want) {
			t.Errorf("%s: %q, want %q", name, why[name], want)
		}
	}
}

func TestTheDeviceNearTheGPUIsChosen(t *testing.T) {
	s := newTree(t)
	s.write("devices/system/node/node0/cpulist", "0-31")
	s.write("devices/system/node/node1/cpulist", "32-63")
	s.mlx(port0+"/0000:01:00.0", 0, 0, map[string]string{"ports/1/rate": "400 Gb/sec (4X NDR)"}, "10.0.0.1")
	s.mlx(port1+"/0000:81:00.0", 1, 1, nil, "10.0.0.2")
	c, why := s.choice(nil)
	if c.Devices != "mlx5_0:1" || c.NUMA != 0 || why["mlx5_1:1"] != "100 Gb/s, and mlx5_0:1 has 400 Gb/s" {
		t.Errorf("without a GPU: %+v", c)
	}
	s.gpu("pci0000:81/0000:91:00.0", 1)
	c, why = s.choice(nil)
	if c.Devices != "mlx5_1:1" || c.NUMA != 1 || c.Advertise.String() != "10.0.0.2" || !strings.Contains(c.Reasons[0], "on the same NUMA node as GPU 0") {
		t.Errorf("%+v", c)
	}
	if why["mlx5_0:1"] != "on another NUMA node from the GPUs, and mlx5_1:1 is on the same NUMA node" {
		t.Error(why["mlx5_0:1"])
	}
	s.mlx("pci0000:82/0000:82:00.0/0000:83:00.0", 2, 1, nil, "10.0.0.3")
	s.gpu("pci0000:82/0000:82:00.0/0000:84:00.0", 1)
	if c, _ := s.choice(nil); c.Devices != "mlx5_2:1" || !strings.Contains(c.Reasons[0], "below the same PCI bridge as GPU 0") {
		t.Errorf("%+v", c)
	}
	h := s.read()
	if h.Nodes != 2 || len(h.GPUs) != 2 || !h.DriverLoaded || h.GPUs[0].Driver != "nvidia" {
		t.Errorf("%+v", h)
	}
	// The driver shows one of them to this process.
	h.TellGPUs([]Known{{PCI: "0000:91:00.0", Name: "H200", UUID: "GPU-1", Bytes: 1 << 37}})
	if len(h.GPUs) != 1 || h.GPUs[0].NUMA != 1 || h.GPUs[0].Name != "H200" || len(h.Notes) != 1 {
		t.Errorf("%+v", h)
	}
	if c := Choose(&h, nil); c.Devices != "mlx5_1:1" {
		t.Errorf("%+v", c)
	}
	h.TellGPUs([]Known{{PCI: "ffff:00:00.0", Name: "not on this bus"}})
	if h.GPUs[0].NUMA != -1 {
		t.Errorf("%+v", h.GPUs)
	}
}

func TestABondAndAVLANAreAsRealAsTheirParts(t *testing.T) {
	s := newTree(t)
	for i := range 2 {
		at := fmt.Sprintf("%s/0000:0%d:00.0", port0, i+1)
		s.pci(at, 1, "mlx5_core", nil)
		s.iface(fmt.Sprintf("%s/net/ens%d", at, i), fmt.Sprintf("ens%d", i), map[string]string{"speed": "100000"})
		s.link(fmt.Sprintf("devices/%s/net/ens%d/master", at, i), "devices/virtual/net/bond0")
	}
	s.iface("virtual/net/bond0", "bond0", map[string]string{"bonding/mode": "802.3ad 4", "speed": "200000"})
	s.link("devices/virtual/net/bond0/lower_ens0", "devices/"+port0+"/0000:01:00.0/net/ens0")
	s.iface("virtual/net/bond0.7", "bond0.7", map[string]string{"uevent": "DEVTYPE=vlan", "speed": "200000", "iflink": "4"}, "10.0.0.7")
	s.link("devices/virtual/net/bond0.7/lower_bond0", "devices/virtual/net/bond0")
	c, why := s.choice(nil)
	if c.Devices != "bond0.7" || c.NUMA != 1 || c.Advertise.String() != "10.0.0.7" {
		t.Errorf("%+v", c)
	}
	if why["ens0"] != "a part of bond0" || !strings.Contains(why["bond0"], "no address") {
		t.Error(why)
	}
	h := s.read()
	if d, ok := h.Find("bond0.7"); !ok || d.Virtual || d.Kind != VLAN || d.Driver != "mlx5_core" || d.Bits != 200e9 {
		t.Errorf("%+v", d)
	}
}

func TestInfiniBandWithoutAnAddressTakesAnother(t *testing.T) {
	s := newTree(t)
	s.pci(port0+"/0000:01:00.0", 0, "mlx5_core", nil)
	s.rdma(port0+"/0000:01:00.0", "mlx5_0", "", map[string]string{"ports/1/link_layer": "InfiniBand"})
	s.pci(port0+"/0000:02:00.0", 0, "igb", nil)
	s.iface(port0+"/0000:02:00.0/net/eno1", "eno1", map[string]string{"speed": "1000"}, "2001:db8::1", "10.0.0.1")
	c, _ := s.choice(nil)
	if c.Devices != "mlx5_0:1" || c.Advertise.String() != "10.0.0.1" || !strings.Contains(strings.Join(c.Reasons, " "), "mlx5_0:1 has no address: that of eno1") {
		t.Errorf("%+v", c)
	}
	h := s.read()
	if d, _ := h.Find("mlx5_0"); d.Kind != InfiniBand || d.Driver != "mlx5_core" || d.PCI != "0000:01:00.0" {
		t.Errorf("%+v", d)
	}
}

// A file that says anything, or more than there is place for, costs no more than its bound.
func TestAWrongSysfsDoesNoHarm(t *testing.T) {
	s := newTree(t)
	s.mlx(port0+"/0000:01:00.0", 0, -7, map[string]string{
		"ports/1/rate": "1e99 Gb/sec", "ports/1/state": "", "node_type": strings.Repeat("x", 2*maxFile), "ports/x/state": "4: ACTIVE",
	}, "10.0.0.1", "0.0.0.0", "224.0.0.1")
	s.iface("virtual/net/a", "a", map[string]string{"iflink": "9999", "speed": "99999999999999999999"})
	for i := range maxDevices + 10 {
		s.link(fmt.Sprintf("class/net/veth%d", i), "devices/virtual/net/a")
	}
	h := s.read()
	d, _ := h.Find("mlx5_0:1")
	if d.NUMA != -1 || d.Bits != 0 || d.Up {
		t.Errorf("%+v", d)
	}
	if e, ok := h.Find("ens0"); !ok || !reflect.DeepEqual(e.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
		t.Errorf("the real interface is not among those that are looked at: %+v", e)
	}
	if len(h.Devices) > maxDevices+2 || len(h.Notes) != 1 {
		t.Errorf("%d devices, %q", len(h.Devices), h.Notes)
	}
}

func TestThisHostIsRead(t *testing.T) {
	h, err := Read(Live())
	if err != nil {
		t.Fatal(err)
	}
	if lo, ok := h.Find("lo"); !ok || lo.Kind != Loopback || !lo.Virtual {
		t.Errorf("%+v", h.Devices)
	}
}

// A container sees the devices of its host in sysfs, and can use those that it was given.
func TestAPortThatAContainerWasNotGivenIsNotChosen(t *testing.T) {
	s := newTree(t)
	s.mlx(port0+"/0000:01:00.0", 0, 0, nil, "10.0.0.1")
	if c, _ := s.choice(nil); c.Devices != "mlx5_0:1" {
		t.Fatalf("%+v", c)
	}
	if err := os.Remove(filepath.Join(s.root, "dev/infiniband/uverbs-mlx5_0")); err != nil {
		t.Fatal(err)
	}
	if c, why := s.choice(nil); c.Devices != "ens0" || why["mlx5_0:1"] != "/dev/infiniband/uverbs-mlx5_0 is not here: a container must be given it" {
		t.Errorf("%+v", c)
	}
}
