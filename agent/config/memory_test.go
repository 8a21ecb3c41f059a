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
		}, Memory{8 << 30, 5 << 30, 4 << 30}, 1 << 30},
		{"version 1, no limit is a huge number", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "4:cpu,memory:/x\n1:name=systemd:/y\n",
			"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes":   "2147483648\n", "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
		}, Memory{8 << 30, 2 << 30, 1 << 30}, 1 << 30},
		{"used beyond the limit", map[string]string{
			"/proc/meminfo": info, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "100\n", "/sys/fs/cgroup/memory.current": "200\n",
		}, Memory{8 << 30, 100, 200}, 0},
	} {
		got := ReadMemory(hostOf(c.files))
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
