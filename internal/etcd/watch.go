package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchPause is how long a watch rests after a failure.
const watchPause = time.Second

// Watcher hears of what is below a prefix. Calls come one after the other.
type Watcher interface {
	// All is what there is: at the start, and whenever changes were missed, because
	// the cluster has forgotten them.
	All(values []Value)
	// Changed is a key that was written; one without Rev was deleted.
	Changed(v Value)
	// Failed is for a watch that does not hear now. It goes on trying.
	Failed(err error)
}

// Watch tells w until ctx ends. Its first list, and each one after it, has at most
// most keys.
func (c *Client) Watch(ctx context.Context, prefix string, most int, w Watcher) {
	for ctx.Err() == nil {
		values, rev, err := c.List(ctx, prefix, most)
		if err == nil {
			w.All(values)
			err = c.follow(ctx, prefix, rev+1, w)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // compacted: list again
		}
		w.Failed(err)
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// follow tells of changes from a revision on. It returns nil when that revision is
// compacted. The client resumes by itself when a connection breaks.
func (c *Client) follow(ctx context.Context, prefix string, rev int64, w Watcher) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range c.c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(rev)) {
		switch err := r.Err(); {
		case r.CompactRevision != 0:
			return nil
		case err != nil:
			return told(err)
		}
		for _, e := range r.Events {
			v := Value{Key: string(e.Kv.Key)}
			if e.Type == clientv3.EventTypePut {
				v = valueOf(e.Kv.Key, e.Kv.Value, e.Kv.ModRevision, e.Kv.CreateRevision)
			}
			w.Changed(v)
		}
	}
	return ctx.Err()
}
