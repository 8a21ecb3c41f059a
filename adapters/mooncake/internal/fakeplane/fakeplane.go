// Package fakeplane is a metadata server in memory, for tests. It is for test binaries
// only.
package fakeplane

import (
	"context"
	"errors"
	"sync"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/wire"
)

// Plane is a metadata server in memory. Its fields are changed in Set.
type Plane struct {
	mu      sync.Mutex
	Nodes   map[string]metadata.Node
	Err     error // what every call fails with
	Puts    int
	Removed int
}

// Set changes it, or looks at it.
func (p *Plane) Set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Plane) look(name string) (metadata.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, there := p.Nodes[name]
	switch {
	case p.Err != nil:
		return n, p.Err
	case !there:
		return n, wire.CodeAbsent
	}
	return n, nil
}

// Get implements metadata.Plane.
func (p *Plane) Get(_ context.Context, name string) (segment.Descriptor, string, error) {
	n, err := p.look(name)
	return n.Segment, n.At.Host, err
}

// Endpoint implements metadata.Plane.
func (p *Plane) Endpoint(_ context.Context, name string) (metadata.Endpoint, error) {
	n, err := p.look(name)
	return n.At, err
}

// Publish implements metadata.Plane.
func (p *Plane) Publish(_ context.Context, n metadata.Node) error {
	was, err := p.look(n.Name())
	switch {
	case err == nil && !was.At.At(n.At):
		return &metadata.OwnedError{Name: n.Name(), By: was.At, Epoch: n.At.Epoch, Asked: true}
	case err != nil && !errors.Is(err, wire.CodeAbsent):
		return err
	}
	p.Set(func() {
		p.Puts++
		p.Nodes[n.Name()] = n
	})
	return nil
}

// Remove implements metadata.Plane.
func (p *Plane) Remove(_ context.Context, n metadata.Node) error {
	p.Set(func() {
		p.Removed++
		delete(p.Nodes, n.Name())
	})
	return nil
}

// Close implements metadata.Plane.
func (p *Plane) Close() error { return nil }

// Count is how often something was published.
func (p *Plane) Count() (n int) {
	p.Set(func() { n = p.Puts })
	return n
}
