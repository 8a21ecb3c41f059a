package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"meridian/wire"
)

// MaxFabrics bounds a registry: one entry a fabric and, where a fabric is made
// of peers, one a peer.
const MaxFabrics = 4096

// PeerName is the registry name of one peer of a fabric made of peers: a route
// to "link" that wants peer "b" looks for "link/b" first and for "link" next.
func PeerName(fabric, peer string) string {
	if peer == "" {
		return fabric
	}
	return fabric + "/" + peer
}

// SplitName takes a registry name apart into the fabric's and the peer's, which is
// empty for a fabric as a whole.
func SplitName(name string) (fabric, peer string) {
	fabric, peer, _ = strings.Cut(name, "/")
	return fabric, peer
}

// Registry holds fabrics by name and owns them: what was added is closed by
// Close, unless Remove took it back. The zero Registry is ready to use, by
// several goroutines.
type Registry struct {
	mu     sync.RWMutex
	byName map[string]Fabric
	order  []string // in the order of Add
	closed bool
}

// Add makes f known as name. The error matches CodeExists for a name in use,
// CodeTooMany above MaxFabrics, CodeDraining after Close, and CodeInvalid for
// no name or no fabric; f then still belongs to the caller.
func (r *Registry) Add(name string, f Fabric) error {
	if name == "" || f == nil {
		return &Error{Code: wire.CodeInvalid, Fabric: name, Text: "a registry entry needs a name and a fabric"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch _, dup := r.byName[name]; {
	case r.closed:
		return &Error{Code: wire.CodeDraining, Fabric: name, Text: "the registry is closed"}
	case dup:
		return &Error{Code: wire.CodeExists, Fabric: name, Text: "a fabric of this name is registered"}
	case len(r.byName) >= MaxFabrics:
		return &Error{Code: wire.CodeTooMany, Fabric: name, Have: MaxFabrics, Need: MaxFabrics + 1}
	}
	if r.byName == nil {
		r.byName = make(map[string]Fabric)
	}
	r.byName[name] = f
	r.order = append(r.order, name)
	return nil
}

// Remove takes a fabric out and hands it to the caller, who closes it.
func (r *Registry) Remove(name string) (Fabric, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.byName[name]
	if !ok {
		return nil, false
	}
	delete(r.byName, name)
	r.order = slices.DeleteFunc(r.order, func(s string) bool { return s == name })
	return f, true
}

// Get returns the fabric of that name.
func (r *Registry) Get(name string) (Fabric, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f, ok := r.byName[name]
	return f, ok
}

// Names returns all names in ascending order.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := slices.Clone(r.order)
	slices.Sort(names)
	return names
}

// Close closes every fabric, the last added first, each one once, and returns
// what went wrong, by name. Nothing can be added afterwards; Close again is nil.
func (r *Registry) Close() error {
	r.mu.Lock()
	order, byName := r.order, r.byName
	r.order, r.byName, r.closed = nil, nil, true
	r.mu.Unlock()

	var errs []error
	for _, name := range slices.Backward(order) {
		if err := byName[name].Close(); err != nil {
			errs = append(errs, fmt.Errorf("close fabric %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
