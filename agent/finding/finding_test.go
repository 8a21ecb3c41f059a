package finding

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/config"
)

// healthy is a host on which every check is OK.
func healthy() *Host {
	return hostWith(map[string]string{
		"/proc/sys/net/ipv4/tcp_congestion_control":                        "cubic\n",
		"/proc/sys/net/ipv4/tcp_available_congestion_control":              "reno cubic bbr\n",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
		"/proc/meminfo": "MemAvailable: 8388608 kB\n",
	})
}

func hostWith(files map[string]string) *Host {
	return &Host{
		Env: []string{"HOME=/root"},
		ReadFile: func(name string) ([]byte, error) {
			if s, ok := files[name]; ok {
				return []byte(s), nil
			}
			return nil, fs.ErrNotExist
		},
		Mode:     func(string) (fs.FileMode, error) { return 0o600, nil },
		Limit:    func(int) (uint64, error) { return unix.RLIM_INFINITY, nil },
		Memfd:    func() error { return nil },
		Synced:   func() (bool, error) { return true, nil },
		ShmBytes: func() (uint64, error) { return 1 << 30, nil },
	}
}

// configured is a configuration with what text says.
func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meridian.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Options{Path: path, Memory: func() config.Memory { return config.Memory{Available: 4 << 30} }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, h *Host, id string) Finding {
	t.Helper()
	for _, f := range Run(h) {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no finding %s", id)
	return Finding{}
}

func TestAHealthyHostHasNoFindings(t *testing.T) {
	for _, c := range []*config.Config{nil, configured(t, "")} {
		h := healthy()
		h.Config = c
		fs := Run(h)
		if Worst(fs) != OK {
			t.Errorf("findings %+v", fs)
		}
		if len(fs) != len(Checks()) {
			t.Errorf("%d findings of %d checks", len(fs), len(Checks()))
		}
	}
}

// Each case turns one thing bad; TestAHealthyHostHasNoFindings is the other way.
func TestEachFindingFires(t *testing.T) {
	far := "[link]\ninsecure = true\nlisten = [\"tcp://127.0.0.1:1\"]\n[[link.peer]]\nname = \"p1\"\ntenants = [\"t\"]\naddress = \"tcp://10.0.0.2:1\"\n"
	nobody := "[[link.peer]]\nname = \"p1\"\ntenants = [\"t\"]\n"
	split := "[llama]\nmodel = \"m.gguf\"\nserver = \"llama-server\"\nrole = \"decode\"\npartner = \"http://127.0.0.1:8080\"\n"
	psk := "[link]\npsk = \"5f1c0a9be47d3862a1f0c95d7e3b6842\"\n"
	for _, c := range []struct {
		name, id, config string
		change           func(*Host)
		want             Severity
		mention          string
	}{
		{"few open files", "limits.nofile", "", func(h *Host) { h.Limit = limitOf(unix.RLIMIT_NOFILE, 256) }, Err, "320 open files"},
		{"open files unreadable", "limits.nofile", "", func(h *Host) { h.Limit = func(int) (uint64, error) { return 0, errors.New("EPERM") } }, Warn, "EPERM"},
		{"memlock with UCX", "limits.memlock", "", func(h *Host) {
			h.Limit = limitOf(unix.RLIMIT_MEMLOCK, 65536)
			h.Env = append(h.Env, "UCX_LOG_LEVEL=info")
		}, Warn, "64 KiB"},
		{"memlock without", "limits.memlock", "", func(h *Host) { h.Limit = limitOf(unix.RLIMIT_MEMLOCK, 65536) }, OK, "the link does not"},
		{"no memfd", "kernel.memfd", "", func(h *Host) { h.Memfd = func() error { return errors.New("seals: EINVAL") } }, Err, "seals: EINVAL"},
		{"bbr", "net.congestion", "", file("/proc/sys/net/ipv4/tcp_congestion_control", "bbr"), Warn, "tcp_congestion_control = bbr"},
		{"bbr, and cubic of our own", "net.congestion", "[link]\ncongestion = \"cubic\"\n", file("/proc/sys/net/ipv4/tcp_congestion_control", "bbr"), OK, "link.congestion = cubic"},
		{"congestion control that is absent", "net.congestion", "[link]\ncongestion = \"vegas\"\n", nil, Err, "reno, cubic, bbr"},
		{"far peers, loopback listener", "net.advertised", far, nil, Warn, "p1"},
		{"peers must dial us, no listener", "net.advertised", nobody, nil, Err, "we listen nowhere"},
		{"a partner and nobody to pull blocks from", "llama.partner_link", split, nil, Err, "llama.partner = http://127.0.0.1:8080"},
		{"a partner that must dial us", "llama.partner_link", "[link]\nlisten = [\"unix:///run/meridian/link.sock\"]\n" + split, nil, Warn, "dials"},
		{"a partner that is a peer", "llama.partner_link", split + nobody, nil, OK, "can be a peer"},
		{"slow clock", "clock.source", "", file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"), Warn, "hpet"},
		{"clock adrift", "clock.sync", "", func(h *Host) { h.Synced = func() (bool, error) { return false, nil } }, Warn, "not synchronised"},
		{"clock unreadable", "clock.sync", "", func(h *Host) { h.Synced = func() (bool, error) { return false, errors.New("EPERM") } }, OK, "EPERM"},
		{"capacity above the cgroup", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"3GiB\"\n", func(h *Host) {
			file("/proc/self/cgroup", "0::/\n")(h)
			file("/sys/fs/cgroup/memory.max", "2147483648")(h)
		}, Err, "2 GiB"},
		{"capacity above what the machine has", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"60GiB\"\n", file("/proc/meminfo", "MemTotal: 24117248 kB\nMemAvailable: 8388608 kB\n"), Err, "this machine has 23 GiB"},
		{"capacity above what is free", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"16GiB\"\n", nil, Warn, "16 GiB"},
		{"small shm", "container.shm", "", func(h *Host) { h.ShmBytes = func() (uint64, error) { return 64 << 20, nil } }, OK, "does not matter"},
		{"no shm", "container.shm", "", func(h *Host) { h.ShmBytes = func() (uint64, error) { return 0, fs.ErrNotExist } }, OK, "not needed"},
		{"readable secret", "config.mode", psk, func(h *Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, Warn, "0644"},
		{"readable token", "config.mode", "[llama]\nmodel = \"m\"\nserver = \"s\"\ntoken = \"t\"\n", func(h *Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, Warn, "0644"},
		{"mode unreadable", "config.mode", psk, func(h *Host) { h.Mode = func(string) (fs.FileMode, error) { return 0, fs.ErrNotExist } }, Warn, "not exist"},
		{"readable, no secret", "config.mode", "", func(h *Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, OK, "0644"},
		{"injected UCX_TLS", "env.UCX_TLS", "", env("UCX_TLS=tcp"), Warn, "no RDMA transport"},
		{"UCX_TLS with RDMA", "env.UCX_TLS", "", env("UCX_TLS=rc_x,tcp,self"), OK, "the transports that UCX may use"},
		{"UCX_TLS that excludes", "env.UCX_TLS", "", env("UCX_TLS=^tcp"), OK, "the transports that UCX may use"},
		{"UCX on a bridge", "env.UCX_NET_DEVICES", "", env("UCX_NET_DEVICES=docker0"), Warn, "docker0"},
		{"UCX on a NIC", "env.UCX_NET_DEVICES", "", env("UCX_NET_DEVICES=mlx5_0:1"), OK, "devices"},
		{"no emulation", "env.UCX_PROTO_EMULATION_ENABLE", "", env("UCX_PROTO_EMULATION_ENABLE=n"), Warn, "misleading"},
		{"emulation", "env.UCX_PROTO_EMULATION_ENABLE", "", env("UCX_PROTO_EMULATION_ENABLE=y"), OK, "emulates"},
		{"Mooncake publishes a wildcard", "env.MC_TCP_BIND_ADDRESS", "", env("MC_TCP_BIND_ADDRESS=0.0.0.0"), Warn, "wildcard"},
		{"Mooncake publishes an address", "env.MC_TCP_BIND_ADDRESS", "", env("MC_TCP_BIND_ADDRESS=10.0.0.1"), OK, "publishes"},
		{"forced TCP", "env.MC_FORCE_TCP", "", env("MC_FORCE_TCP=1"), Warn, "RDMA is not used"},
		{"not forced", "env.MC_FORCE_TCP", "", env("MC_FORCE_TCP=0"), OK, "TCP"},
		{"no pool", "env.MC_TCP_ENABLE_CONNECTION_POOL", "", env("MC_TCP_ENABLE_CONNECTION_POOL=0"), Warn, "each transfer"},
		{"pool", "env.MC_TCP_ENABLE_CONNECTION_POOL", "", env("MC_TCP_ENABLE_CONNECTION_POOL=1"), OK, "keeps"},
		{"old framing", "env.MC_TCP_PROTO", "", env("MC_TCP_PROTO=1"), Warn, "no status"},
		{"new framing", "env.MC_TCP_PROTO", "", env("MC_TCP_PROTO=2"), OK, "version of Mooncake"},
		{"other engine", "env.MC_USE_TENT", "", env("MC_USE_TENT=1"), Warn, "classic"},
		{"unknown variable of theirs", "env.NIXL_NEW_THING", "", env("NIXL_NEW_THING=1"), OK, "does not know"},
		{"unknown variable of ours", "env.MERIDIAN_LNIK_LANES", "", env("MERIDIAN_LNIK_LANES=1"), Err, "did you mean MERIDIAN_LINK_LANES?"},
		{"variable of ours", "env.MERIDIAN_LINK_LANES", "", env("MERIDIAN_LINK_LANES=2"), OK, "sets link.lanes"},
		{"variable of the command line", "env.MERIDIAN_CLI_OUTPUT", "", env("MERIDIAN_CLI_OUTPUT=json"), OK, "command line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := healthy()
			h.Config = configured(t, c.config)
			if c.change != nil {
				c.change(h)
			}
			f := get(t, h, c.id)
			if f.Severity != c.want || !strings.Contains(f.Subject+" "+f.Reason, c.mention) {
				t.Errorf("got %+v, want %s that mentions %q", f, c.want, c.mention)
			}
			if f.Severity != OK && f.Fix == "" {
				t.Errorf("no fix in %+v", f)
			}
		})
	}
}

func limitOf(resource int, n uint64) func(int) (uint64, error) {
	return func(r int) (uint64, error) {
		if r == resource {
			return n, nil
		}
		return unix.RLIM_INFINITY, nil
	}
}

func file(name, text string) func(*Host) {
	return func(h *Host) {
		next := h.ReadFile
		h.ReadFile = func(n string) ([]byte, error) {
			if n == name {
				return []byte(text), nil
			}
			return next(n)
		}
	}
}

func env(e string) func(*Host) { return func(h *Host) { h.Env = append(h.Env, e) } }

func TestSecretsOfTheEnvironmentAreNotShown(t *testing.T) {
	h := healthy()
	h.Env = []string{"MERIDIAN_LINK_PSK=5f1c0a9be47d3862a1f0c95d7e3b6842", "MC_REDIS_PASSWORD=5f1c0a9be47d3862a1f0c95d7e3b6842"}
	for _, f := range Run(h) {
		if strings.Contains(f.Subject+f.Reason+f.Fix, "5f1c0a9be47d3862a1f0c95d7e3b6842") {
			t.Errorf("%+v", f)
		}
	}
	if f := get(t, h, "env.MERIDIAN_LINK_PSK"); f.Subject != "MERIDIAN_LINK_PSK=[redacted]" || f.Severity != OK {
		t.Errorf("%+v", f)
	}
}

func TestTheWorstComesFirst(t *testing.T) {
	h := healthy()
	h.Env = []string{"UCX_TLS=tcp"}
	h.Memfd = func() error { return errors.New("no") }
	fs := Run(h)
	if fs[0].ID != "kernel.memfd" || fs[1].ID != "env.UCX_TLS" || fs[2].Severity != OK || Worst(fs) != Err {
		t.Errorf("%+v", fs[:3])
	}
}

func TestIDsAreUniqueAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.ID] || c.About == "" {
			t.Errorf("check %q: twice, or without a description", c.ID)
		}
		seen[c.ID] = true
	}
}

// The real host must be readable, whatever it is like.
func TestThisHostCanBeLookedAt(t *testing.T) {
	h := ThisHost(nil)
	if f := get(t, h, "kernel.memfd"); f.Severity != OK {
		t.Errorf("%+v: the arena's tests cannot pass here", f)
	}
	for _, f := range Run(h) {
		if f.ID == "" || f.Subject == "" || f.Reason == "" {
			t.Errorf("empty: %+v", f)
		}
	}
}
