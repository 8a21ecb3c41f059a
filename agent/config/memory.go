package config

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// AutoShare is the share of free memory that capacity "auto" takes. The other
// half is for the engine beside us, staging rings and the page cache.
const AutoShare = 0.5

// Memory is what a host, or the container around us, has left. Zero means not
// known.
type Memory struct {
	Available   uint64 // bytes: MemAvailable of /proc/meminfo
	CgroupLimit uint64 // bytes: that limit of our memory cgroups which leaves least, beyond which the kernel slows us down or ends us; 0: none
	CgroupUsed  uint64 // bytes used in the cgroup of that limit, without what the kernel takes back from files
	Total       uint64 // bytes: MemTotal of /proc/meminfo
}

// Most is what a process here can ever hold: the smaller of the machine's memory
// and the cgroup's limit, and which of them that is. 0: not known.
func (m Memory) Most() (bytes uint64, of string) {
	if m.CgroupLimit > 0 && (m.Total == 0 || m.CgroupLimit < m.Total) {
		return m.CgroupLimit, "the memory cgroup allows"
	}
	return m.Total, "this machine has"
}

// Free is what can still be taken: the smaller of both.
func (m Memory) Free() uint64 {
	if m.CgroupLimit == 0 {
		return m.Available
	}
	left := m.CgroupLimit - min(m.CgroupUsed, m.CgroupLimit)
	if m.Available == 0 {
		return left
	}
	return min(m.Available, left)
}

// Left is Free where that is known, and else no limit.
func (m Memory) Left() uint64 {
	if m.Available == 0 && m.CgroupLimit == 0 {
		return math.MaxUint64
	}
	return m.Free()
}

// auto computes an automatic capacity in whole extents, and says how.
func (m Memory) auto(extent uint64) (bytes uint64, note string) {
	bytes = uint64(float64(m.Free()) * AutoShare)
	bytes = max(bytes-bytes%extent, extent)
	note = fmt.Sprintf("auto: %.0f %% of %s free (MemAvailable %s", AutoShare*100, FormatBytes(m.Free()), FormatBytes(m.Available))
	if m.CgroupLimit > 0 {
		note += fmt.Sprintf(", memory cgroup %s of %s used", FormatBytes(m.CgroupUsed), FormatBytes(m.CgroupLimit))
	}
	return bytes, note + fmt.Sprintf("), in extents of %s, is %s", FormatBytes(extent), FormatBytes(bytes))
}

// HostMemory reads this host's memory.
func HostMemory() Memory { return ReadMemory(os.ReadFile) }

// ReadMemory reads memory through readFile: /proc/meminfo and the memory
// cgroups, version 2 or 1, that this process is in.
func ReadMemory(readFile func(string) ([]byte, error)) Memory {
	var m Memory
	info, _ := readFile("/proc/meminfo")
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
			kib, _ := strconv.ParseUint(f[1], 10, 53)
			m.Available = kib << 10
		} else if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseUint(f[1], 10, 53)
			m.Total = kib << 10
		}
	}
	groups, _ := readFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			m.within(readFile, "/sys/fs/cgroup", parts[2], "memory.max", "memory.current", "inactive_file")
			m.within(readFile, "/sys/fs/cgroup", parts[2], "memory.high", "memory.current", "inactive_file")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			m.within(readFile, "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
		}
	}
	return m
}

// within walks from a cgroup up to the root and keeps the limit that leaves the
// least. The use that the kernel counts includes the page cache, which grows up to
// the limit where an engine reads a model's files. idle names the part of it that
// the kernel gives up first; memfds, such as the arena, are never part of that.
func (m *Memory) within(readFile func(string) ([]byte, error), root, group, limit, used, idle string) {
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		l, ok := readNumber(readFile, path.Join(root, dir, limit))
		// Version 1 writes "no limit" as a number near 2^63.
		if ok && l < math.MaxInt64/2 {
			u, _ := readNumber(readFile, path.Join(root, dir, used))
			u -= min(u, readStat(readFile, path.Join(root, dir, "memory.stat"), idle))
			if m.CgroupLimit == 0 || l-min(u, l) < m.CgroupLimit-min(m.CgroupUsed, m.CgroupLimit) {
				m.CgroupLimit, m.CgroupUsed = l, u
			}
		}
		if dir == "/" {
			return
		}
	}
}

func readNumber(readFile func(string) ([]byte, error), name string) (uint64, bool) {
	b, err := readFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// readStat is a line of a file of names and numbers; 0: not known.
func readStat(readFile func(string) ([]byte, error), name, key string) uint64 {
	b, _ := readFile(name)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}
