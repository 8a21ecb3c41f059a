package relay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/wire"
)

// life is the target from when it showed its memory until it showed other memory.
type life struct {
	r     *Relay
	addr  string         // of its data plane
	at    netip.AddrPort // of the relay's, for this life
	door  *door.Door
	desc  atomic.Pointer[segment.Descriptor] // the target's own, as it was last seen
	had   []segment.Buffer                   // that it last showed, if it ever did; of whose turn it is to look
	lanes lanes

	ctx  context.Context // ends with the life
	stop context.CancelFunc
}

// target is what is known of the target.
type target struct {
	looking chan struct{} // whose turn it is to look

	mu    sync.Mutex
	looks uint64    // that have begun
	at    time.Time // when the last one began
	err   error     // of the last one
	now   *life     // nil: it was never seen
	lives uint64
	used  map[uint16]bool // data ports that a life had; of whose turn it is
}

// errNotYet is a target that nobody has looked at.
var errNotYet = unreachable("nobody has looked at it yet", nil)

// current is the life that sources are told of, and why the target cannot be reached.
func (t *target) current() (*life, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.err
}

// count is how many lives were seen.
func (t *target) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lives
}

// look asks for the target's descriptor, and returns the life that it shows. What is
// returned was asked for after the call began; calls at the same time share the question.
func (r *Relay) look(ctx context.Context) (*life, error) {
	t := &r.target
	t.mu.Lock()
	before := t.looks
	t.mu.Unlock()
	select {
	case t.looking <- struct{}{}:
		defer func() { <-t.looking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("mooncake relay: waiting for a look at the target: %w", wire.CodeOf(ctx.Err()))
	}
	t.mu.Lock()
	shared, now, err := t.looks > before, t.now, t.err
	if !shared {
		t.looks++
		t.at = time.Now()
	}
	t.mu.Unlock()
	if shared {
		return now, err
	}
	now, err = r.lookNow()
	t.mu.Lock()
	was := t.err
	t.err = err
	t.mu.Unlock()
	switch {
	case err != nil && (was == nil || was == errNotYet) && r.ctx.Err() == nil:
		r.cfg.Log.Warn("mooncake relay: the target cannot be reached", "fabric", r.cfg.Label, "peer", r.cfg.Peer, "err", err)
	case err == nil && was != nil && was != errNotYet:
		r.cfg.Log.Info("mooncake relay: the target is reached again", "fabric", r.cfg.Label, "peer", r.cfg.Peer)
	}
	return now, err
}

// lookLately is look, where nobody has looked for lookPause: what any source can cause as
// often as it likes.
func (r *Relay) lookLately(ctx context.Context) (*life, error) {
	r.target.mu.Lock()
	lately := time.Since(r.target.at) < lookPause
	r.target.mu.Unlock()
	if lately {
		return r.target.current()
	}
	return r.look(ctx)
}

// lookNow is a look by the one whose turn it is.
func (r *Relay) lookNow() (*life, error) {
	ctx, cancel := context.WithTimeout(r.ctx, lookTime)
	defer cancel()
	d, host, err := r.plane.Get(ctx, r.cfg.Target)
	if err != nil {
		return nil, err
	}
	addr, err := d.DataAddr(host)
	if err != nil {
		return nil, err
	}
	now, _ := r.target.current()
	if now != nil && now.is(addr, &d) {
		if len(d.Buffers) > 0 {
			now.had = d.Buffers
		}
		if was := now.desc.Swap(&d); !slices.Equal(was.Buffers, d.Buffers) {
			r.publish(now)
		}
		return now, nil
	}
	if err := r.mayReach(ctx, addr); err != nil { // it would take a port, and serve nobody
		return nil, unreachable("its data plane at "+addr, err)
	}
	return r.begin(now, addr, d)
}

// is says whether a descriptor is of this life: the same data plane, and a buffer that
// was there when there were any. Memory that is registered or given up makes no other
// life. The timestamp says nothing: engines give that of the answer.
func (l *life) is(addr string, d *segment.Descriptor) bool {
	same := slices.ContainsFunc(d.Buffers, func(b segment.Buffer) bool { return slices.Contains(l.had, b) })
	return addr == l.addr && d.Acked() == l.desc.Load().Acked() && (same || len(l.had) == 0 || len(d.Buffers) == 0)
}

// begin ends the life before, and opens a port for the new one.
func (r *Relay) begin(before *life, addr string, d segment.Descriptor) (*life, error) {
	t := &r.target
	if before != nil {
		before.door.Shut()
		r.running.Go(before.end)
		t.mu.Lock()
		t.now = nil
		t.mu.Unlock()
	}
	l := r.newLife(addr, d)
	var err error
	if l.at, err = t.open(l.ctx, l.door, r.cfg.Data, addr); err != nil {
		l.stop()
		l.door.Close()
		return nil, fmt.Errorf("data: %w", err)
	}
	t.mu.Lock()
	t.now = l
	t.lives++
	t.mu.Unlock()
	l.door.Recheck() // SetSources has not seen it
	r.publish(l)
	r.cfg.Log.Info("mooncake relay: requests are carried to the target", "fabric", r.cfg.Label, "peer", r.cfg.Peer, "data", addr, "here", l.at.String(), "life", t.count())
	return l, nil
}

// newLife is a life without a port.
func (r *Relay) newLife(addr string, d segment.Descriptor) *life {
	l := &life{r: r, addr: addr, had: d.Buffers}
	l.desc.Store(&d)
	l.ctx, l.stop = context.WithCancel(r.ctx)
	l.door = door.New(door.Config{Places: r.cfg.Doors.Of(quota.DataConns), Admit: r.admit, Refused: r.refused, Serve: l.serve})
	return l
}

// end closes all connections of a life.
func (l *life) end() {
	l.stop()
	l.lanes.close()
	l.door.Close()
}

// mirror is the target's descriptor as sources see it.
func (l *life) mirror(name, host string) segment.Descriptor {
	d := *l.desc.Load()
	d.Name, d.Protocols, d.DataHost, d.DataPort = name, []string{segment.TCP}, host, l.at.Port()
	return d
}

// watch looks at the target for as long as the relay lives, so that one that was
// restarted is noticed also while nobody asks.
func (r *Relay) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, _ = r.lookLately(r.ctx)
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		case <-r.lost:
		}
	}
}

// mayBeAnother has the target looked at: something about it went wrong. Nobody waits.
func (r *Relay) mayBeAnother() {
	select {
	case r.lost <- struct{}{}:
	default:
	}
}
