package measure

import (
	"os"
	"slices"
	"strings"
	"time"
)

// Quantile is the nearest-rank quantile of d, 0 <= q < 1; 0 of nothing.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// Latency writes seconds for people, with about three digits.
func Latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
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
