package memfd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestMemoryIsAllocatedBeforeItIsUsed(t *testing.T) {
	m, err := New("test", 1<<20, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var st unix.Stat_t
	if err := unix.Fstat(m.FD, &st); err != nil || st.Blocks*512 < 1<<20 {
		t.Fatalf("%d bytes are allocated, %v", st.Blocks*512, err)
	}
	if _, err := New("test", 0, ReadOnly); err == nil {
		t.Fatal("memory of no bytes")
	}
}

// allocated is how many bytes of m have pages.
func allocated(t *testing.T, m *Memory) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(m.FD, &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Blocks) * 512
}

// resident is how many bytes of b are mapped here.
func resident(t *testing.T, b []byte) (n uint64) {
	t.Helper()
	pages := make([]byte, uint64(len(b))/PageSize)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, p := range pages {
		n += uint64(p&1) * PageSize
	}
	return n
}

func TestAllocateMakesAPieceAndNoMore(t *testing.T) {
	m, err := Begin("test", 1<<20, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n := allocated(t, m); n != 0 {
		t.Fatalf("%d bytes are there before any was asked for", n)
	}
	if err := m.Allocate(256<<10, 128<<10); err != nil {
		t.Fatal(err)
	}
	if n := allocated(t, m); n < 128<<10 || n >= 1<<20 {
		t.Fatalf("%d bytes are there, want 128 KiB or a huge page's worth around them", n)
	}
	if n := resident(t, m.B[256<<10:384<<10]); n != 128<<10 {
		t.Fatalf("%d bytes of the piece are mapped", n)
	}
}

// A kernel that cannot populate, or refuses to, still makes the pages.
func TestMemoryIsThereWithoutPopulate(t *testing.T) {
	for _, why := range []error{unix.EINVAL, unix.EFAULT, unix.ENOMEM, unix.EHWPOISON} {
		now := populate
		populate = func([]byte) error { return why }
		m, err := New("test", 256<<10, Shared)
		populate = now
		if err != nil {
			t.Fatalf("%v: %v", why, err)
		}
		if n := allocated(t, m); n != 256<<10 {
			t.Errorf("%v: %d bytes are allocated", why, n)
		}
		m.Close()
	}
}

func TestSealedMemoryCannotBeShrunkOrGrown(t *testing.T) {
	m, err := New("test", 64<<10, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, size := range []int64{0, 128 << 10} {
		if err := unix.Ftruncate(m.FD, size); err != unix.EPERM {
			t.Errorf("truncated to %d: %v", size, err)
		}
	}
}

// mapped is how many bytes of b this process has in its page table.
func mapped(t *testing.T, b []byte) (n uint64) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := make([]byte, 8*uint64(len(b))/PageSize)
	if _, err := f.ReadAt(words, int64(uint64(uintptr(unsafe.Pointer(&b[0])))/PageSize*8)); err != nil {
		t.Fatal(err)
	}
	for ; len(words) > 0; words = words[8:] {
		n += uint64(words[7]>>7) * PageSize
	}
	return n
}

// Where the kernel does not know how to map pages ahead, Allocate touches each.
func TestPagesAreMappedWithoutPopulate(t *testing.T) {
	m, err := Begin("test", 512<<10, Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	now := populate
	populate = func([]byte) error { return unix.EINVAL }
	defer func() { populate = now }()
	if err := m.Allocate(128<<10, 256<<10); err != nil {
		t.Fatal(err)
	}
	if n := mapped(t, m.B[128<<10:384<<10]); n != 256<<10 {
		t.Errorf("%d bytes of the piece are mapped", n)
	}
}

// Sizes around a whole number of pieces: each page is there, and none besides.
func TestMemoryOfSeveralPiecesIsMadeToItsEnd(t *testing.T) {
	for _, size := range []uint64{Piece - PageSize, Piece, Piece + PageSize} {
		m, err := New("test", size, ReadOnly)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if n := allocated(t, m); n < size || uint64(len(m.B)) != size {
			t.Errorf("%d bytes: %d are allocated, %d mapped", size, n, len(m.B))
		}
		m.Close()
	}
}

// What the kernel refuses is an error, of Allocate and of Grow, which changes nothing.
func TestWhatTheKernelRefusesIsAnError(t *testing.T) {
	m, err := NewGrowing("test", PageSize, 4*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd := m.FD
	m.FD = 1 << 30 // no descriptor
	if err := m.Allocate(0, PageSize); !errors.Is(err, unix.EBADF) {
		t.Errorf("Allocate: %v", err)
	}
	if err := m.Grow(2 * PageSize); !errors.Is(err, unix.EBADF) || uint64(len(m.B)) != PageSize {
		t.Errorf("Grow: %v, %d bytes", err, len(m.B))
	}
	m.FD = fd
	if err := m.Grow(4*PageSize + 1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes at most: %d", 4*PageSize, 4*PageSize+1)) {
		t.Errorf("beyond the most: %v", err)
	}
	if err := m.Grow(4 * PageSize); err != nil || uint64(len(m.B)) != 4*PageSize || allocated(t, m) < 4*PageSize {
		t.Errorf("to the most: %v, %d bytes, %d allocated", err, len(m.B), allocated(t, m))
	}
}

// Close gives the descriptor back once: a number that somebody else has by then is
// left alone.
func TestCloseGivesTheDescriptorBackOnce(t *testing.T) {
	m, err := New("test", PageSize, Shared)
	if err != nil {
		t.Fatal(err)
	}
	fd := m.FD
	m.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) || m.FD != -1 || m.B != nil {
		t.Errorf("after Close: %v, descriptor %d", err, m.FD)
	}
	other, err := New("test", PageSize, Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	m.Close()
	if _, err := unix.FcntlInt(uintptr(other.FD), unix.F_GETFD, 0); err != nil {
		t.Errorf("a second Close took another's descriptor: %v", err)
	}
}

// What Grow adds is asked for as the advice says before its pages are made: fallocate
// alone makes small ones.
func TestGrowPopulatesBeforeItAllocates(t *testing.T) {
	m, err := NewGrowing("test", 64<<10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	now, before := populate, uint64(0)
	populate = func(b []byte) error {
		before = allocated(t, m)
		return now(b)
	}
	err = m.Grow(256 << 10)
	populate = now
	if err != nil || before != 64<<10 {
		t.Errorf("%d bytes were allocated before they were populated, %v", before, err)
	}
	if n := allocated(t, m); n < 256<<10 || len(m.B) != 256<<10 {
		t.Errorf("%d bytes are allocated, %d are mapped", n, len(m.B))
	}
	// Somebody who has the descriptor makes the file longer first.
	if err := unix.Ftruncate(m.FD, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := m.Grow(512 << 10); err != nil || len(m.B) != 512<<10 {
		t.Errorf("after another's growth: %d bytes, %v", len(m.B), err)
	}
	m.B[512<<10-1] = 1
}
