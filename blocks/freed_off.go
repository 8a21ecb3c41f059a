//go:build !invariants

package blocks

// freed is empty without the tag invariants: see freed_on.go.
type freed struct{}

func (*freed) watch()              {}
func (*freed) check(uint32, *slot) {}
func (*freed) gone(*Core, uint32)  {}
func (*freed) taken(*Core, uint32) {}
func (*freed) apply(*arena)        {}
func (*freed) left(*Core)          {}
