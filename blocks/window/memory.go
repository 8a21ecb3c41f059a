package window

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var pageSize = uint64(os.Getpagesize())

// memory is a window's memfd and the daemon's map of it. It is allocated here and
// sealed against shrinking and growing, or whoever maps it could make the daemon
// fault.
type memory struct {
	fd int
	b  []byte
}

func newMemory(size uint64) (*memory, error) {
	fd, err := unix.MemfdCreate("meridian-window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("meridian-window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("window: memfd: %w", err)
	}
	m := &memory{fd: fd}
	if err := m.open(size); err != nil {
		m.close()
		return nil, fmt.Errorf("window: memfd of %d bytes: %w", size, err)
	}
	return m, nil
}

func (m *memory) open(size uint64) (err error) {
	if err := unix.Ftruncate(m.fd, int64(size)); err != nil {
		return err
	}
	for {
		if err = unix.Fallocate(m.fd, 0, 0, int64(size)); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	if m.b, err = unix.Mmap(m.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	if err := unix.Madvise(m.b, unix.MADV_DONTDUMP); err != nil { // a tenant's bytes have no place in a core file
		return err
	}
	_, err = unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

func (m *memory) close() {
	if m.b != nil {
		_ = unix.Munmap(m.b)
		m.b = nil
	}
	_ = unix.Close(m.fd)
}

// erase frees the pages, also those that somebody still maps, and closes. A
// session that keeps the descriptors of its old windows cannot pile memory up
// beyond the limit, unless it writes to them and so pays for the pages itself.
func (m *memory) erase() {
	_ = unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(m.b)))
	m.close()
}

func (m *memory) dup() (int, error) { return unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0) }
