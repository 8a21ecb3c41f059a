package finding_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/config"
	"meridian/agent/finding"
	"meridian/agent/openers"
)

// healthy is a host on which every check is OK.
func healthy() *finding.Host {
	return hostWith(map[string]string{
		"/proc/sys/net/ipv4/tcp_congestion_control":                        "cubic\n",
		"/proc/sys/net/ipv4/tcp_available_congestion_control":              "reno cubic bbr\n",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
		"/proc/meminfo": "MemAvailable: 8388608 kB\n",
	})
}

func hostWith(files map[string]string) *finding.Host {
	return &finding.Host{
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
	c, _, err := openers.Load(config.Options{Path: path, Memory: func() config.Memory { return config.Memory{Available: 4 << 30} }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, h *finding.Host, id string) finding.Finding {
	t.Helper()
	for _, f := range openers.Findings(h) {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no finding %s", id)
	return finding.Finding{}
}

func TestAHealthyHostHasNoFindings(t *testing.T) {
	for _, c := range []*config.Config{nil, configured(t, "")} {
		h := healthy()
		h.Config = c
		fs := openers.Findings(h)
		if fs[0].Severity != finding.OK { // the worst
			t.Errorf("findings %+v", fs)
		}
		if len(fs) != len(openers.Checks()) {
			t.Errorf("%d findings of %d checks", len(fs), len(openers.Checks()))
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
		change           func(*finding.Host)
		want             finding.Severity
		mention          string
	}{
		{"few open files", "limits.nofile", "", func(h *finding.Host) { h.Limit = limitOf(unix.RLIMIT_NOFILE, 256) }, finding.Err, "2816 open files"},
		{"open files unreadable", "limits.nofile", "", func(h *finding.Host) { h.Limit = func(int) (uint64, error) { return 0, errors.New("EPERM") } }, finding.Warn, "EPERM"},
		{"memlock with UCX", "limits.memlock", "", func(h *finding.Host) {
			h.Limit = limitOf(unix.RLIMIT_MEMLOCK, 65536)
			h.Env = append(h.Env, "UCX_LOG_LEVEL=info")
		}, finding.Warn, "64 KiB"},
		{"memlock without", "limits.memlock", "", func(h *finding.Host) { h.Limit = limitOf(unix.RLIMIT_MEMLOCK, 65536) }, finding.OK, "those over TCP do not"},
		{"no memfd", "kernel.memfd", "", func(h *finding.Host) { h.Memfd = func() error { return errors.New("seals: EINVAL") } }, finding.Err, "seals: EINVAL"},
		{"bbr", "net.congestion", "", file("/proc/sys/net/ipv4/tcp_congestion_control", "bbr"), finding.Warn, "tcp_congestion_control = bbr"},
		{"bbr, and cubic of our own", "net.congestion", "[link]\ncongestion = \"cubic\"\n", file("/proc/sys/net/ipv4/tcp_congestion_control", "bbr"), finding.OK, "link.congestion = cubic"},
		{"congestion control that is absent", "net.congestion", "[link]\ncongestion = \"vegas\"\n", nil, finding.Err, "reno, cubic, bbr"},
		{"far peers, loopback listener", "net.advertised", far, nil, finding.Warn, "p1"},
		{"peers must dial us, no listener", "net.advertised", nobody, nil, finding.Err, "we listen nowhere"},
		{"a partner and nobody to pull blocks from", "llama.partner_link", split, nil, finding.Err, "llama.partner = http://127.0.0.1:8080"},
		{"a partner that must dial us", "llama.partner_link", "[link]\nlisten = [\"unix:///run/meridian/link.sock\"]\n" + split, nil, finding.Warn, "dials"},
		{"a partner that is a peer", "llama.partner_link", split + nobody, nil, finding.OK, "can be a peer"},
		{"slow clock", "clock.source", "", file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"), finding.Warn, "hpet"},
		{"clock adrift", "clock.sync", "", func(h *finding.Host) { h.Synced = func() (bool, error) { return false, nil } }, finding.Warn, "not synchronised"},
		{"clock unreadable", "clock.sync", "", func(h *finding.Host) { h.Synced = func() (bool, error) { return false, errors.New("EPERM") } }, finding.OK, "EPERM"},
		{"capacity above the cgroup", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"3GiB\"\n", func(h *finding.Host) {
			file("/proc/self/cgroup", "0::/\n")(h)
			file("/sys/fs/cgroup/memory.max", "2147483648")(h)
		}, finding.Err, "2 GiB"},
		{"capacity above what the machine has", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"60GiB\"\n", file("/proc/meminfo", "MemTotal: 24117248 kB\nMemAvailable: 8388608 kB\n"), finding.Err, "this machine has 23 GiB"},
		{"capacity above what is free", "memory.capacity", "[kv_memory]\ncapacity_bytes = \"16GiB\"\n", nil, finding.Warn, "16 GiB"},
		{"no huge pages", "memory.huge_pages", "", file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n"), finding.OK, "made of small pages"},
		{"huge pages of the size's own", "memory.huge_pages", "", func(h *finding.Host) {
			file("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled", "always inherit within_size [advise] never\n")(h)
			file("/proc/self/smaps_rollup", "Rss: 9 kB\nShmemPmdMapped:     4096 kB\nFilePmdMapped: 7 kB\n")(h)
		}, finding.OK, "4 MiB of this process"},
		{"huge pages as for all sizes", "memory.huge_pages", "", func(h *finding.Host) {
			file("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never\n")(h)
			file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[always] within_size advise never deny force\n")(h)
		}, finding.OK, "shmem_enabled = always"},
		{"small shm", "container.shm", "", func(h *finding.Host) { h.ShmBytes = func() (uint64, error) { return 64 << 20, nil } }, finding.OK, "does not matter"},
		{"no shm", "container.shm", "", func(h *finding.Host) { h.ShmBytes = func() (uint64, error) { return 0, fs.ErrNotExist } }, finding.OK, "not needed"},
		{"readable secret", "config.mode", psk, func(h *finding.Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, finding.Warn, "0644"},
		{"readable token", "config.mode", "[llama]\nmodel = \"m\"\nserver = \"s\"\ntoken = \"t\"\n", func(h *finding.Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, finding.Warn, "0644"},
		{"mode unreadable", "config.mode", psk, func(h *finding.Host) { h.Mode = func(string) (fs.FileMode, error) { return 0, fs.ErrNotExist } }, finding.Warn, "not exist"},
		{"readable, no secret", "config.mode", "", func(h *finding.Host) { h.Mode = func(string) (fs.FileMode, error) { return 0o644, nil } }, finding.OK, "0644"},
		{"injected UCX_TLS", "env.UCX_TLS", "", env("UCX_TLS=tcp"), finding.Warn, "no RDMA transport"},
		{"UCX_TLS with RDMA", "env.UCX_TLS", "", env("UCX_TLS=rc_x,tcp,self"), finding.OK, "the transports that UCX may use"},
		{"UCX_TLS that excludes", "env.UCX_TLS", "", env("UCX_TLS=^tcp"), finding.OK, "the transports that UCX may use"},
		{"UCX on a bridge", "env.UCX_NET_DEVICES", "", env("UCX_NET_DEVICES=docker0"), finding.Warn, "docker0"},
		{"UCX on a NIC", "env.UCX_NET_DEVICES", "", env("UCX_NET_DEVICES=mlx5_0:1"), finding.OK, "devices"},
		{"no emulation", "env.UCX_PROTO_EMULATION_ENABLE", "", env("UCX_PROTO_EMULATION_ENABLE=n"), finding.Warn, "misleading"},
		{"emulation", "env.UCX_PROTO_EMULATION_ENABLE", "", env("UCX_PROTO_EMULATION_ENABLE=y"), finding.OK, "emulates"},
		{"Mooncake publishes a wildcard", "env.MC_TCP_BIND_ADDRESS", "", env("MC_TCP_BIND_ADDRESS=0.0.0.0"), finding.Warn, "wildcard"},
		{"Mooncake publishes an address", "env.MC_TCP_BIND_ADDRESS", "", env("MC_TCP_BIND_ADDRESS=10.0.0.1"), finding.OK, "publishes"},
		{"forced TCP", "env.MC_FORCE_TCP", "", env("MC_FORCE_TCP=1"), finding.Warn, "RDMA is not used"},
		{"not forced", "env.MC_FORCE_TCP", "", env("MC_FORCE_TCP=0"), finding.OK, "TCP"},
		{"no pool", "env.MC_TCP_ENABLE_CONNECTION_POOL", "", env("MC_TCP_ENABLE_CONNECTION_POOL=0"), finding.Warn, "each transfer"},
		{"pool", "env.MC_TCP_ENABLE_CONNECTION_POOL", "", env("MC_TCP_ENABLE_CONNECTION_POOL=1"), finding.OK, "keeps"},
		{"old framing", "env.MC_TCP_PROTO", "", env("MC_TCP_PROTO=1"), finding.Warn, "no status"},
		{"new framing", "env.MC_TCP_PROTO", "", env("MC_TCP_PROTO=2"), finding.OK, "version of Mooncake"},
		{"other engine", "env.MC_USE_TENT", "", env("MC_USE_TENT=1"), finding.Warn, "classic"},
		{"unknown variable of theirs", "env.NIXL_NEW_THING", "", env("NIXL_NEW_THING=1"), finding.OK, "does not know"},
		{"unknown variable of ours", "env.MERIDIAN_LNIK_LANES", "", env("MERIDIAN_LNIK_LANES=1"), finding.Err, "did you mean MERIDIAN_LINK_LANES?"},
		{"variable of ours", "env.MERIDIAN_LINK_LANES", "", env("MERIDIAN_LINK_LANES=2"), finding.OK, "sets link.lanes"},
		{"variable of the command line", "env.MERIDIAN_CLI_OUTPUT", "", env("MERIDIAN_CLI_OUTPUT=json"), finding.OK, "command line"},
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
			if f.Severity != finding.OK && f.Fix == "" {
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

func file(name, text string) func(*finding.Host) {
	return func(h *finding.Host) {
		next := h.ReadFile
		h.ReadFile = func(n string) ([]byte, error) {
			if n == name {
				return []byte(text), nil
			}
			return next(n)
		}
	}
}

func env(e string) func(*finding.Host) { return func(h *finding.Host) { h.Env = append(h.Env, e) } }

func TestSecretsOfTheEnvironmentAreNotShown(t *testing.T) {
	h := healthy()
	h.Env = []string{"MERIDIAN_LINK_PSK=5f1c0a9be47d3862a1f0c95d7e3b6842", "MC_REDIS_PASSWORD=5f1c0a9be47d3862a1f0c95d7e3b6842"}
	for _, f := range openers.Findings(h) {
		if strings.Contains(f.Subject+f.Reason+f.Fix, "5f1c0a9be47d3862a1f0c95d7e3b6842") {
			t.Errorf("%+v", f)
		}
	}
	if f := get(t, h, "env.MERIDIAN_LINK_PSK"); f.Subject != "MERIDIAN_LINK_PSK=[redacted]" || f.Severity != finding.OK {
		t.Errorf("%+v", f)
	}
}

func TestTheWorstComesFirst(t *testing.T) {
	h := healthy()
	h.Env = []string{"UCX_TLS=tcp"}
	h.Memfd = func() error { return errors.New("no") }
	fs := openers.Findings(h)
	if fs[0].ID != "kernel.memfd" || fs[0].Severity != finding.Err || fs[1].ID != "env.UCX_TLS" || fs[2].Severity != finding.OK {
		t.Errorf("%+v", fs[:3])
	}
}

func TestIDsAreUniqueAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range openers.Checks() {
		if seen[c.ID] || c.About == "" {
			t.Errorf("check %q: twice, or without a description", c.ID)
		}
		seen[c.ID] = true
	}
}

// The real host must be readable, whatever it is like.
func TestThisHostCanBeLookedAt(t *testing.T) {
	h := finding.ThisHost(nil)
	if f := get(t, h, "kernel.memfd"); f.Severity != finding.OK {
		t.Errorf("%+v: the arena's tests cannot pass here", f)
	}
	for _, f := range openers.Findings(h) {
		if f.ID == "" || f.Subject == "" || f.Reason == "" {
			t.Errorf("empty: %+v", f)
		}
	}
}
