package nixl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"meridian/adapters/nixl/plane"
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
	case ByTCPStore:
		return &entry{store: p.node.cfg.TCPStore, agent: agent}, nil
	case ByEtcd:
		return &entry{store: p.node.cfg.Etcd, agent: agent}, nil
	}
	return dialListener(ctx, p.Address)
}

// entry is a peer's metadata in a store.
type entry struct {
	store plane.Store
	agent string
	last  []byte
}

// metadata looks whether the entry is there still. A store that does not answer says
// nothing about the peer.
func (e *entry) metadata(ctx context.Context) ([]byte, error) {
	b, err := e.store.Get(ctx, e.agent)
	switch {
	case err == nil:
		e.last = b
	case errors.Is(err, plane.ErrAbsent):
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	case e.last == nil || ctx.Err() != nil:
		return nil, err
	}
	return e.last, nil
}

// give does nothing: publish does it for all.
func (e *entry) give([]byte) error { return nil }

func (e *entry) close() {}
