package mooncake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
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
	mu    sync.RWMutex
	hosts map[netip.Addr]*guest
	found found

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

// found are the addresses of listed peers, as they were looked up.
type found struct {
	addrs   map[string][]netip.Addr // by peer; of one that could not be looked up, those of before
	hosts   map[netip.Addr]string   // the peer of each
	trouble map[string]error        // by peer: why it is not known from where it comes
}

// keepLooking looks for the peers again and again, for as long as the server runs. A peer
// whose address is written in the configuration is known for good.
func (s *server) keepLooking(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery):
			}
			if r := s.node.roster.Load(); !s.node.fixed(r.peers) {
				s.lookAgain(ctx, r)
			}
		}
	}()
}

// lookAgain looks for the peers of a roster, unless there is another one afterwards.
func (s *server) lookAgain(ctx context.Context, r *roster) {
	s.mu.RLock()
	was := s.found.addrs
	s.mu.RUnlock()
	now := s.node.look(ctx, r.peers, was)
	s.node.changing.Lock()
	defer s.node.changing.Unlock()
	if s.node.roster.Load() != r || ctx.Err() != nil {
		return
	}
	if s.learn(now, r.guests) { // who has other addresses now must not be taken for who had them
		s.identify()
	}
}

// identify closes the connections of those who are somebody else now.
func (s *server) identify() {
	s.daemon.Identify()
	s.target.Identify()
}

// fixed says that the addresses of all peers are written in the configuration.
func (n *Node) fixed(peers []*peer) bool {
	return n.cfg.Plane == nil && !slices.ContainsFunc(peers, func(p *peer) bool {
		host, _, _ := segment.SplitName(p.Segment)
		_, err := netip.ParseAddr(host)
		return err != nil
	})
}

func (s *sources) close() {
	if s.stop != nil {
		s.stop()
		<-s.done
	}
}

// look finds the addresses of peers at the same time. was are those of before.
func (n *Node) look(ctx context.Context, peers []*peer, was map[string][]netip.Addr) found {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	addrs, errs := make([][]netip.Addr, len(peers)), make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { addrs[i], errs[i] = n.sourcesOf(ctx, p) })
	}
	wg.Wait()
	f := found{map[string][]netip.Addr{}, map[netip.Addr]string{}, map[string]error{}}
	for i, p := range peers {
		if errs[i] != nil {
			f.trouble[p.Name()], addrs[i] = errs[i], was[p.Name()]
		}
		f.addrs[p.Name()] = addrs[i]
		for _, a := range addrs[i] {
			if other := f.hosts[a]; other != "" {
				f.trouble[p.Name()] = &sharedError{other, a}
				continue
			}
			f.hosts[a] = p.Name()
		}
	}
	return f
}

// shared is an address that two peers have by the configuration.
func (f found) shared() error {
	for name, err := range f.trouble {
		if shared, ok := errors.AsType[*sharedError](err); ok {
			return fmt.Errorf("peer %s: %w", name, shared)
		}
	}
	return nil
}

// learn puts what was found in force, for these guests, and says whether an address has
// another peer than before.
func (s *server) learn(f found, guests map[string]*guest) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, err := range f.trouble {
		if was := s.found.trouble[name]; was == nil || was.Error() != err.Error() {
			s.node.cfg.Log.Warn("mooncake: it is not known from where a peer comes; it is looked again", "peer", name, "err", err)
		}
	}
	hosts := map[netip.Addr]*guest{}
	for a, name := range f.hosts {
		hosts[a] = guests[name]
	}
	changed = !maps.Equal(hosts, s.hosts)
	s.hosts, s.found = hosts, f
	return changed
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
	for _, p := range s.node.roster.Load().peers {
		f := fabric.Finding{ID: "source." + p.Name(), Severe: true, Subject: "addresses from which peer " + p.Name() + " comes"}
		if err := s.found.trouble[p.Name()]; err != nil {
			f.Bad, f.Reason = true, "it can neither bring nor take blocks by itself: "+err.Error()
			f.Fix = "start the peer, or correct its entry in peers; it is looked again every few seconds"
			if was := s.found.addrs[p.Name()]; len(was) > 0 && !errors.Is(err, wire.CodeConfig) {
				f.Severe, f.Reason = false, fmt.Sprintf("it is taken to come from %v, as before, until it is found again: %v", was[0], err)
				f.Fix = "start the metadata server; if that has lost its entries, start the peer's engine again, which alone can put them back"
			}
		}
		out = append(out, f)
	}
	return out
}
