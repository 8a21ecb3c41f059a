package mooncake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/internal/stranger"
	"meridian/wire"
)

const (
	// lookEvery is how often it is looked which addresses a listed peer has. What was
	// known stays where a look fails.
	lookEvery = 10 * time.Second
	lookWait  = 3 * time.Second // for one look at all peers, also at the start
)

// sources says from which addresses the listed peers come. An address is all that a peer
// has, so two peers at one address cannot be told apart.
type sources struct {
	mu      sync.RWMutex
	hosts   map[netip.Addr]*guest
	trouble map[string]error // by peer: why it is not known from where it comes

	stop context.CancelFunc
	done chan struct{}
}

// sharedError is an address that another peer has. It matches CodeConfig.
type sharedError struct {
	other string
	at    netip.Addr
}

func (e *sharedError) Error() string {
	return fmt.Sprintf("peer %s has the address %v too, and peers are told apart by it", e.other, e.at)
}

// Unwrap returns CodeConfig.
func (e *sharedError) Unwrap() error { return wire.CodeConfig }

// from is the listed peer that comes from an address.
func (s *sources) from(a netip.Addr) *guest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.hosts[a]
}

// firstLook finds the peers that can be found now, refuses two at one address where the
// configuration says so, and has the others looked for again for as long as the server
// runs. A peer whose address is written in the configuration is known for good.
func (s *server) firstLook(ctx context.Context) error {
	found := s.look(ctx, nil)
	fixed := s.node.cfg.Plane == nil
	for _, p := range s.node.peers {
		if shared, ok := errors.AsType[*sharedError](s.trouble[p.Name()]); ok && s.node.cfg.Plane == nil {
			return fmt.Errorf("peer %s: %w", p.Name(), shared)
		}
		host, _, _ := segment.SplitName(p.Segment)
		_, err := netip.ParseAddr(host)
		fixed = fixed && err == nil
	}
	if fixed {
		return nil
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery):
				found = s.look(ctx, found)
			}
		}
	}()
	return nil
}

func (s *sources) close() {
	if s.stop != nil {
		s.stop()
		<-s.done
	}
}

// look finds the addresses of all peers at the same time. was are those of before.
func (s *server) look(ctx context.Context, was map[string][]netip.Addr) map[string][]netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	addrs, errs := make([][]netip.Addr, len(s.node.peers)), make([]error, len(s.node.peers))
	var wg sync.WaitGroup
	for i, p := range s.node.peers {
		wg.Go(func() { addrs[i], errs[i] = s.node.sourcesOf(ctx, p) })
	}
	wg.Wait()
	found, hosts, trouble := map[string][]netip.Addr{}, map[netip.Addr]*guest{}, map[string]error{}
	for i, p := range s.node.peers {
		if errs[i] != nil {
			trouble[p.Name()], addrs[i] = errs[i], was[p.Name()]
		}
		found[p.Name()] = addrs[i]
		for _, a := range addrs[i] {
			if other := hosts[a]; other != nil {
				trouble[p.Name()] = &sharedError{other.Name(), a}
				continue
			}
			hosts[a] = s.guests[p.Name()]
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, err := range trouble {
		if s.trouble[name] == nil || s.trouble[name].Error() != err.Error() {
			s.node.cfg.Log.Warn("mooncake: it is not known from where a peer comes; it is looked again", "peer", name, "err", err)
		}
	}
	s.hosts, s.trouble = hosts, trouble
	return found
}

// sourcesOf are the addresses of the host where a peer answers handshakes.
func (n *Node) sourcesOf(ctx context.Context, p *peer) ([]netip.Addr, error) {
	at, err := n.handshakeOf(ctx, p)
	if err != nil {
		return nil, err
	}
	host, _, err := segment.SplitName(at)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("%s in peers: %w: %w", stranger.Quote(p.Segment), wire.CodeUnreachable, err)
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap().WithZone("")
	}
	return addrs, nil
}

// sourceFindings says of each peer whether it is known when it comes.
func (s *server) sourceFindings() []fabric.Finding {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []fabric.Finding
	for _, p := range s.node.peers {
		f := fabric.Finding{ID: "source." + p.Name(), Severe: true, Subject: "addresses from which peer " + p.Name() + " comes"}
		if err := s.trouble[p.Name()]; err != nil {
			f.Bad, f.Reason = true, "it can neither bring nor take blocks by itself: "+err.Error()
			f.Fix = "start the peer, or correct its entry in peers; it is looked again every few seconds"
		}
		out = append(out, f)
	}
	return out
}
