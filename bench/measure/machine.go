package measure

import (
	"os"
	"slices"
	"strings"
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

// Congestion is cubic where the kernel has it, else empty, which stands for the
// kernel's own: bbr, a common default, halves what loopback carries.
func Congestion() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err == nil && slices.Contains(strings.Fields(string(b)), "cubic") {
		return "cubic"
	}
	return ""
}
