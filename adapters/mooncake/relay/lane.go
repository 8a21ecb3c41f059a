package relay

import (
	"context"
	"fmt"
	"net"
	"sync"

	"meridian/adapters/mooncake/engine"
	"meridian/wire"
)

// idleLanes is how many connections to the target are kept for later requests.
const idleLanes = 64

// lanes are the connections to the target that carry nothing now.
type lanes struct {
	mu    sync.Mutex
	ended bool
	idle  []net.Conn
}

func (l *lanes) take() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle)
	if n == 0 {
		return nil
	}
	c := l.idle[n-1]
	l.idle = l.idle[:n-1]
	return c
}

func (l *lanes) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.idle) >= idleLanes {
		_ = c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, c := range l.idle {
		_ = c.Close()
	}
	l.idle = nil
}

func (l *lanes) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.idle)
}

// lane is a connection to the target of this life. One that waited and is still there
// leads to it; a new one is used after a look that began when it was there.
func (l *life) lane(ctx context.Context) (net.Conn, error) {
	for c := l.lanes.take(); c != nil; c = l.lanes.take() {
		if engine.Alive(c) {
			return c, nil
		}
		_ = c.Close()
	}
	c, err := l.r.connect(ctx, l.addr)
	if err != nil {
		l.r.mayBeAnother()
		return nil, unreachable("connecting to its data plane at "+l.addr, err)
	}
	now, err := l.r.look(ctx)
	switch {
	case err != nil:
		err = unreachable("its descriptor", err)
	case now != l:
		err = fmt.Errorf("mooncake relay: the target has other memory now: %w", wire.CodeStale)
	default:
		return c, nil
	}
	_ = c.Close()
	return nil, err
}
