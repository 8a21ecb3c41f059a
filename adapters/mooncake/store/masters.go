package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// DefaultCluster is the name of a cluster that has none.
const DefaultCluster = "mooncake_cluster"

// defaultPort is the master's.
const defaultPort = "50051"

// KV reads one key of a key-value store: of etcd. Found is false where it has none.
type KV interface {
	Get(ctx context.Context, key string) (value string, found bool, err error)
}

// Masters says where the master is: one or several addresses, which are tried in
// their order, or the key under which the masters' election writes the leader's.
type Masters struct {
	addresses []string
	kv        KV
	key       string
}

// ParseMasters reads host:port, several of them with commas or semicolons between,
// or etcd://host:port;host:port. Open makes the client of etcd for the last form;
// where it is nil that form is refused. Cluster is the masters' --cluster_id.
func ParseMasters(s, cluster string, open func(endpoints []string) (KV, error)) (Masters, error) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "", s
	}
	addresses, err := parseAddresses(rest)
	if err != nil {
		return Masters{}, fmt.Errorf("masters %.200q: %w", s, err)
	}
	switch scheme {
	case "":
		return Masters{addresses: addresses}, nil
	case "etcd":
		if open == nil {
			return Masters{}, fmt.Errorf("masters %.200q: etcd:// is not available here; name the masters", s)
		}
		kv, err := open(addresses)
		if err != nil {
			return Masters{}, fmt.Errorf("masters %.200q: %w", s, err)
		}
		if cluster == "" {
			cluster = DefaultCluster
		}
		return Masters{kv: kv, key: "mooncake-store/" + cluster + "/master_view"}, nil
	}
	return Masters{}, fmt.Errorf("masters %.200q: %.20q is not supported: host:port, several with commas between, or etcd://", s, scheme)
}

func parseAddresses(s string) (out []string, err error) {
	for _, a := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' }) {
		a = strings.TrimSpace(a)
		host, port, err := net.SplitHostPort(a)
		if err != nil && !strings.Contains(a, "]") && strings.Count(a, ":") == 0 && a != "" {
			host, port, err = a, defaultPort, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%.100q is not host:port: %w", a, err)
		}
		if host == "" || port == "" {
			return nil, fmt.Errorf("%.100q has no host or no port", a)
		}
		out = append(out, net.JoinHostPort(host, port))
	}
	if len(out) == 0 {
		return nil, errors.New("it names no address")
	}
	return out, nil
}

// Where is the addresses to try now.
func (m Masters) Where(ctx context.Context) ([]string, error) {
	if m.kv == nil {
		return m.addresses, nil
	}
	v, found, err := m.kv.Get(ctx, m.key)
	if err != nil {
		return nil, fmt.Errorf("the leader's address, %s: %w", m.key, err)
	}
	if !found {
		return nil, fmt.Errorf("no master leads: there is no %s", m.key)
	}
	a, err := parseAddresses(v)
	if err != nil {
		return nil, fmt.Errorf("the leader's address, %s: %w", m.key, err)
	}
	return a, nil
}
