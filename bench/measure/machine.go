package measure

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"meridian/wire"
)

// Machine is the processor's name, and kernel the kernel's release, as Linux
// tells them; empty where it does not.
func Machine() (cpu, kernel string) {
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return cpu, kernel
}

// Host is where something was measured, as reports begin with it.
type Host struct {
	Machine string `json:"machine"`
	CPUs    int    `json:"cpus"`
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	Hash    string `json:"hash"` // the code path in use
}

// ThisHost is the one that this runs on.
func ThisHost() Host {
	h := Host{CPUs: runtime.NumCPU(), Go: runtime.Version(), Hash: wire.HashPath()}
	h.Machine, h.Kernel = Machine()
	return h
}

// Text is the host for people.
func (h Host) Text() string {
	return fmt.Sprintf("%s, %d CPUs, Linux %s, %s, BLAKE3 by %s", h.Machine, h.CPUs, h.Kernel, h.Go, h.Hash)
}

// CongestionName is a congestion control for people.
func CongestionName(s string) string { return cmp.Or(s, "the kernel's congestion control") }

// Congestion is cubic where the kernel has it, else empty, which stands for the
// kernel's own: bbr, a common default, halves what loopback carries.
func Congestion() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err == nil && slices.Contains(strings.Fields(string(b)), "cubic") {
		return "cubic"
	}
	return ""
}
