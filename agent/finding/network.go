package finding

import (
	"fmt"
	"strings"

	"meridian/agent/config"
)

// shmSmall is what container engines give /dev/shm unless told otherwise.
const shmSmall = 64 << 20

func checkShm(h *Host) Finding {
	n, err := h.ShmBytes()
	switch {
	case err != nil:
		return Fine("/dev/shm", "absent, and not needed: segments are memory files")
	case n <= shmSmall:
		return Fine("/dev/shm = "+config.FormatBytes(n), "small, and it does not matter here: segments are memory files and count against the memory cgroup. The engine beside us may need --shm-size")
	}
	return Fine("/dev/shm = "+config.FormatBytes(n), "not used: segments are memory files")
}

func checkConfigMode(h *Host) Finding {
	if h.Config == nil || h.Config.File == "" {
		return Fine("configuration", "no file is read")
	}
	mode, err := h.Mode(h.Config.File)
	if err != nil {
		return Warned(h.Config.File, "its mode cannot be read: "+err.Error(), "see that the file is there, and readable for the daemon")
	}
	subject := fmt.Sprintf("%s, mode %04o", h.Config.File, mode)
	if keys := h.Config.SecretsInFile(); len(keys) > 0 && mode&0o044 != 0 {
		return Warned(subject, "it holds "+strings.Join(keys, ", ")+", and others than its owner can read it", "chmod 600, or set secrets by their variables")
	}
	return Fine(subject, "no secret is open to others")
}
