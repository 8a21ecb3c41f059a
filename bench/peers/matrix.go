package peers

import (
	"fmt"
	"slices"

	"meridian/agent/config"
)

// Op is a direction, seen from the process that asks.
type Op string

// The two directions.
const (
	Read  Op = "read"
	Write Op = "write"
)

// Cell is one combination that is measured.
type Cell struct {
	Op      Op     `json:"op"`
	Size    uint64 `json:"size"`    // bytes of a block
	Batch   int    `json:"batch"`   // blocks of a batch
	Streams int    `json:"streams"` // batches under way at the same time
	Set     uint64 `json:"set"`     // bytes at the far end, used in turn
	Hot     bool   `json:"hot"`     // Set fits the cache
}

const (
	// maxBatchBytes bounds a batch of more than one block: larger ones only fall
	// out of every cache, on all sides of the comparison.
	maxBatchBytes = 16 << 20
	// maxBlock is the largest block of the matrix, which a batch of one may have.
	maxBlock = 64 << 20
	// hotSet is the working set of hot cells, unless one batch of every stream
	// needs more; cells that would need more than maxHot have no hot form.
	hotSet = 8 << 20
	maxHot = 32 << 20
)

var (
	defaultSizes = []uint64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20}
	quickSizes   = []uint64{4 << 10, 64 << 10}
)

// String names the cell for people.
func (c Cell) String() string {
	heat := "cold"
	if c.Hot {
		heat = "hot"
	}
	streams := "streams"
	if c.Streams == 1 {
		streams = "stream"
	}
	return fmt.Sprintf("%s %s × %d, %d %s, %s (%s)", c.Op, config.FormatBytes(c.Size), c.Batch, c.Streams, streams, heat, config.FormatBytes(c.Set))
}

// batchBytes is what one batch moves.
func (c Cell) batchBytes() uint64 { return c.Size * uint64(c.Batch) }

// near is what the buffers of all streams hold.
func (c Cell) near() uint64 { return c.batchBytes() * uint64(c.Streams) }

// cell makes the cell of a wish: the batch is cut to its bound, and the set
// grows until every stream has a batch of its own there. ok is false where
// there is no such hot cell.
func cell(op Op, size uint64, batch, streams int, hot bool, cold uint64) (c Cell, ok bool) {
	c = Cell{Op: op, Size: size, Batch: max(1, min(batch, int(maxBatchBytes/size))), Streams: streams, Hot: hot, Set: cold}
	if hot {
		c.Set = hotSet
	}
	c.Set = max(c.Set, c.near())
	c.Set -= c.Set % size
	return c, !hot || c.Set <= maxHot
}

// whole is a cold cell of 16 blocks a batch, however many bytes that is.
func whole(op Op, size uint64, streams int, cold uint64) Cell {
	c := Cell{Op: op, Size: size, Batch: 16, Streams: streams}
	c.Set = max(cold, c.near())
	c.Set -= c.Set % size
	return c
}

// matrix is the list of cells of a run: reads first, since a write spoils what
// targets hold.
func matrix(o Options) []Cell {
	var out []Cell
	add := func(op Op, size uint64, batch, streams int, hot bool) {
		if c, ok := cell(op, size, batch, streams, hot, o.Set); ok && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, op := range []Op{Read, Write} {
		if len(o.Ops) > 0 && !slices.Contains(o.Ops, op) {
			continue
		}
		for _, size := range o.Sizes {
			for _, n := range o.Streams {
				out = append(out, whole(op, size, n, o.Set))
			}
			for _, w := range wishes(o, size) {
				add(op, size, w.batch, w.streams, w.hot)
			}
		}
	}
	return out
}

type wish struct {
	batch, streams int
	hot            bool
}

// wishes for one size: everything of a full run, one cell of a quick one, and
// otherwise the line over all sizes (batch 16, one stream, cold) with the other
// batches, four streams and the hot set at some of them.
func wishes(o Options, size uint64) []wish {
	switch {
	case len(o.Streams) > 0:
		return nil
	case o.Quick:
		return []wish{{batch: 4, streams: 1}}
	case o.Full:
		var out []wish
		for _, hot := range []bool{false, true} {
			for _, streams := range []int{1, 4} {
				for _, batch := range []int{1, 16, 128} {
					out = append(out, wish{batch, streams, hot})
				}
			}
		}
		return out
	}
	out := []wish{{16, 1, false}}
	switch size {
	case 4 << 10:
		out = append(out, wish{1, 1, false}, wish{128, 1, false})
	case 64 << 10:
		out = append(out, wish{1, 1, false}, wish{128, 1, false}, wish{16, 4, false}, wish{16, 1, true})
	case 1 << 20:
		out = append(out, wish{1, 1, false}, wish{16, 4, false}, wish{16, 1, true})
	case 4 << 20:
		out = append(out, wish{16, 4, false})
	}
	return out
}
