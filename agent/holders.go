package agent

import (
	"context"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

// holder is somebody outside who may have a block: a peer on the link, or a
// fabric that keeps blocks itself.
type holder struct {
	name string // peer name, or the fabric's label
	fabric.Fabric
	fabric.Finder
}

// find asks every holder for items at the same time and returns, for each
// item, the answers of the holders that have it, in the holders' order.
// Deadlines are ctx's.
func find(ctx context.Context, holders []holder, items []fabric.Item) [][]found {
	answers := make([][]fabric.Item, len(holders))
	var wg sync.WaitGroup
	for i, h := range holders {
		mine := make([]fabric.Item, len(items))
		copy(mine, items)
		answers[i] = mine
		wg.Go(func() { h.Find(ctx, mine) })
	}
	wg.Wait()
	out := make([][]found, len(items))
	for i := range holders {
		for k, it := range answers[i] {
			if it.Err == nil {
				out[k] = append(out[k], found{holder: i, h: it.H, head: it.Head})
			}
		}
	}
	return out
}

// found is one holder's answer for one block.
type found struct {
	holder int
	h      fabric.Handle
	head   wire.Header
}
