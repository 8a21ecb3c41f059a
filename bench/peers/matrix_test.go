package peers

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func filled(t *testing.T, o Options) Options {
	t.Helper()
	o.Self = []string{"x"}
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Every cell of every kind of run can be run: batches are bounded, every stream
// has a batch of its own in the set, and no cell comes twice.
func TestEveryCellHasABatchForEachStream(t *testing.T) {
	for name, o := range map[string]Options{"default": {}, "full": {Full: true}, "quick": {Quick: true}, "small set": {Full: true, Set: hotSet}} {
		cells := matrix(filled(t, o))
		seen := map[Cell]bool{}
		for _, c := range cells {
			if seen[c] {
				t.Errorf("%s: %v comes twice", name, c)
			}
			seen[c] = true
			if c.Batch > 1 && c.batchBytes() > maxBatchBytes {
				t.Errorf("%s: %v: a batch has %d bytes", name, c, c.batchBytes())
			}
			if c.Set%c.Size != 0 || c.Set < c.near() || c.Hot && c.Set > maxHot {
				t.Errorf("%s: %v: set of %d bytes", name, c, c.Set)
			}
			used := map[int]bool{}
			o := orderOf(c)
			for w := range c.Streams {
				for j := range c.Batch {
					used[o.item(w, 0, j)] = true
				}
			}
			if len(used) != c.Streams*c.Batch {
				t.Errorf("%s: %v: the first batches of all streams have %d blocks between them", name, c, len(used))
			}
		}
	}
}

// The default run shows each thing that the full one varies.
func TestTheDefaultRunHasEveryKindOfCell(t *testing.T) {
	cells := matrix(filled(t, Options{}))
	for name, is := range map[string]func(Cell) bool{
		"every size at batch 16": func(c Cell) bool { return c.Size == 64<<20 && c.Batch == 1 },
		"batch 1":                func(c Cell) bool { return c.Size == 4<<10 && c.Batch == 1 },
		"batch 128":              func(c Cell) bool { return c.Batch == 128 },
		"4 streams":              func(c Cell) bool { return c.Streams == 4 },
		"hot":                    func(c Cell) bool { return c.Hot },
		"writes":                 func(c Cell) bool { return c.Op == Write },
	} {
		if !slices.ContainsFunc(cells, is) {
			t.Errorf("no cell with %s", name)
		}
	}
	if full := matrix(filled(t, Options{Full: true})); len(full) <= 2*len(cells) {
		t.Errorf("the whole matrix has %d cells, the default one %d", len(full), len(cells))
	}
	if i := slices.IndexFunc(cells, func(c Cell) bool { return c.Op == Write }); slices.ContainsFunc(cells[i:], func(c Cell) bool { return c.Op == Read }) {
		t.Error("a read comes after a write: targets would fill their memory again and again")
	}
}

func TestOrderUsesEveryBlockOnceAndNoNeighbours(t *testing.T) {
	c := Cell{Op: Read, Size: 4 << 10, Batch: 16, Streams: 4, Set: 4 << 20}
	o := orderOf(c)
	seen := map[int]bool{}
	for w := range c.Streams {
		for k := range o.batches / c.Streams {
			for j := range c.Batch {
				n := o.item(w, k, j)
				if seen[n] || n < 0 || n >= o.blocks {
					t.Fatalf("stream %d, batch %d, item %d: block %d again, or none of %d", w, k, j, n, o.blocks)
				}
				seen[n] = true
				if j > 0 && n == o.item(w, k, j-1)+1 {
					t.Fatalf("items %d and %d are neighbours", j-1, j)
				}
			}
		}
	}
	if len(seen) != o.blocks {
		t.Errorf("%d of %d blocks used", len(seen), o.blocks)
	}
}

func TestOnlyNamesSystemsAndGroups(t *testing.T) {
	r := run{opt: filled(t, Options{Only: []string{"link", "hash"}})}
	var got []string
	for _, s := range r.systems(Write) {
		got = append(got, s.name)
	}
	if want := []string{"link-tcp", "link-tls", "link-unix", "hash"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	all := run{}
	for _, s := range all.systems(Write) {
		if s.name == "engine-map" {
			t.Error("a map that nothing touches is no write")
		}
	}
}

func TestOptionsThatCannotBeAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"no program":        {},
		"exclude each":      {Self: []string{"x"}, Quick: true, Full: true},
		`"nfs" is no`:       {Self: []string{"x"}, Only: []string{"nfs"}},
		"block size 5000":   {Self: []string{"x"}, Sizes: []uint64{5000}},
		"block size 2048":   {Self: []string{"x"}, Sizes: []uint64{2048}},
		"rounds of 1h":      {Self: []string{"x"}, Round: time.Hour},
		"working set of 10": {Self: []string{"x"}, Set: 10},
	} {
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", o, err, want)
		}
	}
}

func TestContentIsOfOnePlaceOnly(t *testing.T) {
	b := make([]byte, 4096)
	fill(b, seedRemote, 8192)
	if err := expect(b, seedRemote, 8192); err != nil {
		t.Error(err)
	}
	if expect(b, seedRemote, 4096) == nil || expect(b, seedLocal, 8192) == nil || expect(b[8:], seedRemote, 8192) == nil {
		t.Error("bytes of another place or region passed")
	}
	b[4095] ^= 1
	if expect(b, seedRemote, 8192) == nil {
		t.Error("a flipped bit in the last byte passed")
	}
}
