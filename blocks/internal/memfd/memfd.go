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

// growing seals memory that others write too and that Grow makes larger. Others can
// make the file larger as well: the daemon maps no more than it made itself.
const growing = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// PageSize is the granule of memory.
var PageSize = uint64(os.Getpagesize())

// WholePages rounds up to pages.
func WholePages(n uint64) uint64 { return (n + PageSize - 1) &^ (PageSize - 1) }

// Memory is a sealed memfd and the map of it that came before the seals.
type Memory struct {
	FD  int    // -1: given away, or closed
	B   []byte // nil once closed
	all []byte // the addresses that B may grow into, B first
}

// New makes size bytes with the given seals, with all of their pages.
func New(name string, size uint64, seals int) (*Memory, error) {
	return whole(open(name, size, size, seals))
}

// NewGrowing makes size bytes that others may write, and that Grow makes more, up to
// most, where they are.
func NewGrowing(name string, size, most uint64) (*Memory, error) {
	return whole(open(name, size, most, growing))
}

// whole makes all pages of m.
func whole(m *Memory, err error) (*Memory, error) {
	if err != nil {
		return nil, err
	}
	for size, at := uint64(len(m.B)), uint64(0); at < size; at += Piece {
		if err := m.Allocate(at, min(Piece, size-at)); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

// Begin makes size bytes with the given seals and no page of them: to touch one
// that Allocate has not made can kill the daemon.
func Begin(name string, size uint64, seals int) (*Memory, error) {
	return open(name, size, size, seals)
}

func open(name string, size, most uint64, seals int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	m := &Memory{FD: fd}
	if err := m.open(size, most, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	return m, nil
}

func (m *Memory) open(size, most uint64, seals int) (err error) {
	if err := unix.Ftruncate(m.FD, int64(size)); err != nil {
		return err
	}
	if m.all, err = unix.Mmap(m.FD, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	m.B = m.all[:size:size]
	// KV bytes are a tenant's; they have no place in a core file.
	if err := unix.Madvise(m.all, unix.MADV_DONTDUMP); err != nil {
		return err
	}
	// Whether there are huge pages for it is the host's choice
	// (transparent_hugepage/shmem_enabled): a kernel without them refuses the hint.
	_ = unix.Madvise(m.all, unix.MADV_HUGEPAGE)
	_, err = unix.FcntlInt(uintptr(m.FD), unix.F_ADD_SEALS, seals)
	return err
}

// Piece is how much memory is made at a time: some milliseconds' worth.
const Piece = 16 << 20

// populate is madvise(MADV_POPULATE_WRITE), which Linux has since 5.14.
var populate = func(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }

// Allocate makes the pages of n bytes from off on, zeroed, and maps them here. An
// error means that some are not there. Where the kernel makes pages and cannot map
// them ahead, the first write to each pays for it. Nobody else has the memory yet.
func (m *Memory) Allocate(off, n uint64) error {
	b := m.B[off : off+n]
	// First, because it makes pages as the advice says, which fallocate does not.
	mapped := populate(b)
	if err := m.allocate(off, n); err != nil {
		return err
	}
	if errors.Is(mapped, unix.EINVAL) { // no such advice; a page is mapped when it is touched
		for i := uint64(0); i < n; i += PageSize {
			b[i] = 0
		}
	}
	return nil
}

// allocate makes n bytes of the file exist.
func (m *Memory) allocate(off, n uint64) error {
	for {
		err := unix.Fallocate(m.FD, 0, int64(off), int64(n))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("memfd, %d bytes from %d on: %w", n, off, err)
		}
	}
}

// Grow makes B size bytes, which are more than it has. What was there stays as and
// where it is. After an error B is as before.
func (m *Memory) Grow(size uint64) error {
	if size > uint64(len(m.all)) {
		return fmt.Errorf("memfd of %d bytes at most: %d", len(m.all), size)
	}
	// Longer first, then pages as the advice says, as in Allocate: fallocate heeds none.
	if err := m.extend(size); err != nil {
		return err
	}
	_ = populate(m.all[len(m.B):size]) // where that fails, pages are mapped at their first use
	if err := m.allocate(uint64(len(m.B)), size-uint64(len(m.B))); err != nil {
		return err
	}
	m.B = m.all[:size:size]
	return nil
}

// extend makes the file at least size bytes long, without pages.
func (m *Memory) extend(size uint64) error {
	err := unix.Ftruncate(m.FD, int64(size))
	if errors.Is(err, unix.EPERM) { // SHRINK is sealed: somebody has made it longer already
		return nil
	}
	return err
}

// Dup returns a descriptor of the caller's own.
func (m *Memory) Dup() (int, error) { return unix.FcntlInt(uintptr(m.FD), unix.F_DUPFD_CLOEXEC, 0) }

// Close unmaps and closes. The pages live on for other processes that map them.
func (m *Memory) Close() {
	if m.all != nil {
		_ = unix.Munmap(m.all)
		m.B, m.all = nil, nil
	}
	if m.FD != -1 {
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
