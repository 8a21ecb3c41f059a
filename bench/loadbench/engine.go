package loadbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// engine is the measuring process as an engine of a daemon.
type engine struct {
	*client.Engine
	ns   client.NS
	size uint32
	body []byte // of PUTs, one after the other and again
}

// putBytes are the bytes that PUTs send from: more than caches hold.
const putBytes = 128 << 20

func dial(ctx context.Context, p *process, size uint32) (*engine, error) {
	e := &engine{size: size}
	var err error
	if e.Engine, err = client.DialEngine(ctx, strings.TrimPrefix(p.address("engine"), "unix://"), client.Options{}); err != nil {
		return nil, fmt.Errorf("engine of %s: %w", p.Name, err)
	}
	if e.ns, err = e.Open(ctx, manifest(size)); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *engine) close() error { return e.Close() }

// load gets all blocks as one prompt: in as many requests at the same time as
// their number takes. They are read once: released, they are gone. It returns
// GB/s.
func (e *engine) load(ctx context.Context, keys []wire.Key) (float64, error) {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	leases := make([]client.Lease, (len(keys)+link.MaxItems-1)/link.MaxItems)
	began := time.Now()
	for i := range leases {
		part := keys[i*link.MaxItems : min(len(keys), (i+1)*link.MaxItems)]
		wg.Go(func() {
			err := e.AcquireInto(ctx, &leases[i], e.ns, part, client.AcquireOptions{Fetch: true, Transient: true, Deadline: time.Minute})
			for j := range leases[i].Blocks {
				b := &leases[i].Blocks[j]
				if err == nil && (b.Err != nil || uint32(len(b.Body)) != e.size) {
					err = fmt.Errorf("block %d of %d: %d bytes, %w", j, len(part), len(b.Body), b.Err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	took := time.Since(began)
	for i := range leases {
		leases[i].Release()
	}
	errs = append(errs, e.Ping(ctx)) // releases travel in front of it
	return float64(len(keys)) * float64(e.size) / took.Seconds() / 1e9, errors.Join(errs...)
}

// put stores blocks under all keys, in one call. It returns GB/s.
func (e *engine) put(ctx context.Context, keys []wire.Key) (float64, error) {
	size := int(e.size)
	if e.body == nil {
		e.body = make([]byte, size*max(1, min(len(keys), putBytes/size)))
		fill(e.body, 2)
	}
	blocks := make([]client.Block, len(keys))
	for i, k := range keys {
		at := i * size % len(e.body)
		blocks[i] = client.Block{NS: e.ns, Key: k, Tier: wire.OutputCritical, Body: e.body[at : at+size]}
	}
	began := time.Now()
	errs := e.Put(ctx, blocks)
	took := time.Since(began)
	for i, err := range errs {
		if err != nil {
			return 0, fmt.Errorf("PUT of block %d of %d: %w", i, len(keys), err)
		}
	}
	return float64(len(keys)) * float64(size) / took.Seconds() / 1e9, nil
}
