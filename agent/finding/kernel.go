package finding

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"meridian/agent/config"
)

// filesPerPeer: 17 connections (one for control and 16 for data), twice while they are
// replaced. filesPerSession: an engine's socket, its staging ring, an event descriptor
// and a pidfd. filesBase: segments, generation tables, listeners, logs.
const (
	filesPerPeer    = 2 * 17
	filesPerSession = 4
	filesBase       = 256
)

func checkOpenFiles(h *Host) Finding {
	soft, err := h.Limit(unix.RLIMIT_NOFILE)
	if err != nil {
		return Warned("RLIMIT_NOFILE", "the limit cannot be read: "+err.Error(), "check it with ulimit -n")
	}
	need := uint64(filesBase)
	if h.Config != nil {
		need += uint64(len(h.Config.Peers())*filesPerPeer + h.Config.Engine.MaxSessions*h.Config.Engine.MaxGroupSessions*filesPerSession)
	}
	subject := "RLIMIT_NOFILE = " + bound(soft, func(n uint64) string { return fmt.Sprint(n) })
	if soft < need {
		return Failed(subject, fmt.Sprintf("this configuration can need %d open files; beyond the limit connections are refused", need),
			"raise it: LimitNOFILE=65536 in the systemd unit, --ulimit nofile in a container")
	}
	return Fine(subject, fmt.Sprintf("this configuration needs at most %d", need))
}

func checkMemlock(h *Host) Finding {
	soft, err := h.Limit(unix.RLIMIT_MEMLOCK)
	if err != nil {
		return Warned("RLIMIT_MEMLOCK", "the limit cannot be read: "+err.Error(), "check it with ulimit -l")
	}
	subject := "RLIMIT_MEMLOCK = " + bound(soft, config.FormatBytes)
	registers := slices.ContainsFunc(h.Env, func(e string) bool {
		return strings.HasPrefix(e, "UCX_") || strings.HasPrefix(e, "NIXL_") || strings.HasPrefix(e, "MC_")
	})
	need := uint64(64 << 20)
	if h.Config != nil {
		need = h.Config.KVMemory.Capacity
	}
	switch {
	case soft >= need:
		return Fine(subject, "enough to register "+config.FormatBytes(need))
	case registers:
		return Warned(subject, "variables of NIXL, UCX or Mooncake are set, and these register memory with the NIC: beyond the limit they fall back to copies, or fail",
			"LimitMEMLOCK=infinity in the systemd unit, --ulimit memlock=-1 in a container")
	}
	return Fine(subject, "below the arena, which matters only to fabrics that register memory with a NIC; those over TCP do not")
}

func checkMemfd(h *Host) Finding {
	const subject = "memfd_create, F_SEAL_FUTURE_WRITE"
	if err := h.Memfd(); err != nil {
		return Failed(subject, "a segment cannot be made: "+err.Error(),
			"Linux 5.1 or later is needed, and a seccomp profile that allows memfd_create, fallocate and fcntl")
	}
	return Fine(subject, "a segment can be made, and nobody else can map it for writing")
}

func checkClockSource(h *Host) Finding {
	name := h.Trimmed("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	subject := "clocksource = " + orUnknown(name)
	switch name {
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies":
		return Warned(subject, "each reading of the time is a slow device access, and the data path reads it for each request",
			"use tsc (or kvm-clock, hyperv_clocksource_tsc_page in a VM); the kernel log says why it was rejected")
	case "":
		return Fine(subject, "the kernel does not say")
	}
	return Fine(subject, "read without entering the kernel, or nearly so")
}

func checkClockSync(h *Host) Finding {
	synced, err := h.Synced()
	switch {
	case err != nil:
		return Fine("clock", "its state cannot be read here: "+err.Error())
	case !synced:
		return Warned("clock", "not synchronised: certificates may be taken for expired, and logs of two nodes do not line up. Deadlines are safe: they travel as remaining time",
			"run chrony or systemd-timesyncd on the host")
	}
	return Fine("clock", "synchronised")
}

func checkCapacity(h *Host) Finding {
	m := config.ReadMemory(h.ReadFile)
	if h.Config == nil {
		return Fine("free memory = "+config.FormatBytes(m.Free()), "no configuration to compare with")
	}
	c := h.Config.KVMemory
	subject := fmt.Sprintf("kv_memory.capacity_bytes = %s, free memory = %s", config.FormatBytes(c.Capacity), config.FormatBytes(m.Free()))
	switch {
	case m.CgroupLimit > 0 && c.Capacity > m.CgroupLimit:
		return Failed(subject, fmt.Sprintf("the memory cgroup allows %s: the kernel kills the daemon when the arena fills", config.FormatBytes(m.CgroupLimit)),
			"raise the container's memory limit, or lower kv_memory.capacity_bytes")
	case m.Total > 0 && c.Capacity > m.Total:
		return Failed(subject, fmt.Sprintf("this machine has %s: the kernel kills the daemon when the arena fills", config.FormatBytes(m.Total)),
			"lower kv_memory.capacity_bytes, or set it to \"auto\"")
	case c.CapacityNote != "":
		return Fine(subject, c.CapacityNote)
	case m.Free() > 0 && c.Capacity > m.Free():
		return Warned(subject, "more than is free now: right for a daemon that already holds it, too much for one that starts",
			"lower kv_memory.capacity_bytes, or set it to \"auto\"")
	}
	return Fine(subject, "fits")
}

// checkHugePages looks for what the arena asks for (MADV_HUGEPAGE) and the kernel may
// refuse. Many hosts do, by default, so that is no warning.
func checkHugePages(h *Host) Finding {
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	from := "hugepages-2048kB/shmem_enabled" // since Linux 6.11; of amd64, and of arm64 with 4 KiB pages
	is := chosen(h.Trimmed(dir + from))
	if is == "" || is == "inherit" {
		from = "shmem_enabled"
		is = chosen(h.Trimmed(dir + from))
	}
	subject := "transparent_hugepage/" + from + " = " + orUnknown(is)
	switch is {
	case "":
		return Fine(subject, "the kernel does not say whether it has huge pages for memory files")
	case "never", "deny":
		return Fine(subject, "segments are made of small pages, which takes longer; where loads are larger than arena.ahead_bytes, advise lets the arena have huge ones")
	}
	mapped := uint64(0)
	for _, line := range strings.Split(h.Trimmed("/proc/self/smaps_rollup"), "\n") {
		if _, err := fmt.Sscanf(line, "ShmemPmdMapped: %d kB", &mapped); err == nil {
			break
		}
	}
	return Fine(subject, "segments are made of huge pages where the host has them: "+config.FormatBytes(mapped<<10)+" of this process are mapped so")
}

// chosen is the word in brackets of a file of /sys that lists the choices.
func chosen(choices string) string {
	_, rest, _ := strings.Cut(choices, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// bound shows a limit, which may be none.
func bound(n uint64, show func(uint64) string) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return show(n)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
