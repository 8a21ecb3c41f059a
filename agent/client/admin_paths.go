package client

import (
	"os"
	"path/filepath"
	"strconv"
)

// DefaultAdminSocket is where a daemon serves its admin API, and where a
// client looks for it, when nobody said otherwise.
func DefaultAdminSocket() string {
	return filepath.Join(runtimeDir(os.Getenv, os.Getuid()), "admin.sock")
}

// DefaultEngineSocket is the same for the engine's block socket.
func DefaultEngineSocket() string {
	return filepath.Join(runtimeDir(os.Getenv, os.Getuid()), "engine.sock")
}

// runtimeDir is /run/meridian for root, else below the user's own runtime
// directory, else a directory of that user below the temporary one. The daemon
// and its clients must come to the same answer, so only what both see counts.
func runtimeDir(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/run/meridian"
	}
	if d := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "meridian")
	}
	return filepath.Join(os.TempDir(), "meridian-"+strconv.Itoa(uid))
}
