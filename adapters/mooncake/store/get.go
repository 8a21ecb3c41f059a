package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/wire"
)

const (
	// readTries bounds how often an object is asked for again whose lease ran out.
	readTries = 3
	// readPart is how much is read before the lease is looked at again.
	readPart = 16 << 20
)

// Object is what is known of an object that was read.
type Object struct {
	Size     uint64
	Verified bool // it has a CRC-64, which matches
}

// located is an object with a lease.
type located struct {
	replicas
	until time.Time // the lease's end, by our clock
}

// locate asks where an object is. The lease counts from before the question.
func (c *Client) locate(ctx context.Context, key string) (located, error) {
	asked := c.now()
	a, err := fnReplicas.Call(ctx, c.rpc, keyQuery{Key: key, Tenant: c.tenant})
	if err := failed("get", key, err, a.Code); err != nil {
		return located{}, err
	}
	return located{replicas: a.Value, until: asked.Add(leaseTime(a.Value.LeaseMS))}, nil
}

// leaseTime is a lease that the master gave, an hour at most.
func leaseTime(ms uint64) time.Duration {
	return time.Duration(min(ms, 3_600_000)) * time.Millisecond
}

// readable lists the buffers that can be read.
func readable(list []replica) (out []buffer) {
	for _, r := range list {
		if m := r.Kind.Memory; m != nil && r.Status == replicaComplete && usable(m.Buffer) {
			out = append(out, m.Buffer)
		}
	}
	return out
}

// usable reports whether a buffer is one that a transfer engine can reach.
func usable(b buffer) bool {
	return b.Protocol == "tcp" && b.Endpoint != "" && b.Size > 0 && b.Address != 0 && b.Address+b.Size > b.Address
}

// Size is the size of an object.
func (c *Client) Size(ctx context.Context, key string) (uint64, error) {
	l, err := c.locate(ctx, key)
	if err != nil {
		return 0, err
	}
	b := readable(l.List)
	if len(b) == 0 {
		return 0, &Error{Op: "size", Key: key, Err: ErrNoReplica}
	}
	return b[0].Size, nil
}

// Get reads an object of at most limit bytes into new memory.
func (c *Client) Get(ctx context.Context, key string, limit uint64) ([]byte, Object, error) {
	l, err := c.locate(ctx, key)
	if err != nil {
		return nil, Object{}, err
	}
	b := readable(l.List)
	if len(b) == 0 {
		return nil, Object{}, &Error{Op: "get", Key: key, Err: ErrNoReplica}
	}
	if b[0].Size > limit {
		return nil, Object{}, &Error{Op: "get", Key: key, Err: fmt.Errorf("%d bytes, the limit is %d: %w", b[0].Size, limit, wire.CodeTooLarge)}
	}
	to := make([]byte, b[0].Size)
	o, err := c.read(ctx, key, l, to)
	if err != nil {
		return nil, Object{}, err
	}
	return to[:o.Size], o, nil
}

// GetInto reads an object into the beginning of to. After an error what to holds is
// not the object's.
func (c *Client) GetInto(ctx context.Context, key string, to []byte) (Object, error) {
	l, err := c.locate(ctx, key)
	if err != nil {
		return Object{}, err
	}
	return c.read(ctx, key, l, to)
}

// GetRange reads a part of an object, from offset on, and fills to. It is not
// verified: the CRC-64 is the whole object's.
func (c *Client) GetRange(ctx context.Context, key string, offset uint64, to []byte) (Object, error) {
	l, err := c.locate(ctx, key)
	if err != nil {
		return Object{}, err
	}
	return c.retry(ctx, key, l, func(l located) (Object, error) {
		return c.readAny(l, func(b buffer) (Object, error) {
			if n := uint64(len(to)); offset > b.Size || n > b.Size-offset {
				return Object{}, fmt.Errorf("bytes %d to %d of %d: %w", offset, offset+n, b.Size, wire.CodeInvalid)
			}
			return Object{Size: b.Size}, c.readBuffer(ctx, key, b, l.until, offset, to)
		})
	})
}

// read reads an object that was located.
func (c *Client) read(ctx context.Context, key string, l located, to []byte) (Object, error) {
	return c.retry(ctx, key, l, func(l located) (Object, error) {
		return c.readAny(l, func(b buffer) (Object, error) {
			if b.Size > uint64(len(to)) {
				return Object{}, fmt.Errorf("%d bytes, the limit is %d: %w", b.Size, len(to), wire.CodeTooLarge)
			}
			body := to[:b.Size]
			if err := c.readBuffer(ctx, key, b, l.until, 0, body); err != nil {
				return Object{}, err
			}
			if l.Checksum != nil && Checksum(body) != *l.Checksum {
				return Object{}, fmt.Errorf("from %s: %w", b.Endpoint, CodeChecksum)
			}
			return Object{Size: b.Size, Verified: l.Checksum != nil}, nil
		})
	})
}

// retry locates an object again where the lease ran out while it was read.
func (c *Client) retry(ctx context.Context, key string, l located, read func(located) (Object, error)) (Object, error) {
	for try := 1; ; try++ {
		o, err := read(l)
		if err == nil {
			return o, nil
		}
		if try == readTries || !errors.Is(err, CodeLeaseOver) {
			return Object{}, &Error{Op: "get", Key: key, Err: err}
		}
		if l, err = c.locate(ctx, key); err != nil {
			return Object{}, err
		}
	}
}

// readAny tries one replica after the other.
func (c *Client) readAny(l located, read func(buffer) (Object, error)) (Object, error) {
	var failures []error
	for _, b := range readable(l.List) {
		o, err := read(b)
		if err == nil {
			return o, nil
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return Object{}, ErrNoReplica
	}
	return Object{}, errors.Join(failures...)
}

// readBuffer reads a part of a buffer, renews the lease on the way, and checks after
// the last byte that it still holds.
func (c *Client) readBuffer(ctx context.Context, key string, b buffer, until time.Time, from uint64, to []byte) error {
	term := until.Sub(c.now())
	for len(to) > 0 {
		left := until.Sub(c.now())
		if left <= 0 {
			return CodeLeaseOver
		}
		if left < term/2 {
			l, err := c.locate(ctx, key)
			if err != nil {
				return err
			}
			if !holds(l.List, b) {
				return CodeLeaseOver
			}
			until = l.until
		}
		n := min(len(to), readPart)
		if err := c.engine.Read(ctx, b.Endpoint, b.Address+from, to[:n]); err != nil {
			return fmt.Errorf("from %s: %w", b.Endpoint, err)
		}
		from, to = from+uint64(n), to[n:]
	}
	if !c.now().Before(until) {
		return CodeLeaseOver
	}
	return nil
}

// holds reports whether a buffer is still among an object's replicas.
func holds(list []replica, b buffer) bool {
	for _, x := range readable(list) {
		if x == b {
			return true
		}
	}
	return false
}
