// Package finding holds the checks of a host that `mrdn doctor` and the daemon
// run: kernel limits, memory files and their seals, the environment of the
// transports, clock, containers. What a fabric looks at besides is with its opener.
//
// A check is a pure function of a Host, which is a view of the machine:
// ThisHost is the real one, tests make others, so that each finding is driven
// both ways. A finding has a stable id, says what was looked at with its
// value, why that matters, and what to do.
//
// The daemon's findings are about its own process, the command line's about
// the shell it runs in: limits and variables differ between the two, which is
// itself worth seeing.
//
// It may import the standard library, x/sys and agent/config. It must never
// change anything on the host, use the network, or show a secret.
package finding
