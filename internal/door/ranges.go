package door

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Ranges are ranges of addresses that may be set while others look. The zero value has
// none.
type Ranges struct {
	list atomic.Pointer[[]netip.Prefix]
}

// Set makes them those of a list.
func (r *Ranges) Set(list []netip.Prefix) {
	list = slices.Clone(list)
	r.list.Store(&list)
}

// Has reports whether an address, without a zone, is in one of them.
func (r *Ranges) Has(a netip.Addr) bool {
	list := r.list.Load()
	return list != nil && slices.ContainsFunc(*list, func(p netip.Prefix) bool { return p.Contains(a) })
}
