package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// sink takes results of work that nothing else needs, so that the compiler
// cannot leave it out.
var sink atomic.Int64

// memoryTarget is a process with shared memory, which its initiator maps.
type memoryTarget struct {
	fd     int
	memory []byte
	size   uint64
	dirty  bool
}

type memoryPeer struct {
	Path  string `json:"path"`
	Bytes uint64 `json:"bytes"`
}

func (t *memoryTarget) prepare(c Cell) (any, error) {
	if uint64(len(t.memory)) < c.Set {
		if err := t.close(); err != nil {
			return nil, err
		}
		fd, err := unix.MemfdCreate("bench-peers", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		t.fd = fd
		if err := unix.Ftruncate(fd, int64(c.Set)); err != nil {
			return nil, err
		}
		if t.memory, err = unix.Mmap(fd, 0, int(c.Set), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, err
		}
		t.dirty = true
	}
	if c.Op == Read && t.dirty {
		fill(t.memory, seedRemote, 0)
	}
	t.dirty, t.size = c.Op == Write, c.Size
	return memoryPeer{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), t.fd), uint64(len(t.memory))}, nil
}

func (t *memoryTarget) wipe(c Cell) error {
	clear(t.memory[:c.Set])
	return nil
}

func (t *memoryTarget) verify(w []written) (uint64, error) {
	return verifyRegion(t.memory, t.size, w)
}

// verifyRegion compares blocks that were written into memory by their number.
func verifyRegion(memory []byte, size uint64, w []written) (uint64, error) {
	var total uint64
	for _, w := range w {
		if (w.Block+1)*size > uint64(len(memory)) {
			return total, fmt.Errorf("no block %d in %d bytes", w.Block, len(memory))
		}
		if err := expect(memory[w.Block*size:][:size], seedLocal, w.From); err != nil {
			return total, fmt.Errorf("block %d: %w", w.Block, err)
		}
		total += size
	}
	return total, nil
}

func (t *memoryTarget) close() error {
	if t.memory == nil {
		return nil
	}
	err := unix.Munmap(t.memory)
	_ = unix.Close(t.fd)
	t.memory = nil
	return err
}

// memoryInitiator copies from and to that memory.
type memoryInitiator struct {
	order order
	far   []byte
	path  string
	near  []byte
}

func (n *memoryInitiator) prepare(_ context.Context, c Cell, peer json.RawMessage) error {
	var p memoryPeer
	if err := json.Unmarshal(peer, &p); err != nil {
		return err
	}
	if n.path != p.Path || uint64(len(n.far)) != p.Bytes {
		if err := n.close(); err != nil {
			return err
		}
		f, err := os.OpenFile(p.Path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if n.far, err = unix.Mmap(int(f.Fd()), 0, int(p.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return err
		}
		n.path = p.Path
	}
	n.order, n.near = orderOf(c), aligned(c.near())
	fill(n.near, seedLocal, 0)
	return nil
}

func (n *memoryInitiator) move(_ context.Context, stream, k int, seen *seen) error {
	size := n.order.Size
	for j := range n.order.Batch {
		block := n.order.item(stream, k, j)
		near, far := n.near[n.order.local(stream, j):][:size], n.far[uint64(block)*size:][:size]
		if n.order.Op == Write {
			copy(far, near)
			if seen != nil {
				seen.put(j, uint64(block))
			}
			continue
		}
		if seen != nil {
			clear(near)
		}
		copy(near, far)
		if seen != nil {
			if err := seen.read(j, near); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *memoryInitiator) close() error {
	if n.far == nil {
		return nil
	}
	err := unix.Munmap(n.far)
	n.far = nil
	return err
}

// hashInitiator hashes a batch of bytes as they lie after they were received.
type hashInitiator struct {
	order order
	near  []byte
}

func (h *hashInitiator) prepare(_ context.Context, c Cell, _ json.RawMessage) error {
	h.order, h.near = orderOf(c), aligned(c.near())
	fill(h.near, seedLocal, 0)
	return nil
}

func (h *hashInitiator) move(_ context.Context, stream, k int, seen *seen) error {
	for j := range h.order.Batch {
		b := h.near[h.order.local(stream, j):][:h.order.Size]
		sum := wire.SumOf(b)
		sink.Add(int64(sum[0]))
		if seen != nil {
			var again wire.Hasher
			for at := 0; at < len(b); at += 1000 {
				_, _ = again.Write(b[at:min(at+1000, len(b))]) // never fails
			}
			if got := again.Sum(); got != sum {
				return fmt.Errorf("%d bytes hash to %v at once and to %v in pieces", len(b), sum, got)
			}
			seen.compared(h.order.Size)
		}
	}
	return nil
}

func (h *hashInitiator) close() error { return nil }

// windowInitiator takes blocks out of memory that others wrote: it copies and hashes
// them in one go, as a window's commit does.
type windowInitiator struct {
	order       order
	window, out []byte
}

func (n *windowInitiator) prepare(_ context.Context, c Cell, _ json.RawMessage) error {
	n.order, n.window, n.out = orderOf(c), aligned(c.near()), aligned(c.near())
	fill(n.window, seedLocal, 0)
	return nil
}

func (n *windowInitiator) move(_ context.Context, stream, _ int, seen *seen) error {
	for j := range n.order.Batch {
		at := n.order.local(stream, j)
		in, out := n.window[at:][:n.order.Size], n.out[at:][:n.order.Size]
		sum := wire.CopySum(out, in).Sum()
		sink.Add(int64(sum[0]))
		if seen != nil {
			if got := wire.SumOf(in); got != sum {
				return fmt.Errorf("%d bytes hash to %v, and to %v while they are copied", len(in), got, sum)
			}
			if err := expect(out, seedLocal, at); err != nil {
				return err
			}
			seen.compared(n.order.Size)
		}
	}
	return nil
}

func (n *windowInitiator) close() error { return nil }
