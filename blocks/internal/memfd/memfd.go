package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReadOnly seals memory that only the daemon writes. FUTURE_WRITE is what makes a
// descriptor read-only for good: without it, a read-only one can be opened for
// writing through /proc. SEAL keeps others from adding a seal of their own.
const ReadOnly = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// Shared seals memory that others write too. SHRINK matters most: a truncated
// ring would be a SIGBUS in the daemon.
const Shared = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// PageSize is the granule of memory.
var PageSize = uint64(os.Getpagesize())

// WholePages rounds up to pages.
func WholePages(n uint64) uint64 { return (n + PageSize - 1) &^ (PageSize - 1) }

// Memory is a sealed memfd and the map of it that came before the seals.
type Memory struct {
	FD int    // -1: given away, or closed
	B  []byte // nil once closed
}

// New makes size bytes with the given seals.
func New(name string, size uint64, seals int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	m := &Memory{FD: fd}
	if err := m.open(size, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	return m, nil
}

func (m *Memory) open(size uint64, seals int) (err error) {
	if err := unix.Ftruncate(m.FD, int64(size)); err != nil {
		return err
	}
	for {
		if err = unix.Fallocate(m.FD, 0, 0, int64(size)); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	m.B, err = unix.Mmap(m.FD, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	// KV bytes are a tenant's; they have no place in a core file.
	if err := unix.Madvise(m.B, unix.MADV_DONTDUMP); err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(m.FD), unix.F_ADD_SEALS, seals)
	return err
}

// Dup returns a descriptor of the caller's own.
func (m *Memory) Dup() (int, error) { return unix.FcntlInt(uintptr(m.FD), unix.F_DUPFD_CLOEXEC, 0) }

// Close unmaps and closes. The pages live on for other processes that map them.
func (m *Memory) Close() {
	if m.B != nil {
		_ = unix.Munmap(m.B)
		m.B = nil
	}
	if m.FD >= 0 {
		_ = unix.Close(m.FD)
		m.FD = -1
	}
}

// Erase frees the pages, also those that somebody still maps, and closes. Who
// keeps the descriptors of old memory cannot pile it up, unless it writes there
// again and so pays for the pages itself.
func (m *Memory) Erase() {
	_ = unix.Fallocate(m.FD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(m.B)))
	m.Close()
}
