package nixl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/blocks"
	"meridian/blocks/window"
	"meridian/fabric/lent"
)

// Initiator is a helper with memory that it reads to and writes from, without blocks: for
// measurements of what lies under the fabric.
type Initiator struct {
	p     *process
	table *window.Table
	leave []func()
	last  uint32
	mem   []byte

	paces [2]control.Pace // of reads and writes

	mu   sync.Mutex
	held uint64 // bytes under way, of which a fabric would have as many of its staging
	ways map[string]ways
}

// initiatorOwner has its windows, of which the last one is in use.
const initiatorOwner = blocks.Owner(1)

// NewInitiator starts a helper. It does not mind being stopped for a while.
func NewInitiator(ctx context.Context, c HelperConfig) (*Initiator, error) {
	c.hang = time.Hour
	i := &Initiator{table: window.New(nil, func() time.Duration { return 0 }, maxInitiator, nil), ways: map[string]ways{}}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	var err error
	if i.p, err = startProcess(ctx, &c, fmt.Sprintf("meridian-initiator-%x", id), func(string, []byte) {}); err != nil {
		return nil, err
	}
	i.p.mu.Lock()
	i.p.uses = func(m *control.Uses) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.ways[m.Peer] = ways{m.Read, m.Write}
	}
	i.p.mu.Unlock()
	return i, nil
}

// maxInitiator bounds the memory of an Initiator, in bytes.
const maxInitiator = 4 << 30

// Memory is n bytes of the helper's memory; more of it takes the place of less.
func (i *Initiator) Memory(ctx context.Context, n uint64) ([]byte, error) {
	if uint64(len(i.mem)) >= n {
		return i.mem[:n], nil
	}
	w, err := i.table.Open(initiatorOwner, window.Spec{Bytes: n, TTL: window.Forever, Map: true})
	if err != nil {
		return nil, err
	}
	i.last++
	if _, err := i.p.mapWindow(ctx, i.last, w, true); err != nil {
		return nil, err
	}
	mem, leave, err := i.table.Own(initiatorOwner, w.Addr, w.Len)
	if err != nil {
		return nil, err
	}
	i.mem, i.leave = mem, append(i.leave, leave)
	return mem[:n], nil
}

// Load makes a peer known by its metadata, and returns the name of its agent.
func (i *Initiator) Load(ctx context.Context, blob []byte) (agent string, err error) {
	m, err := ask[*control.Loaded](ctx, i.p, &control.Load{Blob: blob}, -1)
	if err != nil {
		return "", err
	}
	return m.Peer, nil
}

// Access is one range of a peer's memory, and its place in Memory.
type Access struct {
	Addr, Off, Len uint64
}

// Move reads or writes, in such transfers as a call of the fabric is cut into.
func (i *Initiator) Move(ctx context.Context, agent string, write bool, list []Access) error {
	ops := make([]lent.Op, len(list))
	for k, a := range list {
		ops[k] = lent.Op{Addr: a.Addr, B: i.mem[a.Off:][:a.Len]}
	}
	moves := cut(ops, moveBytes(i.left()))
	pace := &i.paces[0]
	if write {
		pace = &i.paces[1]
	}
	c := course{pace: pace}
	defer func() {
		for _, l := range c.under {
			i.hold(-l.bytes)
		}
	}()
	got := make(chan landing, movesATime)
	var errs []error
	for next, done := 0, 0; done < len(moves); {
		if next < len(moves) && next-done < movesATime {
			pieces, of := moves[next], next
			parts, bytes := make([]control.Part, len(pieces)), uint64(0)
			for j, one := range pieces {
				from := list[one.of]
				parts[j] = control.Part{Off: from.Off + (one.addr - from.Addr), Addr: one.addr, Len: uint64(len(one.b))}
				bytes += parts[j].Len
			}
			m := &control.Move{Write: write, Window: i.last, Peer: agent, Parts: parts}
			if err := i.p.begin(m, -1, func(m control.Message) { got <- landing{of, m} }); err != nil {
				return errors.Join(append(errs, err)...)
			}
			i.hold(bytes)
			c.begun(bytes)
			next++
			continue
		}
		l, err := i.p.wait(ctx, got, c.due())
		if err != nil {
			return err
		}
		failed, bad := l.m.(*control.Failed)
		if bad {
			errs = append(errs, i.p.refused(failed))
		}
		i.hold(-c.under[0].bytes)
		c.ended(!bad)
		done++
	}
	return errors.Join(errs...)
}

// left is what a peer of a fabric would have left of its staging.
func (i *Initiator) left() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return DefaultStaging/2 - min(i.held, DefaultStaging/2)
}

// hold counts n bytes that are under way now, or are no more.
func (i *Initiator) hold(n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held += n
}

// Via is the transport of a peer's writes or reads.
func (i *Initiator) Via(agent string, write bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ways[agent].of(write)
}

// Pid is the helper's number.
func (i *Initiator) Pid() int { return i.p.Pid() }

// Close ends the helper.
func (i *Initiator) Close() {
	i.p.end(errors.New("it is not needed any more"))
	for _, leave := range i.leave {
		leave()
	}
	i.table.Drop(initiatorOwner)
}
