package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"meridian/internal/socketfile"
	"meridian/wire"
)

// adminBacklog is how many clients of the admin API may wait to be accepted.
const adminBacklog = 16

// listenPrivate listens on a Unix socket that only this user can open. A
// socket in use matches wire.CodeConfig.
func listenPrivate(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	ln, err := socketfile.ListenNet(path, 0o600, adminBacklog)
	if inUse := (*socketfile.InUseError)(nil); errors.As(err, &inUse) {
		return nil, fmt.Errorf("%w: %w", err, wire.CodeConfig)
	}
	return ln, err
}
