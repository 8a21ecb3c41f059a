package nixl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/fabric"
	"meridian/wire"
)

// stores are the planes on which agents find each other by name.
func (n *Node) stores() (list []plane.Store) {
	for _, s := range []plane.Store{n.cfg.TCPStore, n.cfg.Etcd} {
		if s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (n *Node) closeStores() (err error) {
	for _, store := range n.stores() {
		err = errors.Join(err, store.Close())
	}
	return err
}

// advertise keeps the metadata of our agent in a store, for as long as there is one.
func (n *Node) advertise(store plane.Store) {
	for {
		s := n.await(n.life)
		if s == nil {
			return
		}
		n.keep(s, store)
		// The helper is dead: who looks for it is told so.
		ctx, cancel := context.WithTimeout(context.Background(), exchangeTime)
		_ = store.Withdraw(ctx, s.agent)
		cancel()
	}
}

// publishOf puts a helper's metadata into a store, one call at a time: the last one has
// those of now.
func (n *Node) publishOf(ctx context.Context, s *session, store plane.Store) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	return store.Publish(ctx, s.agent, s.metadata())
}

// publishNow does so for the helper that serves.
func (n *Node) publishNow(store plane.Store) error {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s == nil {
		return fmt.Errorf("nixl: the helper has ended: %w", wire.CodeUnreachable)
	}
	ctx, cancel := context.WithTimeout(n.life, exchangeTime)
	defer cancel()
	return n.publishOf(ctx, s, store)
}

// keep has a helper's metadata in a store until the helper ends.
func (n *Node) keep(s *session, store plane.Store) {
	log := n.cfg.Helper.Log.With("agent", s.agent, "store", store.String())
	first := true
	for {
		err := n.publishOf(n.life, s, store)
		if n.life.Err() != nil {
			return
		}
		n.mu.Lock()
		was := n.there[store]
		n.there[store] = err
		n.mu.Unlock()
		switch {
		case err != nil && (was == nil || first):
			log.Warn("NIXL's metadata are not in the store; it is tried again", "err", err)
		case err == nil && (was != nil || first):
			log.Info("NIXL's metadata are in the store")
		}
		first = false
		select {
		case <-s.quit:
			return
		case <-n.life.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// published are the findings about it.
func (n *Node) published() (out []fabric.Finding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, store := range n.stores() {
		kind, _, _ := strings.Cut(store.String(), ":")
		f := fabric.Finding{ID: "metadata." + kind, Subject: "NIXL's metadata in " + store.String()}
		if err := n.there[store]; err != nil {
			f.Bad, f.Reason, f.Fix = true, err.Error(), "start the store, or correct its address: peers that are connected stay so"
		}
		out = append(out, f)
	}
	return out
}
