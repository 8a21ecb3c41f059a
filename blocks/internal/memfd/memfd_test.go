package memfd

import (
	"testing"

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
