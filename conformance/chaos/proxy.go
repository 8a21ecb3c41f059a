package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"meridian/wire"
)

// Bounds of a proxy.
const (
	DefaultConns = 256      // connections at a time; more are closed at once
	chunkBytes   = 64 << 10 // read at a time, in each direction of a connection
	dialTimeout  = 5 * time.Second
)

// ProxyOptions say where a proxy stands and what it does.
type ProxyOptions struct {
	Listen string   // "tcp://127.0.0.1:0" or "unix:///path"
	Target string   // in the same form; Retarget changes it
	Seed   uint64   // of every place that the plan leaves open
	Plan   []Action // for every connection from the first on; Arm changes it
	Conns  int      // at a time; 0: DefaultConns
	// Wait blocks for d or until ctx ends; the default is a timer.
	Wait func(ctx context.Context, d time.Duration)
}

// ProxyStats count what a proxy has done.
type ProxyStats struct {
	Conns, Open, Refused uint64
	ToBack, ToFront      uint64 // bytes handed on, repeated ones included
	Discarded            uint64 // bytes thrown away after a HalfClose
	Unframed             uint64 // directions in which frames were looked for and none were found
	Done                 map[string]uint64
}

// Proxy hands bytes on between those who dial it and its target, and hurts them
// by its plan. Each direction of a connection is one goroutine with one buffer:
//
//  1. read at most chunkBytes from the source;
//  2. follow the frames in them, where the plan speaks of frames: their headers
//     turn actions into triggers at byte offsets;
//  3. write up to the next trigger, do what it says, and so on to the end;
//  4. at the source's end, half-close the destination.
type Proxy struct {
	opt    ProxyOptions
	l      net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	target  string
	plan    []Action
	refuse  bool
	stalled chan struct{} // not nil while Stall is on; closed by its end
	conns   map[*pair]struct{}
	count   ProxyStats
	done    [actionKinds]uint64
	spent   map[*Action]bool // flips that are done
	flips   []Flipped
}

// pair is one connection through the proxy.
type pair struct {
	n           int // from 1
	front, back net.Conn
	ctx         context.Context
	cancel      context.CancelFunc
}

// NewProxy listens and begins at once. The caller closes it.
func NewProxy(o ProxyOptions) (*Proxy, error) {
	if o.Conns == 0 {
		o.Conns = DefaultConns
	}
	if o.Wait == nil {
		o.Wait = pause
	}
	if _, _, err := split(o.Target); err != nil {
		return nil, err
	}
	network, addr, err := split(o.Listen)
	if err != nil {
		return nil, err
	}
	if err := checkPlan(o.Plan); err != nil {
		return nil, err
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{opt: o, l: l, target: o.Target, conns: make(map[*pair]struct{}), spent: make(map[*Action]bool)}
	p.plan = append(p.plan, o.Plan...)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// split takes "tcp://host:port" or "unix:///path" apart.
func split(addr string) (network, rest string, err error) {
	network, rest, ok := strings.Cut(addr, "://")
	if !ok || network != "tcp" && network != "unix" || rest == "" {
		return "", "", fmt.Errorf("address %q is neither tcp://host:port nor unix:///path: %w", addr, wire.CodeInvalid)
	}
	return network, rest, nil
}

func checkPlan(plan []Action) error {
	for i, a := range plan {
		switch {
		case a.Kind == 0 || a.Kind >= actionKinds:
			return fmt.Errorf("action %d has no kind: %w", i, wire.CodeInvalid)
		case a.Kind == Throttle && a.Rate <= 0:
			return fmt.Errorf("action %d throttles to %d bytes a second: %w", i, a.Rate, wire.CodeInvalid)
		case a.Kind == Duplicate && a.Len > MaxDuplicate:
			return fmt.Errorf("action %d repeats %d bytes, limit %d: %w", i, a.Len, MaxDuplicate, wire.CodeInvalid)
		case a.Bit > 7 || a.Frame < 0 || a.Conn < 0 || a.Dir > ToFront:
			return fmt.Errorf("action %d is out of range: %w", i, wire.CodeInvalid)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Addr is where the proxy listens, in the form of ProxyOptions.Listen.
func (p *Proxy) Addr() string {
	a := p.l.Addr()
	return a.Network() + "://" + a.String()
}

// Arm replaces the plan for connections that come from now on. Flips that were
// done once may be done once more by the new plan.
func (p *Proxy) Arm(plan ...Action) error {
	if err := checkPlan(plan); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = append([]Action(nil), plan...)
	p.spent = make(map[*Action]bool)
	return nil
}

// Retarget sends connections that come from now on elsewhere.
func (p *Proxy) Retarget(target string) error {
	if _, _, err := split(target); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	return nil
}

// Refuse closes new connections at once while on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Stall hands no byte on while on, and closes nothing: the peer that was stopped.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !on && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// CutAll closes all connections and says how many there were.
func (p *Proxy) CutAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
	p.done[Cut] += uint64(len(p.conns))
	return len(p.conns)
}

// Stats counts.
func (p *Proxy) Stats() ProxyStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.count
	s.Open = uint64(len(p.conns))
	s.Done = make(map[string]uint64)
	for k, n := range p.done {
		if n > 0 {
			s.Done[ActionKind(k).String()] = n
		}
	}
	return s
}

// maxFlips bounds what Flips remembers; Stats counts all.
const maxFlips = 4096

// Flips says which bits were turned, in the order in which it was done.
func (p *Proxy) Flips() []Flipped {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Flipped(nil), p.flips...)
}

// Close stops listening, closes every connection and returns when no goroutine
// is left. Close again is nil.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.l.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		front, err := p.l.Accept()
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			p.opt.Wait(p.ctx, time.Millisecond) // out of descriptors, for a moment
			continue
		}
		c, target, plan := p.admit(front)
		if c == nil {
			_ = front.Close()
			continue
		}
		p.wg.Go(func() {
			defer p.forget(c)
			p.connect(c, target, plan)
		})
	}
}

// admit makes a pair, unless the proxy refuses, is full, or is closed.
func (p *Proxy) admit(front net.Conn) (*pair, string, []Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || len(p.conns) >= p.opt.Conns || p.ctx.Err() != nil {
		p.count.Refused++
		return nil, "", nil
	}
	p.count.Conns++
	c := &pair{n: int(p.count.Conns), front: front}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	p.conns[c] = struct{}{}
	return c, p.target, p.plan
}

func (p *Proxy) forget(c *pair) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.close()
}

// connect dials the target and runs both directions to their end.
func (p *Proxy) connect(c *pair, target string, plan []Action) {
	network, addr, _ := split(target)
	dial := net.Dialer{Timeout: dialTimeout}
	back, err := dial.DialContext(c.ctx, network, addr)
	if err != nil {
		return
	}
	p.mu.Lock()
	c.back = back
	gone := c.ctx.Err() != nil
	p.mu.Unlock()
	if gone {
		_ = back.Close()
		return
	}
	var both sync.WaitGroup
	for _, dir := range []Direction{ToBack, ToFront} {
		src, dst := c.front, c.back
		if dir == ToFront {
			src, dst = dst, src
		}
		w := &pump{p: p, c: c, src: src, dst: dst, s: newStream(p.opt.Seed, c.n, dir, plan)}
		both.Go(w.run)
	}
	both.Wait()
}

// close ends both sides; p.mu need not be held once back is set.
func (c *pair) close() {
	c.cancel()
	_ = c.front.Close()
	if c.back != nil {
		_ = c.back.Close()
	}
}
