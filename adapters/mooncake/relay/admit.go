package relay

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"meridian/adapters/mooncake/internal/reach"
	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// Source is who may connect.
type Source struct {
	Name string // for metrics; "": one of Others
	From netip.Prefix
}

// Others is the name that all sources without one have in metrics.
const Others = "other"

// narrowFirst orders sources so that the first one that has an address is the one that
// says most about it.
func narrowFirst(list []Source) []Source {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Source) int { return cmp.Compare(b.From.Bits(), a.From.Bits()) })
	return list
}

// allow sets who may connect. Counts of a name that stays go on, those of one that is gone
// end.
func (r *Relay) allow(list []Source) {
	r.allowed.Lock()
	defer r.allowed.Unlock()
	was := r.counts
	r.sources, r.names, r.counts = narrowFirst(list), nil, map[string]*counts{}
	for _, s := range append(slices.Clone(list), Source{Name: Others}) {
		if s.Name == "" || r.counts[s.Name] != nil {
			continue
		}
		r.names = append(r.names, s.Name)
		if r.counts[s.Name] = was[s.Name]; r.counts[s.Name] == nil {
			r.counts[s.Name] = newCounts(s.Name)
		}
	}
}

// SetSources changes who may connect. The connections of a source that may no more are
// closed, and its requests with them; all others stay as they are.
func (r *Relay) SetSources(list []Source) {
	r.allow(list)
	r.daemon.Recheck()
	if now, _ := r.target.current(); now != nil {
		now.door.Recheck()
	}
}

// admit says who comes from an address: the source's name, or the address of one that
// has none. This host may always connect.
func (r *Relay) admit(source netip.Addr) (string, error) {
	source = source.Unmap().WithZone("")
	r.allowed.RLock()
	defer r.allowed.RUnlock()
	for _, s := range r.sources {
		if s.From.Contains(source) {
			return cmp.Or(s.Name, source.String()), nil
		}
	}
	if source.IsLoopback() {
		return source.String(), nil
	}
	return source.String(), fmt.Errorf("mooncake relay: source address %v is in none of the ranges of allow: %w", source, wire.CodeAuth)
}

// dial connects to the target, whose host is said by the configuration, or by itself or
// a metadata server: the latter must not send the relay to what is none of its business.
func (r *Relay) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	refuse, err := r.refuse(ctx)
	if err != nil {
		return nil, err
	}
	return reach.Dialer(refuse).DialContext(ctx, "tcp", addr)
}

// mayReach is why the relay would not connect to an address, whatever is there. One of a
// host's addresses is enough.
func (r *Relay) mayReach(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	refuse, err := r.refuse(ctx)
	if err != nil {
		return err
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, a := range all {
		if err = refuse(a.Unmap().WithZone("")); err == nil {
			return nil
		}
	}
	return err
}

// refuse has an error for each address where the target may not be.
func (r *Relay) refuse(ctx context.Context) (func(netip.Addr) error, error) {
	var own []netip.Addr
	if host := r.ownHost(); host != "" {
		var err error
		if own, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	return func(a netip.Addr) error {
		same := func(o netip.Addr) bool { return o.Unmap().WithZone("") == a }
		in := func(p netip.Prefix) bool { return p.Contains(a) }
		if slices.ContainsFunc(own, same) || slices.ContainsFunc(r.cfg.Reach, in) || r.cfg.Here && a.IsLoopback() {
			return nil
		}
		return fmt.Errorf("the target is said to be at %v, which is in none of the ranges of reach: %w", a, wire.CodeDenied)
	}, nil
}

// ownHost is the host that the target's name in the configuration has; "" where the name
// is one of a metadata server.
func (r *Relay) ownHost() string {
	if r.cfg.Server != metadata.P2P {
		return ""
	}
	host, _, _ := segment.SplitName(r.cfg.Target) // checked by New
	return host
}
