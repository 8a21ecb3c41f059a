package openers

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/adapters/nixl"
	"meridian/agent/config"
	"meridian/agent/finding"
	"meridian/fabric/topology"
)

// rooted is a host's sysfs with nothing but loopback, and NVIDIA's driver where loaded.
func rooted(t *testing.T, loaded bool) topology.Source {
	t.Helper()
	root := t.TempDir()
	folders := []string{"sys/class/net/lo"}
	if loaded {
		folders = append(folders, "sys/module/nvidia")
	}
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(root, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return topology.Source{Root: root}
}

func TestTheDriverIsAskedWhereItIsLoaded(t *testing.T) {
	asked := 0
	answers := func(context.Context) (string, []topology.Known, error) {
		asked++
		return "570.1", []topology.Known{{PCI: "0000:01:00.0", Name: "H200"}}, nil
	}
	l, err := look(t.Context(), rooted(t, false), "", answers)
	if err != nil || asked != 0 || len(l.Host.GPUs) != 0 || !strings.Contains(l.GPUNote, "not loaded") {
		t.Errorf("%+v, %v, asked %d times", l, err, asked)
	}
	l, err = look(t.Context(), rooted(t, true), "", answers)
	if err != nil || asked != 1 || l.GPUDriver != "570.1" || l.GPUNote != "" || len(l.Host.GPUs) != 1 || l.Host.GPUs[0].Name != "H200" {
		t.Errorf("%+v, %v", l, err)
	}
	// One that does not answer leaves the rest as it is.
	l, err = look(t.Context(), rooted(t, true), "", func(context.Context) (string, []topology.Known, error) {
		return "", nil, errors.New("not built in")
	})
	if err != nil || l.GPUDriver != "" || !strings.Contains(l.GPUNote, "not built in") || len(l.Host.Devices) == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if l.Choice.Err() == nil {
		t.Error("loopback was chosen")
	}
}

// written is a configuration of a file with a NIXL table, and a topology file beside it.
func written(t *testing.T, table, topo string) (*config.Config, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "topology.toml")
	text := "[security]\ntenants = [\"acme\"]\n[fabric.nixl]\nkind = \"nixl\"\ntenants = [\"acme\"]\n" + table
	if topo != "" {
		text = "[agent]\ntopology_file = \"topology.toml\"\n" + text
		if err := os.WriteFile(file, []byte(topo), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "meridian.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(config.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

func TestATopologyFileThatIsWrongStopsTheStart(t *testing.T) {
	c, file := written(t, "", "[choice]\ndevices = \"\"\n")
	if c.Agent.TopologyFile != file {
		t.Errorf("%q is not from the folder of the configuration", c.Agent.TopologyFile)
	}
	if _, err := Check(c); err == nil || !strings.Contains(err.Error(), "agent.topology_file: "+file+": choice: devices is missing") {
		t.Error(err)
	}
	if _, err := LookAtDevices(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "devices is missing") {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(c); err == nil {
		t.Error("a topology file that is not there was taken")
	}
}

func TestWhoTakesTheChoiceIsTold(t *testing.T) {
	c, _ := written(t, "devices = \"auto\"\ninsecure = true\n", "[choice]\ndevices = \"lo\"\n")
	l, err := LookAtDevices(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil || len(l.Uses) != 1 || l.Uses[0] != (DeviceUse{"nixl", "auto", true}) {
		t.Fatalf("%+v, %v", l.Uses, err)
	}
	if l.Choice.File == "" || l.Choice.Devices != "lo" {
		t.Errorf("%+v", l.Choice)
	}
	for range 2 { // at each start
		if d, err := chooseDevices(c, nixlHelper())(t.Context()); err != nil || d != "lo" {
			t.Error(d, err)
		}
	}
	c, _ = written(t, "devices = \"auto\"\ninsecure = true\n", "[choice]\ndevices = \"mlx5_99:1\"\n")
	if d, err := chooseDevices(c, nixlHelper())(t.Context()); err == nil || d != "" || !strings.Contains(err.Error(), "mlx5_99:1, which this host does not have") {
		t.Error(d, err)
	}
}

func TestFindingsOfDevices(t *testing.T) {
	lo := topology.Device{Name: "lo", Kind: topology.Loopback, Virtual: true, Up: true, NUMA: -1}
	nic := topology.Device{Name: "eth0", Kind: topology.Ethernet, Up: true, State: "up", NUMA: 0, Addresses: someAddress}
	veth := topology.Device{Name: "eth0", Kind: topology.Veth, Up: true, State: "up", NUMA: -1, Virtual: true, Addresses: someAddress}
	docker := topology.Device{Name: "docker0", Kind: topology.Bridge, Up: true, State: "up", NUMA: -1, Virtual: true, Addresses: someAddress}
	port := topology.Device{Name: "mlx5_0:1", Kind: topology.RoCE, Up: true, State: "active", NUMA: 0}
	down := topology.Device{Name: "mlx5_1:1", Kind: topology.RoCE, State: "down", NUMA: 0}
	hidden := topology.Device{Name: "mlx5_0:1", Kind: topology.RoCE, Up: true, State: "active", Missing: "/dev/infiniband/uverbs0"}
	soft := topology.Device{Name: "rxe0:1", Kind: topology.RoCE, Up: true, State: "active", NUMA: -1, Virtual: true}
	gpu := topology.GPU{NUMA: 1}
	const auto, far = "devices = \"auto\"\ninsecure = true\n", "peers = [\"far=10.0.0.9:1\"]\ninsecure = true\n"
	name := func(d string) string { return "devices = \"" + d + "\"\ninsecure = true\n" }
	for _, c := range []struct {
		what, table, topo string
		host              topology.Host
		id                string
		want              finding.Severity
		mention           string
	}{
		{"nothing goes out", "", "", host(nil, lo), "topology.devices", finding.OK, "no fabric"},
		{"loopback, a peer elsewhere, a NIC", far, "", host(nil, lo, nic), "topology.devices", finding.Warn, "far"},
		{"loopback, a peer elsewhere, no NIC", far, "", host(nil, lo), "topology.devices", finding.Warn, "far"},
		{"loopback, a store of this host", "peers = [\"near=tcpstore://x\"]\ntcpstore = \"127.0.0.1:29500\"\n", "", host(nil, lo, nic), "topology.devices", finding.OK, "no fabric"},
		{"loopback, a listener of this host", "peers = [\"near=listener://x\"]\nlisten = \"127.0.0.1:8800\"\n", "", host(nil, lo, nic), "topology.devices", finding.OK, "no fabric"},
		{"loopback, a store elsewhere", "peers = [\"far=etcd://x\"]\netcd = [\"127.0.0.1:2379\", \"10.0.0.9:2379\"]\ninsecure = true\n", "", host(nil, lo, nic), "topology.devices", finding.Warn, "far"},
		{"a choice", auto, "", host(nil, lo, nic), "topology.devices", finding.OK, "eth0"},
		{"no choice", auto, "", host(nil, lo, docker), "topology.devices", finding.Err, "there is none to choose"},
		{"a container", auto, "", host(nil, lo, veth), "topology.devices", finding.Warn, "virtual devices only"},
		{"a container whose file says so", auto, "[choice]\ndevices = \"eth0\"\n", host(nil, lo, veth), "topology.devices", finding.OK, "overrides"},
		{"the file", auto, "[choice]\ndevices = \"eth0\"\n", host(nil, lo, veth), "topology.file", finding.OK, "overrides the choice: eth0"},
		{"a wrong file", auto, "[choice]\n", host(nil, lo, veth), "topology.file", finding.Err, "devices is missing"},
		{"everything", name("all"), "", host(nil, lo, nic, docker), "topology.devices", finding.Warn, "bridge"},
		{"a name that is not there", name("eth9"), "", host(nil, lo, nic), "topology.devices", finding.Err, "no eth9"},
		{"a port that is down", name("mlx5_1"), "", host(nil, lo, down), "topology.devices", finding.Err, "is down"},
		{"a port that the container was not given", name("mlx5_0:1"), "", host(nil, lo, hidden), "topology.devices", finding.Err, "/dev/infiniband/uverbs0 of mlx5_0:1 is not here"},
		{"software RDMA", name("rxe0:1"), "", host(nil, lo, soft), "topology.devices", finding.Warn, "by software"},
		{"a bridge", name("docker0"), "", host(nil, lo, docker), "topology.devices", finding.Warn, "virtual"},
		{"what is there", name("lo,eth0"), "", host(nil, lo, nic), "topology.devices", finding.OK, "up"},
		{"an inactive port beside one that is chosen", auto, "", host(nil, lo, port, down), "topology.ports", finding.Warn, "mlx5_1:1 is down"},
		{"each port active", auto, "", host(nil, lo, port, soft), "topology.ports", finding.OK, "active"},
		{"a NIC on another node than the GPU", auto, "", host([]topology.GPU{gpu}, lo, port), "topology.numa", finding.Warn, "another node"},
		{"a NIC beside a GPU", auto, "", host([]topology.GPU{gpu, {NUMA: 0}}, lo, port), "topology.numa", finding.OK, "near"},
	} {
		cfg, _ := written(t, c.table, c.topo)
		h := &finding.Host{Config: cfg, Devices: func() (topology.Host, error) { return c.host, nil }}
		found := false
		for _, f := range finding.Run(h, topologyChecks) {
			if f.ID != c.id {
				continue
			}
			found = true
			if f.Severity != c.want || !strings.Contains(f.Subject+" "+f.Reason, c.mention) || (c.want != finding.OK) != (f.Fix != "") {
				t.Errorf("%s: %+v, want %v with %q", c.what, f, c.want, c.mention)
			}
		}
		if !found {
			t.Errorf("%s: no finding %s", c.what, c.id)
		}
	}
	cfg, _ := written(t, auto, "")
	h := &finding.Host{Config: cfg, Devices: func() (topology.Host, error) { return topology.Host{}, errors.New("no sysfs") }}
	if f := finding.Run(h, topologyChecks)[0]; f.ID != "topology.devices" || !strings.Contains(f.Reason, "no sysfs") {
		t.Errorf("%+v", f)
	}
}

var someAddress = []netip.Addr{netip.MustParseAddr("10.0.0.1")}

func host(gpus []topology.GPU, devices ...topology.Device) topology.Host {
	return topology.Host{Devices: devices, GPUs: gpus}
}

func nixlHelper() nixl.HelperConfig {
	return nixl.HelperConfig{Log: slog.New(slog.DiscardHandler)}
}
