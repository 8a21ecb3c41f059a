package finding

import (
	"cmp"
	"slices"
	"strings"
)

// Severity orders findings.
type Severity uint8

// OK needs nothing, Warn costs speed or safety, Err breaks something.
const (
	OK Severity = iota
	Warn
	Err
)

var severityNames = [...]string{"OK", "WARN", "ERR"}

// String is OK, WARN or ERR.
func (s Severity) String() string { return severityNames[min(int(s), len(severityNames)-1)] }

// MarshalText is String, for JSON and YAML.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result of one check.
type Finding struct {
	ID       string   `json:"id"` // stable: limits.nofile, env.UCX_TLS
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // what was looked at, with its value
	Reason   string   `json:"reason"`
	Fix      string   `json:"fix,omitempty"`
}

// Check is one entry of the registry. Its ID is that of its findings, or
// their prefix when it makes one a variable or listener.
type Check struct {
	ID    string
	About string // what it looks at
	Run   func(*Host) []Finding
}

// Checks lists the checks of every host, in the order in which they run. Those of
// fabrics are with their openers.
func Checks() []Check { return slices.Clone(checks) }

var checks = []Check{
	{"limits.nofile", "open files against what peers and engines need", One(checkOpenFiles)},
	{"limits.memlock", "locked memory against what registering fabrics need", One(checkMemlock)},
	{"kernel.memfd", "memory files with the seals that keep segments read-only", One(checkMemfd)},
	{"clock.source", "how the kernel reads time", One(checkClockSource)},
	{"clock.sync", "whether the clock is synchronised", One(checkClockSync)},
	{"memory.capacity", "arena capacity against free memory and the memory cgroup", One(checkCapacity)},
	{"memory.huge_pages", "whether the kernel makes segments of huge pages", One(checkHugePages)},
	{"container.shm", "/dev/shm, which containers keep small", One(checkShm)},
	{"config.mode", "who can read a configuration with secrets", One(checkConfigMode)},
	{"env", "MC_*, NIXL_*, UCX_* and MERIDIAN_* variables in force", checkEnvironment},
}

// One is the Run of a check that makes one finding.
func One(f func(*Host) Finding) func(*Host) []Finding {
	return func(h *Host) []Finding { return []Finding{f(h)} }
}

// Run makes checks of h. The worst findings come first; within a severity they are in
// the order of the checks.
func Run(h *Host, checks []Check) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, f := range c.Run(h) {
			if f.ID == "" {
				f.ID = c.ID
			}
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return out
}

// Fine is a finding that needs nothing.
func Fine(subject, reason string) Finding {
	return Finding{Severity: OK, Subject: subject, Reason: reason}
}

// Warned is one of severity Warn.
func Warned(subject, reason, fix string) Finding {
	return Finding{Severity: Warn, Subject: subject, Reason: reason, Fix: fix}
}

// Failed is one of severity Err.
func Failed(subject, reason, fix string) Finding {
	return Finding{Severity: Err, Subject: subject, Reason: reason, Fix: fix}
}

// Trimmed is a small file of /proc or /sys, or "" if it cannot be read.
func (h *Host) Trimmed(name string) string {
	b, err := h.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
