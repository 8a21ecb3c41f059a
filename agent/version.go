package agent

import "runtime/debug"

// version is set by the linker for a release (-X meridian/agent.version=v1.2.3).
var version string

// BuildVersion is the version of the running program: a release's, or the one
// that the Go tool stamps.
func BuildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
