package link

import "meridian/blocks"

// emptyRegistry knows no namespace, and tells st of each that it learns.
func emptyRegistry(st *blocks.Store) *Registry { return NewRegistry(st.AddNamespace) }
