package metadata

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/segment"
	"meridian/internal/stranger"
	"meridian/wire"
)

// P2P is the name of the plane that has no server.
const P2P = "P2PHANDSHAKE"

// Node is what one publishes of itself.
type Node struct {
	At      Endpoint // where it answers handshakes, and its epoch
	Segment segment.Descriptor
}

// Name is that of the node's segment.
func (n Node) Name() string { return n.Segment.Name }

// Plane is a way to find nodes and to be found. It may be used by several goroutines;
// every call ends with its context, or with a bound of the plane's.
type Plane interface {
	// Get is the descriptor of a segment, and the host of its data connections for
	// a descriptor that has none. ABSENT: nobody has the name.
	Get(ctx context.Context, name string) (segment.Descriptor, string, error)
	// Endpoint is where the node with a name answers handshakes.
	Endpoint(ctx context.Context, name string) (Endpoint, error)
	// Publish says what a node has. It may be repeated. A name that another node
	// has is an *OwnedError for as long as that node answers, or its epoch is newer.
	Publish(ctx context.Context, n Node) error
	// Remove takes back what Publish said, unless another node has the name now.
	Remove(ctx context.Context, n Node) error
	Close() error
}

// Config is what a plane needs.
type Config struct {
	Server   string            // as engines take it: P2PHANDSHAKE, http://…, https://…, etcd://HOST:PORT;HOST:PORT
	Cluster  string            // MC_METADATA_CLUSTER_ID of the engines; "" as there
	Dial     Dialer            // to owners of a name that are asked; nil: TCP
	Peers    *handshake.Client // asks peers without a server; nil: a new one
	TLS      *tls.Config       // of https and etcd; nil: the system's authorities
	User     string            // of etcd
	Password string
}

// Open makes the plane of a server. A server that cannot be reached is an error of the
// calls, not of Open.
func Open(c Config) (Plane, error) {
	if c.Server == P2P {
		return newP2P(c.Peers), nil
	}
	if err := (Key{Cluster: c.Cluster, Name: "any"}).Check(); err != nil {
		return nil, err
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	scheme, rest, found := strings.Cut(c.Server, "://")
	if !found { // as engines read it
		scheme, rest = "etcd", c.Server
	}
	var s store
	switch scheme {
	case "http", "https":
		u, err := url.Parse(c.Server)
		if err != nil {
			return nil, fmt.Errorf("metadata server %s: want http://HOST:PORT/PATH: %w", stranger.Quote(c.Server), wire.CodeConfig)
		}
		if s, err = newHTTP(u, c.TLS); err != nil {
			return nil, err
		}
	case "etcd":
		var err error
		if s, err = newEtcd(c, rest); err != nil {
			return nil, err
		}
	case "redis":
		return nil, fmt.Errorf("metadata server redis: the released engines are built without it, and abort; use P2PHANDSHAKE, http:// or etcd://: %w", wire.CodeUnsupported)
	default:
		return nil, fmt.Errorf("metadata server %s: want P2PHANDSHAKE, http://, https:// or etcd://: %w", stranger.Quote(c.Server), wire.CodeConfig)
	}
	return &central{cfg: c, store: s}, nil
}

// OwnedError is a name that another node has. It matches CodeExists, or CodeStale
// where that node's epoch is newer.
type OwnedError struct {
	Name  string
	By    Endpoint
	Epoch uint64 // of the node that wanted it
	Asked bool   // whether the other one lives
	Is    Outcome
}

func (e *OwnedError) stale() bool { return e.Epoch > 0 && e.By.Epoch > e.Epoch }

func (e *OwnedError) Error() string {
	if e.stale() {
		return fmt.Sprintf("the name %s has epoch %d, and this node is an earlier one, %d", stranger.Quote(e.Name), e.By.Epoch, e.Epoch)
	}
	if !e.Asked {
		return fmt.Sprintf("the name %s belongs to the node at %s now", stranger.Quote(e.Name), stranger.Quote(e.By.Addr()))
	}
	return fmt.Sprintf("the name %s belongs to the node at %s, which %s", stranger.Quote(e.Name), stranger.Quote(e.By.Addr()), e.Is)
}

// Unwrap returns CodeExists or CodeStale.
func (e *OwnedError) Unwrap() error {
	if e.stale() {
		return wire.CodeStale
	}
	return wire.CodeExists
}

// SizeError is a value that is too long. It matches CodeTooLarge.
type SizeError struct {
	Key   string
	Bytes int // that were looked at
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("metadata of %s: %d bytes or more, limit %d", stranger.Quote(e.Key), e.Bytes, MaxBytes)
}

// Unwrap returns CodeTooLarge.
func (e *SizeError) Unwrap() error { return wire.CodeTooLarge }

// absent is a key that nobody published.
func absent(k Key) error {
	return fmt.Errorf("no metadata of %s: %w", stranger.Quote(k.String()), wire.CodeAbsent)
}

// p2p asks the node itself: its name is its address.
type p2p struct{ client *handshake.Client }

func newP2P(c *handshake.Client) Plane {
	if c == nil {
		c = &handshake.Client{}
	}
	return &p2p{c}
}

func (p *p2p) Get(ctx context.Context, name string) (segment.Descriptor, string, error) {
	return p.client.Get(ctx, name)
}

// Endpoint is the name, taken apart.
func (p *p2p) Endpoint(_ context.Context, name string) (Endpoint, error) {
	host, port, err := segment.SplitName(name)
	return Endpoint{Host: host, Port: port}, err
}

// Publish checks that the node can be found: its own daemon answers those who ask.
func (p *p2p) Publish(ctx context.Context, n Node) error {
	at, err := p.Endpoint(ctx, n.Name())
	if err == nil && !at.At(n.At) {
		err = &ValueError{What: "the segment's name", Have: stranger.Quote(n.Name()), Want: "the address of its handshake, " + n.At.Addr()}
	}
	return err
}

// Remove does what Publish does: with its daemon the node is gone.
func (p *p2p) Remove(ctx context.Context, n Node) error { return p.Publish(ctx, n) }
func (p *p2p) Close() error                             { return nil }

// store is a server that keeps values by key. A change names the value that was
// there; a store with revisions refuses it where another one is there now.
type store interface {
	get(ctx context.Context, k Key) (value, error)
	put(ctx context.Context, k Key, body []byte, epoch uint64, was value) error
	remove(ctx context.Context, k Key, epoch uint64, was value) error
	close() error
}

type value struct {
	body  []byte
	there bool
	rev   int64 // of a store with revisions
}

// central is a plane whose server keeps what nodes publish.
type central struct {
	cfg   Config
	store store
}

func (c *central) key(k Kind, name string) Key {
	return Key{Kind: k, Cluster: c.cfg.Cluster, Name: name}
}

// look reads a value within its limit. A value that is not there is no error.
func (c *central) look(ctx context.Context, k Key) (value, error) {
	if err := k.Check(); err != nil {
		return value{}, err
	}
	v, err := c.store.get(ctx, k)
	if err == nil && len(v.body) > MaxBytes {
		err = &SizeError{Key: k.String(), Bytes: len(v.body)}
	}
	return v, err
}

func (c *central) Get(ctx context.Context, name string) (segment.Descriptor, string, error) {
	k := c.key(KindSegment, name)
	v, err := c.look(ctx, k)
	if err == nil && !v.there {
		err = absent(k)
	}
	if err != nil {
		return segment.Descriptor{}, "", err
	}
	d, err := segment.Parse(v.body)
	if err == nil && d.Name != name {
		err = &ValueError{What: "the name in the descriptor of " + stranger.Quote(name), Have: stranger.Quote(d.Name), Want: "the same"}
	}
	if err != nil {
		return segment.Descriptor{}, "", fmt.Errorf("%s: %w", stranger.Quote(k.String()), err)
	}
	if d.DataHost != "" {
		return d, d.DataHost, nil
	}
	at, err := c.Endpoint(ctx, name)
	if err != nil {
		return segment.Descriptor{}, "", err
	}
	return d, at.Host, nil
}

func (c *central) Endpoint(ctx context.Context, name string) (Endpoint, error) {
	at, v, err := c.endpoint(ctx, name)
	if err == nil && !v.there {
		err = absent(c.key(KindEndpoint, name))
	}
	return at, err
}

func (c *central) endpoint(ctx context.Context, name string) (Endpoint, value, error) {
	k := c.key(KindEndpoint, name)
	v, err := c.look(ctx, k)
	if err != nil || !v.there {
		return Endpoint{}, v, err
	}
	at, err := ParseEndpoint(v.body)
	if err != nil {
		err = fmt.Errorf("%s: %w", stranger.Quote(k.String()), err)
	}
	return at, v, err
}

func (c *central) Publish(ctx context.Context, n Node) error {
	body := n.Segment.Append(nil)
	if len(body) > MaxBytes {
		return &SizeError{Key: c.key(KindSegment, n.Name()).String(), Bytes: len(body)}
	}
	at, was, err := c.endpoint(ctx, n.Name())
	var broken *ValueError
	switch {
	case errors.As(err, &broken) && was.there: // nobody's that could be asked
	case err != nil:
		return err
	case was.there:
		if err := c.mayTake(ctx, n, at); err != nil {
			return err
		}
	}
	if err := c.store.put(ctx, c.key(KindEndpoint, n.Name()), n.At.Append(nil), n.At.Epoch, was); err != nil {
		return c.lost(ctx, n, err)
	}
	k := c.key(KindSegment, n.Name())
	if was, err = c.store.get(ctx, k); err != nil {
		return err
	}
	return c.lost(ctx, n, c.store.put(ctx, k, body, n.At.Epoch, was))
}

// mayTake says why a node may not have a name that is at another address.
func (c *central) mayTake(ctx context.Context, n Node, at Endpoint) error {
	e := &OwnedError{Name: n.Name(), By: at, Epoch: n.At.Epoch}
	switch {
	case e.stale():
		return e
	case at.At(n.At):
		return nil
	}
	if e.Is, e.Asked = Ask(ctx, c.cfg.Dial, at.Addr()), true; e.Is.Gone() {
		return nil
	}
	return e
}

// lost says who was faster where a change failed for that.
func (c *central) lost(ctx context.Context, n Node, err error) error {
	if err == nil {
		return nil
	}
	at, v, look := c.endpoint(ctx, n.Name())
	if look != nil || !v.there || at == n.At {
		return err
	}
	if owned := c.mayTake(ctx, n, at); owned != nil {
		return owned
	}
	return err
}

func (c *central) Remove(ctx context.Context, n Node) error {
	at, was, err := c.endpoint(ctx, n.Name())
	if err != nil {
		return err
	}
	if was.there {
		if at != n.At {
			return &OwnedError{Name: n.Name(), By: at, Epoch: n.At.Epoch}
		}
		if err := c.store.remove(ctx, c.key(KindEndpoint, n.Name()), n.At.Epoch, was); err != nil {
			return err
		}
	}
	k := c.key(KindSegment, n.Name())
	if was, err = c.store.get(ctx, k); err != nil || !was.there {
		return err
	}
	return c.store.remove(ctx, k, n.At.Epoch, was)
}

// Close ends what the plane has open. What was published stays, but in etcd.
func (c *central) Close() error { return c.store.close() }
