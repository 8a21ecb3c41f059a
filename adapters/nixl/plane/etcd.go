package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"meridian/internal/etcd"
	"meridian/wire"
)

const (
	// Lifetime is how long what we have put into etcd stays there after this process.
	Lifetime = 15 * time.Second

	maxLabels = 64 // of an agent, of which metadata are taken out
)

// Etcd is metadata in etcd, where agents with NIXL_ETCD_ENDPOINTS put and look for them.
// Theirs stay for ever; ours end with this process.
type Etcd struct {
	where, namespace string
	client           *etcd.Client

	mu    sync.Mutex
	lease *etcd.Lease // nil: there is none
}

// NewEtcd makes one. It connects when it is used.
func NewEtcd(endpoints []string, namespace string) (*Etcd, error) {
	c, err := etcd.Open(etcd.Config{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	return &Etcd{where: "etcd://" + strings.Join(endpoints, ";"), namespace: namespace, client: c}, nil
}

// String implements Store.
func (e *Etcd) String() string { return e.where }

// Close implements Store.
func (e *Etcd) Close() error { return e.client.Close() }

func (e *Etcd) told(err error) error {
	code := wire.CodeUnreachable
	switch {
	case errors.Is(err, etcd.ErrDenied):
		code = wire.CodeDenied
	case errors.Is(err, etcd.ErrTooLarge):
		code = wire.CodeTooLarge
	}
	return fmt.Errorf("%v: %w: %w", e, code, err)
}

// Get implements Store.
func (e *Etcd) Get(ctx context.Context, agent string) ([]byte, error) {
	key := Key{Whole, agent}.Etcd(e.namespace)
	v, err := e.client.Get(ctx, key)
	switch {
	case err != nil:
		return nil, e.told(err)
	case len(v.B) == 0:
		return nil, fmt.Errorf("%v: key %q: %w", e, key, ErrAbsent)
	case len(v.B) > MaxBlob:
		return nil, fmt.Errorf("%v: key %q: %d bytes, limit %d: %w", e, key, len(v.B), MaxBlob, wire.CodeTooLarge)
	}
	return v.B, nil
}

// Publish implements Store. Agents look for the end of the agent's own key, so that is
// there first and goes with the same lease.
func (e *Etcd) Publish(ctx context.Context, agent string, blob []byte) error {
	lease, fresh, err := e.leased(ctx)
	if err != nil {
		return e.told(err)
	}
	for _, one := range []struct {
		key Key
		b   []byte
	}{{Key{"", agent}, nil}, {Key{Whole, agent}, blob}} {
		was, err := e.client.Get(ctx, one.key.Etcd(e.namespace))
		if err != nil {
			return e.told(err)
		}
		if !fresh && was.There() && bytes.Equal(was.B, one.b) {
			continue
		}
		if _, err := e.client.Put(ctx, was, one.b, lease); err != nil {
			return e.told(err)
		}
	}
	return nil
}

// leased is the lease, and whether it is a new one, that has no keys yet.
func (e *Etcd) leased(ctx context.Context) (l *etcd.Lease, fresh bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lease != nil {
		select {
		case <-e.lease.Lost():
			_ = e.lease.Close(ctx) // ends what is left of it
			e.lease = nil
		default:
			return e.lease, false, nil
		}
	}
	e.lease, err = e.client.Lease(ctx, Lifetime)
	return e.lease, true, err
}

// Withdraw implements Store.
func (e *Etcd) Withdraw(ctx context.Context, _ string) error {
	e.mu.Lock()
	l := e.lease
	e.lease = nil
	e.mu.Unlock()
	if l == nil {
		return nil
	}
	if err := l.Close(ctx); err != nil {
		return e.told(err)
	}
	return nil
}

// Reap implements Reaper: those who have loaded the metadata forget the agent.
func (e *Etcd) Reap(ctx context.Context, agent string, blob []byte) error {
	was, err := e.client.Get(ctx, Key{Whole, agent}.Etcd(e.namespace))
	if err != nil {
		return e.told(err)
	}
	if !bytes.Equal(was.B, blob) {
		return fmt.Errorf("%v: %q has other metadata by now: %w", e, agent, wire.CodeIncarnation)
	}
	if err := e.client.Delete(ctx, was); err != nil {
		return e.told(err)
	}
	own := Key{"", agent}.Etcd(e.namespace)
	rest, _, err := e.client.List(ctx, own, maxLabels)
	for _, v := range rest {
		if !strings.Contains(v.Key[len(own):], "/") { // else it is of an agent whose name begins with this one's and a slash
			err = errors.Join(err, e.client.Delete(ctx, v))
		}
	}
	if err != nil {
		return e.told(err)
	}
	return nil
}
