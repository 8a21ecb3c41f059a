package nixl

import (
	"context"
	"fmt"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/blocks/quota"
)

// invite is the window of a peer, which is made where it has none yet; the metadata that
// peers load have it then.
func (s *session) invite(ctx context.Context, p *peer) (guest, error) {
	s.inviting.Lock()
	defer s.inviting.Unlock()
	if !s.enter() {
		return guest{}, s.err()
	}
	defer s.users.Done()
	s.mu.Lock()
	g, has := s.guests[p]
	if !has {
		if g, has = s.spares[p.Name()]; has {
			delete(s.spares, p.Name())
			s.guests[p] = g
		}
	}
	s.mu.Unlock()
	if has {
		return g, nil
	}
	if err := s.open(ctx, p); err != nil {
		return guest{}, err
	}
	return s.guest(p), s.learn(ctx)
}

// open makes the window of a peer.
func (s *session) open(ctx context.Context, p *peer) (err error) {
	who := quota.Holder{Kind: quota.Peer, Name: p.Name()}
	g := guest{owner: s.node.cfg.Store.NewOwnerFor(who, 0)}
	s.mu.Lock()
	s.last++
	number := stagingWindow + s.last
	s.mu.Unlock()
	if g.w, g.at, err = s.openWindow(ctx, g.owner, number, s.node.cfg.Window, who); err != nil {
		return fmt.Errorf("window of peer %s: %w", p.Name(), err)
	}
	s.mu.Lock()
	s.guests[p] = g
	s.mu.Unlock()
	return nil
}

// learn asks the helper for the metadata of its agent, with the windows that there are.
func (s *session) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := ask[*control.Blob](ctx, s.process, &control.Metadata{}, -1)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.blob = m.Blob
	s.mu.Unlock()
	return nil
}

// metadata are what peers load.
func (s *session) metadata() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blob
}

// guest is the window of a peer that is connected.
func (s *session) guest(p *peer) guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guests[p]
}

// spare keeps the window of a peer that was not listed after all for the next one of its
// name: a peer that has metadata with it was told of its own window.
func (s *session) spare(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, has := s.guests[p]; has {
		delete(s.guests, p)
		s.spares[p.Name()] = g
	}
}

// retire gives up the windows of peers that are listed no more, and says how many such the
// helper has.
func (s *session) retire(peers []*peer) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range peers {
		if _, has := s.guests[p]; has {
			s.retired++
		}
	}
	return s.retired
}

// rested waits until an agent that was forgotten a moment ago can be loaded again: UCX does
// not survive one that is added right after it was removed.
func (s *session) rested(ctx context.Context, agent string) error {
	s.mu.Lock()
	wait := firstWait - time.Since(s.forgot[agent])
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// forgotten notes that an agent is being forgotten.
func (s *session) forgotten(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, at := range s.forgot {
		if time.Since(at) > firstWait {
			delete(s.forgot, name)
		}
	}
	s.forgot[agent] = time.Now()
}
