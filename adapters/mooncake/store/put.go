package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"meridian/adapters/mooncake/structpack"
)

const (
	// putTries bounds how often a put is begun for which there is no space.
	putTries     = 6
	firstPutWait = 50 * time.Millisecond

	// revokeWait is for telling the master of a put that failed, after the caller's
	// context may have ended.
	revokeWait = 2 * time.Second
)

// Put writes an object. Existed means that there was one of that key, of whatever
// content, which stays. While the master has no space it is asked again, a few times,
// after pauses that grow.
func (c *Client) Put(ctx context.Context, key string, body []byte) (existed bool, err error) {
	list, err := c.putStart(ctx, key, uint64(len(body)))
	if errors.Is(err, CodeExists) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := c.writeAll(ctx, list, body); err != nil {
		return false, &Error{Op: "put", Key: key, Err: errors.Join(err, c.revoke(ctx, key))}
	}
	meta := objectMeta{Key: key}
	if c.sum {
		meta.Checksum = structpack.Optional(Checksum(body))
	}
	a, err := fnPutEnd.Call(ctx, c.rpc, putEnd{Client: c.id, Meta: meta, Which: allReplicas, Tenant: c.tenant})
	return false, failed("put", key, err, a.Code)
}

// putStart has the master give out space.
func (c *Client) putStart(ctx context.Context, key string, size uint64) ([]replica, error) {
	wait := firstPutWait
	for try := 1; ; try++ {
		a, err := fnPutStart.Call(ctx, c.rpc, putStart{Client: c.id, Key: key, Length: size, Config: replicateConfig{Replicas: 1}, Tenant: c.tenant})
		err = failed("put", key, err, a.Code)
		if err == nil {
			return a.Value, nil
		}
		if try == putTries || !errors.Is(err, CodeNoSpace) {
			return nil, err
		}
		if c.pause(ctx, wait) != nil {
			return nil, err
		}
		wait *= 2
	}
}

// pause waits for about d: those who were refused together do not come back together.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeAll writes the body to each replica.
func (c *Client) writeAll(ctx context.Context, list []replica, body []byte) error {
	if len(list) == 0 {
		return errors.New("the master gave out no replica")
	}
	for _, r := range list {
		m := r.Kind.Memory
		switch {
		case m == nil:
			return fmt.Errorf("the master gave out a replica that is not in memory: %w", ErrNoReplica)
		case !usable(m.Buffer) || m.Buffer.Size != uint64(len(body)):
			return fmt.Errorf("the master gave out %d bytes at %#x of %.100q over %.20q, for %d bytes over tcp",
				m.Buffer.Size, m.Buffer.Address, m.Buffer.Endpoint, m.Buffer.Protocol, len(body))
		}
		if err := c.engine.Write(ctx, m.Buffer.Endpoint, m.Buffer.Address, body); err != nil {
			return fmt.Errorf("to %s: %w", m.Buffer.Endpoint, err)
		}
	}
	return nil
}

// revoke gives space back whose object was not written.
func (c *Client) revoke(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeWait)
	defer cancel()
	a, err := fnPutRevoke.Call(ctx, c.rpc, putRevoke{Client: c.id, Key: key, Which: allReplicas, Tenant: c.tenant})
	if err := failed("revoke", key, err, a.Code); err != nil {
		return fmt.Errorf("the space stays taken until the master's own deadline: %w", err)
	}
	return nil
}
