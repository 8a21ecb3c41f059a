package nixl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/fabric/lent"
	"meridian/wire"
)

// How the address of a listed peer begins that is found by its agent's name. One without
// any of these is HOST:PORT of the agent's own listener.
const (
	ByListener = "listener://" // it sends its metadata to our listener
	ByTCPStore = "tcpstore://" // it has them on the TCPStore
	ByEtcd     = "etcd://"     // it has them in etcd
)

// Planned takes the address of a peer apart; scheme is "" for HOST:PORT.
func Planned(address string) (scheme, agent string) {
	for _, by := range []string{ByListener, ByTCPStore, ByEtcd} {
		if agent, found := strings.CutPrefix(address, by); found {
			return by, agent
		}
	}
	return "", ""
}

// source is where a peer's metadata come from, and ours go to.
type source interface {
	// metadata are the peer's as they are now; an error says that it is gone.
	metadata(ctx context.Context) ([]byte, error)
	// give hands ours over, where agents do not look for them by themselves.
	give(blob []byte) error
	close()
}

// find opens a peer's source.
func (p *peer) find(ctx context.Context) (source, error) {
	switch by, agent := Planned(p.Address); by {
	case ByListener:
		return p.node.inbox.sent(agent)
	case ByTCPStore, ByEtcd:
		store := p.node.cfg.TCPStore
		if by == ByEtcd {
			store = p.node.cfg.Etcd
		}
		if store == nil {
			return nil, fmt.Errorf("nixl: peer %s is at %s, and there is no such store: %w", p.Name(), p.Address, wire.CodeConfig)
		}
		return &entry{store: store, agent: agent, of: p}, nil
	}
	return dialListener(ctx, p.Address)
}

// entry is a peer's metadata in a store.
type entry struct {
	store plane.Store
	agent string
	of    *peer
	last  []byte
	life  uint64 // of the store, when it had the entry
}

// metadata looks whether the entry is there still. A store that does not answer says
// nothing about the peer, nor does one that was started again and has lost all entries:
// whether the peer is there, its memory tells then.
func (e *entry) metadata(ctx context.Context) ([]byte, error) {
	b, err := e.store.Get(ctx, e.agent)
	life := uint64(0)
	if m, ok := e.store.(plane.Mortal); ok {
		life = m.Life()
	}
	switch {
	case err == nil:
		e.last, e.life = b, life
		e.of.miss("")
	case errors.Is(err, plane.ErrAbsent) && e.last != nil && e.life != life && e.of.alive():
		e.of.miss("its memory answers, but " + e.store.String() + " was started again and has not got its metadata: its agent must send them once more before others find it")
	case errors.Is(err, plane.ErrAbsent):
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	case e.last == nil || ctx.Err() != nil:
		return nil, err
	}
	return e.last, nil
}

// miss keeps why nobody else finds a peer that is connected; "" where it is found.
func (p *peer) miss(why string) {
	p.mu.Lock()
	was := p.missing
	p.missing = why
	p.mu.Unlock()
	if why != "" && was == "" {
		p.node.cfg.Helper.Log.Warn("NIXL peer's metadata are lost with their store; it stays connected", "peer", p.Name(), "address", p.Address, "why", why)
	}
}

// give puts ours into the store at once: what is there may be older than the peer's window.
func (e *entry) give([]byte) error { return e.of.node.publishNow(e.store) }

func (e *entry) close() {}

// touch reads a byte of the memory that a peer of a store has lent: no connection says by
// its end that the peer is gone, and a transfer that fails does.
func (p *peer) touch(ctx context.Context, l source) {
	if _, found := l.(*entry); !found {
		return
	}
	p.mu.Lock()
	at := p.link.lent
	p.mu.Unlock()
	if at.Len == 0 {
		return // none of our blocks is there
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	ops := []lent.Op{{Addr: at.Off, B: make([]byte, 1)}}
	p.Read(ctx, ops)
	p.mu.Lock()
	p.answers = ops[0].Err == nil
	p.mu.Unlock()
}

// alive says that the peer's memory was read the last time.
func (p *peer) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}

// dead is an agent of etcd that cannot be loaded, since nobody is where it was.
type dead struct {
	blob  []byte
	since time.Time
	times int
}

const (
	// Metadata are taken out of etcd when nobody was at their agent's address so often,
	// for so long.
	reapTimes = 3
	reapTime  = 30 * time.Second

	// nobodyThere is how UCX says that the host lives and the process does not.
	nobodyThere = "Connection refused"
)

// reap takes a dead agent's metadata out of etcd, where they are for ever else. err is that
// of loading it.
func (p *peer) reap(ctx context.Context, blob []byte, err error) {
	by, agent := Planned(p.Address)
	reaper, can := p.node.cfg.Etcd.(plane.Reaper)
	if !can || !p.node.cfg.Reap || by != ByEtcd || err == nil || !strings.Contains(err.Error(), nobodyThere) {
		p.dead = dead{}
		return
	}
	if !bytes.Equal(blob, p.dead.blob) {
		p.dead = dead{blob: blob, since: time.Now()}
	}
	if p.dead.times++; p.dead.times < reapTimes || time.Since(p.dead.since) < cmp.Or(p.node.cfg.reapTime, reapTime) {
		return
	}
	since, log := p.dead.since, p.node.cfg.Helper.Log.With("nixl_agent", agent, "peer", p.Name())
	p.dead = dead{}
	if err := reaper.Reap(ctx, agent, blob); err != nil {
		log.Warn("the metadata of a dead NIXL agent could not be taken out of etcd", "err", err)
		return
	}
	log.Warn("NIXL agent is dead: its metadata were taken out of etcd", "refused_since", since, "err", err)
}
