package handshake

import (
	"fmt"
	"net/netip"
	"sync"

	"meridian/wire"
)

// held counts the bytes of requests that are under way. A source never has more than are
// free then, so that some that take all they can leave the part of one more.
type held struct {
	limit int

	mu       sync.Mutex
	all      int
	bySource map[netip.Addr]int
}

func (h *held) take(source netip.Addr, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if has, free := h.bySource[source], h.limit-h.all; has+n > free {
		return fmt.Errorf("requests of its source have %d bytes and want %d more, %d are free: %w", has, n, free, wire.CodeBusy)
	}
	h.all += n
	h.bySource[source] += n
	return nil
}

func (h *held) give(source netip.Addr, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all -= n
	if h.bySource[source] -= n; h.bySource[source] <= 0 {
		delete(h.bySource, source)
	}
}
