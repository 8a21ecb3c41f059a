package client

import (
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/wire"
	"meridian/wire/link"
)

// segment is one segment of the daemon's arena, mapped read-only.
type segment struct{ bytes, gens []byte }

// mapTable is what the reader has mapped. Readers of blocks see a table that is
// never changed, only replaced. The count keeps the memory mapped after the
// connection has ended, for leases that are still in use.
type mapTable struct {
	users atomic.Int64 // leases, staged bodies, Puts, and the connection
	table atomic.Pointer[map[uint32]*segment]

	mu  sync.Mutex
	all [][]byte
}

func (m *mapTable) init() {
	m.users.Store(1)
	m.table.Store(&map[uint32]*segment{})
}

// get adds a user, unless the memory is unmapped already.
func (m *mapTable) get() bool {
	for {
		n := m.users.Load()
		if n == 0 {
			return false
		}
		if m.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// put takes a user away; the last one unmaps.
func (m *mapTable) put() {
	if m.users.Add(-1) > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.all {
		_ = unix.Munmap(b) // it was mapped as it is
	}
	m.all = nil
}

func (m *mapTable) find(seg uint32) *segment { return (*m.table.Load())[seg] }

// mmap maps a descriptor from the daemon. The size is the daemon's word: it is
// held against the file, so that no access can be a SIGBUS.
func (m *mapTable) mmap(fd int, size uint64, prot int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if size == 0 || size > uint64(st.Size) {
		return nil, protocolError(wire.CodeLength, "a map of %d bytes of a file of %d", size, st.Size)
	}
	if uint64(int(size)) != size || int(size) < 0 {
		return nil, protocolError(wire.CodeTooLarge, "a map of %d bytes", size)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, protocolError(wire.CodeInvalid, "a map of a file that can shrink")
	}
	b, err := unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m.mu.Lock()
	m.all = append(m.all, b)
	m.mu.Unlock()
	return b, nil
}

// mapped handles MAP: the first descriptors of fds are those of its segments, in
// order. It returns the others.
func (e *Engine) mapped(p []byte, fds []int) ([]int, error) {
	x, err := link.Parse[link.Map](p)
	if err != nil {
		return fds, err
	}
	if len(fds) < len(x.Segs) {
		return fds, protocolError(wire.CodeState, "MAP of %d segments with %d descriptors", len(x.Segs), len(fds))
	}
	defer closeAll(fds[:len(x.Segs)])
	table := maps.Clone(*e.maps.table.Load())
	for i, s := range x.Segs {
		if s.Kind == link.SegStaging {
			if s.Size <= uint64(e.ring.size()) {
				continue
			}
			b, err := e.maps.mmap(fds[i], s.Size, unix.PROT_READ|unix.PROT_WRITE)
			if err != nil {
				return fds[len(x.Segs):], err
			}
			e.ring.set(b)
			continue
		}
		seg := &segment{}
		if old := table[s.ID]; old != nil {
			*seg = *old
		}
		part := &seg.bytes
		if s.Kind == link.SegGens {
			part = &seg.gens
		}
		if *part != nil {
			continue
		}
		if *part, err = e.maps.mmap(fds[i], s.Size, unix.PROT_READ); err != nil {
			return fds[len(x.Segs):], err
		}
		table[s.ID] = seg
	}
	e.maps.table.Store(&table)
	return append(fds[:0:0], fds[len(x.Segs):]...), nil
}

// place checks a granted place against the maps and gives body, header and
// generation word.
func (m *mapTable) place(p *link.Place) (body []byte, head *[wire.HeaderLen]byte, gen *uint64, err error) {
	seg := m.find(p.Seg)
	if seg == nil || seg.bytes == nil || seg.gens == nil {
		return nil, nil, nil, protocolError(wire.CodeState, "segment %d was never announced", p.Seg)
	}
	size := uint64(len(seg.bytes))
	if p.Off < wire.HeaderLen || p.Off > size || uint64(p.Len) > size-p.Off {
		return nil, nil, nil, protocolError(wire.CodeLength, "body of %d bytes at %d of a segment of %d", p.Len, p.Off, size)
	}
	if p.GenOff%8 != 0 || uint64(p.GenOff)+8 > uint64(len(seg.gens)) {
		return nil, nil, nil, protocolError(wire.CodeLength, "generation at %d of a table of %d bytes", p.GenOff, len(seg.gens))
	}
	end := p.Off + uint64(p.Len)
	head = (*[wire.HeaderLen]byte)(seg.bytes[p.Off-wire.HeaderLen : p.Off])
	// The table is mapped at a page's start, so the word is aligned.
	gen = (*uint64)(unsafe.Pointer(&seg.gens[p.GenOff]))
	return seg.bytes[p.Off:end:end], head, gen, nil
}
