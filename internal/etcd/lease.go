package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lease keeps keys for as long as this process lives and reaches the cluster.
type Lease struct {
	client *Client
	id     clientv3.LeaseID
	stop   context.CancelFunc
	lost   chan struct{}
}

// Lease makes one that lapses when nothing was heard of it for ttl, of at least a
// second. It is kept alive until Close.
func (c *Client) Lease(ctx context.Context, ttl time.Duration) (*Lease, error) {
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.c.Grant(bounded, max(1, int64(ttl/time.Second)))
	if err != nil {
		return nil, told(err)
	}
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	answers, err := c.c.KeepAlive(alive, r.ID)
	if err != nil {
		stop()
		return nil, told(err)
	}
	l := &Lease{client: c, id: r.ID, stop: stop, lost: make(chan struct{})}
	go func() {
		defer close(l.lost)
		for range answers { // nobody else reads them; the client drops what is not read, and logs
		}
	}()
	return l, nil
}

// Lost is closed when the lease is no longer kept: it lapsed, or was closed. Its keys
// are gone or will be.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Close ends the lease and its keys, at once where the cluster can be reached.
func (l *Lease) Close(ctx context.Context) error {
	l.stop()
	<-l.lost
	ctx, cancel := l.client.bounded(ctx)
	defer cancel()
	if _, err := l.client.c.Revoke(ctx, l.id); err != nil {
		return told(err)
	}
	return nil
}
