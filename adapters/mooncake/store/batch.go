package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/adapters/mooncake/structpack"
)

const (
	// maxBatch bounds the keys of one call to the master; larger batches are split.
	maxBatch = 1024
	// moves bounds the objects of a batch that are moved at a time.
	moves = 8
)

// Want is an object to be read into the beginning of To. After an error what To
// holds is not the object's.
type Want struct {
	Key string
	To  []byte

	Object Object
	Err    error
}

// Item is an object to be written. Existed is as Put returns it.
type Item struct {
	Key  string
	Body []byte

	Existed bool
	Err     error
}

// ExistBatch reports which objects are there and complete.
func (c *Client) ExistBatch(ctx context.Context, all []string) ([]bool, error) {
	var out []bool
	for part := range chunks(all) {
		a, err := fnBatchExist.Call(ctx, c.rpc, keys{Keys: part, Tenant: c.tenant})
		if err == nil {
			err = counted(len(part), len(a))
		}
		if err != nil {
			return nil, failed("exist", part[0], err, 0)
		}
		for i, x := range a {
			if err := failed("exist", part[i], nil, x.Code); err != nil {
				return nil, err
			}
			out = append(out, x.Value)
		}
	}
	return out, nil
}

// RemoveBatch is Remove for each key, and returns an error for each.
func (c *Client) RemoveBatch(ctx context.Context, all []string, force bool) []error {
	var out []error
	for part := range chunks(all) {
		a, err := fnBatchRemove.Call(ctx, c.rpc, batchRemove{Keys: part, Force: force, Tenant: c.tenant})
		if err == nil {
			err = counted(len(part), len(a))
		}
		for i, key := range part {
			code := int32(0)
			if err == nil {
				code = a[i].Code
			}
			out = append(out, failed("remove", key, err, code))
		}
	}
	return out
}

// GetBatch is GetInto for each object.
func (c *Client) GetBatch(ctx context.Context, all []Want) {
	for part := range chunks(all) {
		c.getPart(ctx, part)
	}
}

func (c *Client) getPart(ctx context.Context, part []Want) {
	asked := c.now()
	a, err := fnBatchReplicas.Call(ctx, c.rpc, keys{Keys: keysOf(part), Tenant: c.tenant})
	if err == nil {
		err = counted(len(part), len(a))
	}
	if err != nil {
		for i := range part {
			part[i].Err = failed("get", part[i].Key, err, 0)
		}
		return
	}
	side(len(part), func(i int) {
		w := &part[i]
		if w.Err = failed("get", w.Key, nil, a[i].Code); w.Err == nil {
			l := located{replicas: a[i].Value, until: asked.Add(leaseTime(a[i].Value.LeaseMS))}
			w.Object, w.Err = c.read(ctx, w.Key, l, w.To)
		}
	})
}

// PutBatch is Put for each object.
func (c *Client) PutBatch(ctx context.Context, all []Item) {
	for part := range chunks(all) {
		todo := make([]*Item, len(part))
		for i := range part {
			todo[i] = &part[i]
		}
		wait := firstPutWait
		for try := 1; ; try++ {
			todo = c.putPart(ctx, todo)
			if len(todo) == 0 || try == putTries || c.pause(ctx, wait) != nil {
				break
			}
			wait *= 2
		}
	}
}

// putPart puts objects, and returns those for which there was no space.
func (c *Client) putPart(ctx context.Context, part []*Item) (full []*Item) {
	ask := batchPutStart{Client: c.id, Config: replicateConfig{Replicas: 1}, Tenant: c.tenant}
	for _, it := range part {
		it.Existed, it.Err = false, nil
		ask.Keys, ask.Lengths = append(ask.Keys, it.Key), append(ask.Lengths, uint64(len(it.Body)))
	}
	a, err := fnBatchPutStart.Call(ctx, c.rpc, ask)
	if err == nil {
		err = counted(len(part), len(a))
	}
	if err != nil {
		fail(part, "put", err)
		return nil
	}
	var begun []*Item
	var places [][]replica
	for i, it := range part {
		err := failed("put", it.Key, nil, a[i].Code)
		switch {
		case err == nil:
			begun, places = append(begun, it), append(places, a[i].Value)
		case errors.Is(err, CodeExists):
			it.Existed = true
		case errors.Is(err, CodeNoSpace):
			full = append(full, it)
			fallthrough
		default:
			it.Err = err
		}
	}
	side(len(begun), func(i int) {
		if err := c.writeAll(ctx, places[i], begun[i].Body); err != nil {
			begun[i].Err = &Error{Op: "put", Key: begun[i].Key, Err: err}
		}
	})
	c.endPart(ctx, begun)
	return full
}

// endPart publishes what was written and gives back the space of what was not.
func (c *Client) endPart(ctx context.Context, begun []*Item) {
	end := batchPutEnd{Client: c.id, Which: allReplicas, Tenant: c.tenant}
	undo := batchPutRevoke{Client: c.id, Which: allReplicas, Tenant: c.tenant}
	var written, unwritten []*Item
	for _, it := range begun {
		if it.Err != nil {
			unwritten, undo.Keys = append(unwritten, it), append(undo.Keys, it.Key)
			continue
		}
		meta := objectMeta{Key: it.Key}
		if c.sum {
			meta.Checksum = structpack.Optional(Checksum(it.Body))
		}
		written, end.Metas = append(written, it), append(end.Metas, meta)
	}
	if len(written) > 0 {
		a, err := fnBatchPutEnd.Call(ctx, c.rpc, end)
		settle(written, "put", a, err)
	}
	if len(unwritten) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeWait)
		defer cancel()
		a, err := fnBatchPutRevoke.Call(ctx, c.rpc, undo)
		settle(unwritten, "revoke", a, err)
	}
}

// settle adds to each item what the master answered for it.
func settle(items []*Item, op string, a []expected[structpack.Void], err error) {
	if err == nil {
		err = counted(len(items), len(a))
	}
	if err != nil {
		fail(items, op, err)
		return
	}
	for i, it := range items {
		if err := failed(op, it.Key, nil, a[i].Code); err != nil {
			it.Err = errors.Join(it.Err, err)
		}
	}
}

func fail(items []*Item, op string, err error) {
	for _, it := range items {
		it.Err = errors.Join(it.Err, failed(op, it.Key, err, 0))
	}
}

// counted checks that a batch was answered in full.
func counted(asked, answered int) error {
	if asked != answered {
		return fmt.Errorf("the master was asked for %d objects and answers for %d", asked, answered)
	}
	return nil
}

// chunks cuts a batch into parts that the master is asked for at once.
func chunks[T any](all []T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := min(len(all), maxBatch)
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

func keysOf(wants []Want) []string {
	out := make([]string, len(wants))
	for i := range wants {
		out[i] = wants[i].Key
	}
	return out
}

// side runs f for 0 to n-1, several at a time.
func side(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, moves) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
