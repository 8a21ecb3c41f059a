package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	view atomic.Pointer[map[string]family] // of byPath, read for every block and never changed; nil: not made

	mu     sync.Mutex
	byPath map[path]*entry
	order  []string // in the order of Add
	sorted []string // order, ascending; nil: not made
	closed bool
}

// path is a registry name taken apart, so that the choice of a peer joins no strings.
type path struct{ fabric, peer string }

type entry struct {
	name     string
	f        Fabric
	gate     Gate // f, if it is one
	tenanted Tenanted
}

// family is the entries of one fabric.
type family struct {
	whole *entry
	peers map[string]*entry
}

func pathOf(name string) path {
	f, peer := SplitName(name)
	return path{f, peer}
}

// family returns the entries of a fabric.
func (r *Registry) family(fabric string) family {
	if v := r.view.Load(); v != nil {
		return (*v)[fabric]
	}
	return r.look()[fabric]
}

// look makes the view, after a change and for the first who reads: a thousand peers
// that are added in a row cost it once.
func (r *Registry) look() map[string]family {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := make(map[string]family)
	for p, e := range r.byPath {
		f := v[p.fabric]
		switch {
		case p.peer == "":
			f.whole = e
		case f.peers == nil:
			f.peers = map[string]*entry{p.peer: e}
		default:
			f.peers[p.peer] = e
		}
		v[p.fabric] = f
	}
	r.view.Store(&v)
	return v
}

// at returns an entry; nil: there is none.
func (f family) at(peer string) *entry {
	if peer == "" {
		return f.whole
	}
	return f.peers[peer]
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
	switch dup := r.byPath[pathOf(name)] != nil; {
	case r.closed:
		return &Error{Code: wire.CodeDraining, Fabric: name, Text: "the registry is closed"}
	case dup:
		return &Error{Code: wire.CodeExists, Fabric: name, Text: "a fabric of this name is registered"}
	case len(r.order) >= MaxFabrics:
		return &Error{Code: wire.CodeTooMany, Fabric: name, Have: MaxFabrics, Need: MaxFabrics + 1}
	}
	if r.byPath == nil {
		r.byPath = map[path]*entry{}
	}
	gate, _ := f.(Gate)
	tenanted, _ := f.(Tenanted)
	r.byPath[pathOf(name)] = &entry{name, f, gate, tenanted}
	r.order, r.sorted = append(r.order, name), nil
	r.view.Store(nil)
	return nil
}

// Remove takes a fabric out and hands it to the caller, who closes it.
func (r *Registry) Remove(name string) (Fabric, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byPath[pathOf(name)]
	if e == nil {
		return nil, false
	}
	delete(r.byPath, pathOf(name))
	r.order, r.sorted = slices.DeleteFunc(r.order, func(s string) bool { return s == name }), nil
	r.view.Store(nil)
	return e.f, true
}

// Get returns the fabric of that name.
func (r *Registry) Get(name string) (Fabric, bool) {
	p := pathOf(name)
	e := r.family(p.fabric).at(p.peer)
	if e == nil {
		return nil, false
	}
	return e.f, true
}

// Names returns all names in ascending order.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sorted == nil {
		r.sorted = slices.Sorted(slices.Values(r.order))
	}
	return slices.Clone(r.sorted)
}

// Close closes every fabric, the last added first, each one once, and returns
// what went wrong, by name. Nothing can be added afterwards; Close again is nil.
func (r *Registry) Close() error {
	r.mu.Lock()
	order := r.order
	all := make([]Fabric, len(order))
	for i, name := range order {
		all[i] = r.byPath[pathOf(name)].f
	}
	r.byPath, r.order, r.sorted, r.closed = nil, nil, nil, true
	r.view.Store(nil)
	r.mu.Unlock()

	var errs []error
	for i, name := range slices.Backward(order) {
		if err := all[i].Close(); err != nil {
			errs = append(errs, fmt.Errorf("close fabric %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
