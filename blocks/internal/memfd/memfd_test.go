package memfd

import (
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
