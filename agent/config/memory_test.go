package config

import (
	"io/fs"
	"strings"
	"testing"
)

// files is a host's /proc and /sys.
func hostOf(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if s, ok := files[name]; ok {
			return []byte(s), nil
		}
		return nil, fs.ErrNotExist
	}
}

func TestReadMemory(t *testing.T) {
	const info = "MemTotal:       16000000 kB\nMemAvailable:    8388608 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Memory
		free  uint64
	}{
		{"nothing is known", nil, Memory{}, 0},
		{"no cgroup", map[string]string{"/proc/meminfo": info}, Memory{Available: 8 << 30}, 8 << 30},
		{"version 2, no limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/memory.max": "max\n",
		}, Memory{Available: 8 << 30}, 8 << 30},
		{"version 2, the parent leaves less", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/a/b\n",
			"/sys/fs/cgroup/a/b/memory.max": "4294967296\n", "/sys/fs/cgroup/a/b/memory.current": "0\n",
			"/sys/fs/cgroup/a/memory.max": "5368709120\n", "/sys/fs/cgroup/a/memory.current": "4294967296\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 5 << 30, CgroupUsed: 4 << 30}, 1 << 30},
		{"version 2, the kernel slows us down before the limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/memory.max": "4294967296\n",
			"/sys/fs/cgroup/a/memory.high": "3221225472\n", "/sys/fs/cgroup/a/memory.current": "1073741824\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 3 << 30, CgroupUsed: 1 << 30}, 2 << 30},
		{"version 1, no limit is a huge number", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "4:cpu,memory:/x\n1:name=systemd:/y\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes":   "2147483648\n", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 2 << 30, CgroupUsed: 1 << 30}, 1 << 30},
		{"used beyond the limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "100\n", "/sys/fs/cgroup/memory.current": "200\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 100, CgroupUsed: 200}, 0},
		{"version 2, files that were read fill the cgroup", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "4294967296\n",
			"/sys/fs/cgroup/memory.current": "4294967296\n",
			"/sys/fs/cgroup/memory.stat":    "anon 536870912\nfile 3758096384\nshmem 536870912\ninactive_anon 1073741824\ninactive_file 2147483648\nactive_file 1073741824\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 4 << 30, CgroupUsed: 2 << 30}, 2 << 30},
		{"version 1, files that were read below a parent's limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "4:memory:/x\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "4294967296\n",
			"/sys/fs/cgroup/memory/memory.stat": "inactive_file 4096\ntotal_inactive_file 3221225472\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 4 << 30, CgroupUsed: 1 << 30}, 3 << 30},
		{"more of files than is used: the two were not read at once", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "100\n", "/sys/fs/cgroup/memory.current": "50\n",
			"/sys/fs/cgroup/memory.stat": "inactive_file 60\n",
		}, Memory{Available: 8 << 30, CgroupLimit: 100}, 100},
	} {
		got := ReadMemory(hostOf(c.files))
		if c.files != nil {
			c.want.Total = 16000000 << 10
		}
		if got != c.want || got.Free() != c.free {
			t.Errorf("%s: %+v with %d free, want %+v with %d", c.name, got, got.Free(), c.want, c.free)
		}
	}
}

func TestAutoCapacityIsHalfOfWhatIsFreeInWholeExtents(t *testing.T) {
	for _, c := range []struct {
		m    Memory
		want uint64
	}{
		{Memory{Available: 8 << 30}, 4 << 30},
		{Memory{Available: 1<<30 + 1<<20}, 512 << 20},
		{Memory{Available: 8 << 30, CgroupLimit: 2 << 30, CgroupUsed: 1 << 30}, 512 << 20},
		{Memory{CgroupLimit: 2 << 30}, 1 << 30},
		{Memory{}, 64 << 20},
	} {
		got, note := c.m.auto(64 << 20)
		if got != c.want || !strings.HasSuffix(note, "is "+FormatBytes(c.want)) || !strings.HasPrefix(note, "auto: 50 %") {
			t.Errorf("%+v: %d, %q; want %d", c.m, got, note, c.want)
		}
	}
}

func TestAnArenaThatCannotFitIsSaid(t *testing.T) {
	machine := Memory{Total: 23 << 30, Available: 20 << 30}
	container := Memory{Total: 256 << 30, Available: 200 << 30, CgroupLimit: 8 << 30}
	for _, c := range []struct {
		capacity         string
		memory           Memory
		warning, problem string
	}{
		{"16GiB", machine, "", ""},
		{"60GiB", machine, "60 GiB is more than the 23 GiB that this machine has", ""},
		{"60TiB", machine, "", "60 TiB is more than 8 times the 23 GiB that this machine has: is the unit right?"},
		{"16GiB", container, "16 GiB is more than the 8 GiB that the memory cgroup allows", ""},
		{"60GiB", Memory{}, "", ""}, // nothing is known
	} {
		_, warnings, err := Load(Options{Flags: map[string]string{"kv_memory.capacity_bytes": c.capacity}, Memory: func() Memory { return c.memory }})
		text := ""
		for _, w := range warnings {
			text += w.String()
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		if (text == "") != (c.warning == "") || !strings.Contains(text, c.warning) || (said == "") != (c.problem == "") || !strings.Contains(said, c.problem) {
			t.Errorf("%s with %+v: warnings %q, error %q", c.capacity, c.memory, text, said)
		}
	}
}
