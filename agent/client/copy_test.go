package client

import (
	"errors"
	"testing"
	"unsafe"

	"meridian/wire"
)

// overlapped is a block whose copy goes over its own generation word: the word
// holds before while CopyTo makes its first check, and after once the copy is
// done. No other goroutine is needed to change it at the right moment.
func overlapped(before, after uint64) (b Block, dst []byte) {
	words := []uint64{before, 0}
	body := []uint64{after, 7}
	asBytes := func(w []uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w)) }
	return Block{Body: asBytes(body), Gen: 2, gen: &words[0]}, asBytes(words)
}

func TestABlockThatChangesDuringItsCopyIsAMiss(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after uint64
		want          error
	}{
		{"unchanged", 2, 2, nil},
		{"rewritten during the copy", 2, 3, wire.CodeStale},
		{"published anew during the copy", 2, 4, wire.CodeStale},
		{"rewritten before, the word comes back", 3, 2, wire.CodeStale},
	} {
		b, dst := overlapped(c.before, c.after)
		if err := b.CopyTo(dst); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	b, dst := overlapped(2, 2)
	if err := b.CopyTo(dst[:15]); !errors.Is(err, wire.CodeTooLarge) {
		t.Errorf("no room: %v", err)
	}
}
