package blocks

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// Seals of memory that only the daemon writes. FUTURE_WRITE is what makes a
// descriptor read-only for good: without it, a read-only one can be opened for
// writing through /proc. SEAL keeps others from adding a seal of their own.
const sealReadOnly = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// Seals of memory that an engine writes too. SHRINK matters most: a truncated
// ring would be a SIGBUS in the daemon.
const sealShared = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// memory is a sealed memfd and the map of it that came before the seals.
type memory struct {
	fd int
	b  []byte
}

// newMemory makes size bytes, all of them allocated, mapped read-write here,
// and only then sealed.
func newMemory(name string, size uint64, seals int) (*memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	m := &memory{fd: fd}
	if err := m.open(size, seals); err != nil {
		m.close()
		return nil, fmt.Errorf("memfd %s of %d bytes: %w", name, size, err)
	}
	return m, nil
}

func (m *memory) open(size uint64, seals int) (err error) {
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
	m.b, err = unix.Mmap(m.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	// KV bytes are a tenant's; they have no place in a core file.
	if err := unix.Madvise(m.b, unix.MADV_DONTDUMP); err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, seals)
	return err
}

func (m *memory) close() {
	if m.b != nil {
		_ = unix.Munmap(m.b)
		m.b = nil
	}
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
}

// dup returns a descriptor of the caller's own.
func (m *memory) dup() (int, error) { return unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0) }

// segmentMemory is a segment's bytes and its generation table.
type segmentMemory struct{ bytes, gens *memory }

func newSegmentMemory(size, gens uint64) (*segmentMemory, error) {
	b, err := newMemory("meridian-segment", size, sealReadOnly)
	if err != nil {
		return nil, err
	}
	g, err := newMemory("meridian-generations", gens, sealReadOnly)
	if err != nil {
		b.close()
		return nil, err
	}
	return &segmentMemory{b, g}, nil
}

func (m *segmentMemory) close() {
	m.bytes.close()
	m.gens.close()
}

// setGen stores a generation word. The load behind the store keeps later plain
// stores (the first byte of reuse) from becoming visible before it on arm64,
// where Store is a release only; store-release then load-acquire stays in order.
func (m *segmentMemory) setGen(off uint32, word uint64) {
	p := (*uint64)(unsafe.Pointer(&m.gens.b[off:][:8][0]))
	atomic.StoreUint64(p, word)
	_ = atomic.LoadUint64(p)
}

// arena is the memory of all segments. The store's mutex guards it.
type arena struct{ segs []*segmentMemory } // by segment number; nil where there is none

func (a *arena) install(seg uint32, m *segmentMemory) {
	for uint32(len(a.segs)) <= seg {
		a.segs = append(a.segs, nil)
	}
	a.segs[seg] = m
}

func (a *arena) get(seg uint32) *segmentMemory {
	if uint64(seg) >= uint64(len(a.segs)) {
		return nil
	}
	return a.segs[seg]
}

// remove takes a segment out; the caller unmaps it.
func (a *arena) remove(seg uint32) *segmentMemory {
	m := a.segs[seg]
	a.segs[seg] = nil
	return m
}

// slotBytes returns head room and body of a view: header first, n bytes of body.
func (a *arena) slotBytes(v *View, n uint32) []byte {
	from := v.Off - wire.HeaderLen
	to := v.Off + uint64(n)
	return a.segs[v.Seg].bytes.b[from:to:to]
}

func (a *arena) close() {
	for _, m := range a.segs {
		if m != nil {
			m.close()
		}
	}
	a.segs = nil
}

const hugePage = 2 << 20 // of amd64, and of arm64 with 4 KiB pages

// hugePages asks for huge pages where whole ones lie in a table of the core. It
// is a hint: a kernel that has none leaves the table as it is.
func hugePages(p unsafe.Pointer, n uintptr) {
	from := -uintptr(p) & (hugePage - 1)
	if n < from+hugePage {
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Add(p, from)), (n-from)&^(hugePage-1))
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
}

var pageSize = uint64(os.Getpagesize())

// wholePages rounds up to pages.
func wholePages(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }
