package topology

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func must(t *testing.T, text string) *File {
	t.Helper()
	f, err := ReadFile(file(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAWrongTopologyFileIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"x = ": ":1: ",
		"[choice]\ndevices = \"eth0\"\nvia = \"x\"":                              "unknown key choice.via: a [[device]] has name",
		"[[device]]\nname = \"eth0\"\nspeed = 1":                                 "unknown key device.speed",
		"[[device]]\nname = \"\"\nnuma = 1":                                      `device[0]: name "" must be`,
		"[[device]]\nname = \"a,b\"\nnuma = 1":                                   `device[0]: name "a,b" must be`,
		"[[device]]\nname = \"eth0\"":                                            "device[0]: it says nothing of eth0",
		"[[device]]\nname = \"eth0\"\nnuma = -1":                                 "device[0]: numa = -1 must be from 0 to 1023",
		"[[device]]\nname = \"eth0\"\ngbits = 0":                                 "device[0]: gbits = 0 must be from 1",
		"[[device]]\nname = \"eth0\"\nskip = \" \"":                              "device[0]: skip must be a reason",
		"[[device]]\nname = \"a\"\nnuma = 1\n[[device]]\nname = \"a\"\nnuma = 1": "device[1]: a is there twice",
		"[choice]":                                           "choice: devices is missing",
		"[choice]\ndevices = \"all devices\"":                `choice: devices = "all devices"`,
		"[choice]\ndevices = \"a,\"":                         `"" must be the name of a device`,
		"[choice]\ndevices = \"a\"\nadvertise = \"here\"":    `advertise = "here" must be an IP address`,
		"[choice]\ndevices = \"a\"\nadvertise = \"0.0.0.0\"": "no peer can dial",
		"[choice]\ndevices = \"a\"\nnuma = 4096":             "choice: numa = 4096",
		"[choice]\ndevices = 7":                              "incompatible types",
		"# " + strings.Repeat("x", maxFileBytes):             "more than 262144 bytes",
	} {
		if _, err := ReadFile(file(t, text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "topology.toml") {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.toml")); err == nil {
		t.Error("a file that is not there was read")
	}
	fifo := filepath.Join(t.TempDir(), "topology.toml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(fifo); err == nil || !strings.Contains(err.Error(), "not a plain file") {
		t.Error(err)
	}
}

func TestATopologyFileOverrides(t *testing.T) {
	s := newTree(t)
	s.mlx(port0+"/0000:01:00.0", 0, 0, nil, "10.0.0.1")
	s.mlx(port1+"/0000:81:00.0", 1, 1, nil, "10.0.0.2")
	if c, _ := s.choice(nil); c.Devices != "mlx5_0:1" || c.File != "" {
		t.Fatalf("%+v", c)
	}
	// What is known of a device.
	f := must(t, "[[device]]\nname = \"mlx5_0\"\nskip = \"storage traffic\"\n[[device]]\nname = \"gone0\"\nnuma = 1\n[[device]]\nname = \"mlx5_1:1\"\nnuma = 0\ngbits = 400\nvirtual = false\n")
	c, why := s.choice(f)
	if c.Devices != "mlx5_1:1" || c.NUMA != 0 || c.File != "" || why["mlx5_0:1"] != "the topology file: storage traffic" {
		t.Errorf("%+v", c)
	}
	h := s.read()
	f.Apply(&h)
	notes := strings.Join(h.Notes, "\n")
	for _, want := range []string{"overrides mlx5_0:1: never chosen", "names gone0, which this host does not have", "overrides mlx5_1:1: NUMA node 0, 400 Gb/s, not virtual"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q, want %q", notes, want)
		}
	}
	// The choice itself, of what would not be chosen.
	f = must(t, "[choice]\ndevices = \"lo,mlx5_1\"\nnuma = 1\nadvertise = \"10.0.0.9\"\n")
	c, why = s.choice(f)
	said := strings.Join(c.Reasons, "\n")
	if c.Devices != "lo,mlx5_1" || c.NUMA != 1 || c.Advertise.String() != "10.0.0.9" || c.File != f.Path || !strings.Contains(said, f.Path+" overrides the choice") ||
		!strings.Contains(said, "lo would not be chosen without it: loopback") {
		t.Errorf("%+v", c)
	}
	if why["mlx5_0:1"] != "the topology file has another one" {
		t.Error(why)
	}
	// One that this host does not have.
	f = must(t, "[choice]\ndevices = \"mlx5_9:1\"\n")
	h = s.read()
	if c := Choose(&h, f); c.Devices != "" || c.Err() == nil || !strings.Contains(c.Err().Error(), "mlx5_9:1, which this host does not have") {
		t.Errorf("%+v", c)
	}
}
