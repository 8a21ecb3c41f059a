package store

import (
	"context"
	"time"

	"meridian/adapters/mooncake/rpc"
)

// DefaultTenant is the tenant of clients that name none.
const DefaultTenant = "default"

// Options of a client. The zero value of each but Masters and Engine is a default.
type Options struct {
	Masters Masters
	Engine  Engine
	Tenant  string
	Timeout time.Duration // of one call to the master
	// NoChecksum leaves the CRC-64 out of what is put. What is got is checked where
	// it has one.
	NoChecksum bool
}

// Client reads and writes objects. It may be used by several goroutines.
type Client struct {
	rpc    *rpc.Client
	engine Engine
	tenant string
	id     UUID
	sum    bool
	now    func() time.Time
	pause  func(ctx context.Context, about time.Duration) error
}

// NewClient returns a client, which is not connected yet.
func NewClient(o Options) *Client {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	return &Client{
		rpc: rpc.New(rpc.Config{Where: o.Masters.Where, Timeout: o.Timeout}), engine: o.Engine,
		tenant: o.Tenant, id: NewUUID(), sum: !o.NoChecksum, now: time.Now, pause: pause,
	}
}

// Close ends calls under way.
func (c *Client) Close() error { return c.rpc.Close() }

// Exist reports whether an object is there and complete.
func (c *Client) Exist(ctx context.Context, key string) (bool, error) {
	a, err := fnExist.Call(ctx, c.rpc, keyQuery{Key: key, Tenant: c.tenant})
	return a.Value, failed("exist", key, err, a.Code)
}

// Remove removes an object. One that a reader has a lease on stays, with CodeLeased,
// unless forced.
func (c *Client) Remove(ctx context.Context, key string, force bool) error {
	a, err := fnRemove.Call(ctx, c.rpc, remove{Key: key, Force: force, Tenant: c.tenant})
	return failed("remove", key, err, a.Code)
}

// RemoveAll removes all objects of the tenant that nobody has a lease on, or all, and
// returns how many.
func (c *Client) RemoveAll(ctx context.Context, force bool) (int64, error) {
	n, err := fnRemoveAll.Call(ctx, c.rpc, removeAll{Force: force, Tenant: c.tenant})
	return n, failed("remove all of", c.tenant, err, 0)
}
