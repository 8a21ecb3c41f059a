package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestASyntheticStateIsReadAndRebuiltInAnyOrder(t *testing.T) {
	for name, g := range geometries() {
		for _, tokens := range [][]int32{{7}, {1, 2, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1}} {
			for slot := range int(min(g.Streams, 2)) {
				b := synthState(g, tokens, slot).b
				s, err := openBytes(b)
				if err != nil {
					t.Fatalf("%s, %d tokens, slot %d: %v", name, len(tokens), slot, err)
				}
				if !s.Geometry().Equal(g) || !slices.Equal(s.Tokens(), tokens) {
					t.Fatalf("%s: read %+v %v, want %+v %v", name, s.Geometry(), s.Tokens(), g, tokens)
				}
				for bt := 1; bt <= len(tokens)+1; bt++ {
					got, err := rebuild(s, len(tokens), bt, rand.New(rand.NewPCG(1, uint64(bt))).Perm)
					if err != nil {
						t.Fatalf("%s, blocks of %d: %v", name, bt, err)
					}
					if slot == 0 && !bytes.Equal(got, b) {
						t.Fatalf("%s, blocks of %d: the rebuilt file is another", name, bt)
					}
					if again, err := openBytes(got); err != nil || !slices.Equal(again.Tokens(), tokens) {
						t.Fatalf("%s, slot %d: the rebuilt file: %v", name, slot, err)
					}
				}
			}
		}
	}
}

// A block is K of each layer, then V of each, each token by token; of a
// transposed V, row by row.
func TestABlockHasTheDocumentedOrder(t *testing.T) {
	for _, name := range []string{"base", "transposed"} {
		g := geometries()[name]
		y := synthState(g, []int32{1, 2, 3, 4}, 0)
		s, err := openBytes(y.b)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for l := range 2 {
			at := y.where("K rows", l)
			want = append(want, y.b[at+6:at+18]...)
		}
		for l := range 2 {
			at := y.where("V rows", l)
			if !g.Transposed {
				want = append(want, y.b[at+6:at+18]...)
				continue
			}
			for r := range 3 {
				want = append(want, y.b[at+r*8+2:at+r*8+6]...)
			}
		}
		got := make([]byte, g.BlockBytes(2))
		if err := s.ReadBlock(1, 2, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n got %x\nwant %x", name, err, got, want)
		}
	}
}

func TestAPrefixIsWhatAShorterStateHolds(t *testing.T) {
	for name, g := range geometries() {
		s, err := openBytes(synthState(g, []int32{1, 2, 3, 4, 5, 6, 7}, 0).b)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 7; n++ {
			b, err := rebuild(s, n, 3, forwards)
			if err != nil {
				t.Fatal(err)
			}
			short, err := openBytes(b)
			if err != nil {
				t.Fatalf("%s: first %d tokens: %v", name, n, err)
			}
			got, want := make([]byte, g.BlockBytes(n)), make([]byte, g.BlockBytes(n))
			if err := errors.Join(short.ReadBlock(0, n, got), s.ReadBlock(0, n, want)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: first %d tokens: %v; rows differ", name, n, err)
			}
		}
	}
}

func TestAStateCutAnywhereNamesTheField(t *testing.T) {
	for _, name := range []string{"base", "transposed", "one stream", "V rotated", "version 4, transposed"} {
		y := synthState(geometries()[name], []int32{1, 2, 3}, 0)
		for cut := range y.b {
			_, err := openBytes(y.b[:cut])
			var se *StateError
			if !errors.As(err, &se) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s cut at %d: %v", name, cut, err)
			}
			i, _ := slices.BinarySearchFunc(y.marks, cut+1, func(m mark, at int) int { return m.at - at })
			want := y.marks[i-1]
			if want.field == "tokens" { // missed as a whole, by the count in front of it
				want.at = y.where("tokens", 0)
			}
			if got := (mark{se.Field, int(se.Offset)}); got.at != want.at || !sameField(got.field, want.field) {
				t.Fatalf("%s cut at %d: %v; want %s at byte %d", name, cut, err, want.field, want.at)
			}
		}
	}
}

// sameField: errors call the list's parts and the number of V's rows less finely.
func sameField(got, want string) bool {
	return got == want || got == "V rows" && want == "V row count"
}

func TestWhatIsNotUnderstoodIsNamed(t *testing.T) {
	for _, c := range []struct {
		geometry, field string
		nth             int
		value           uint32
		as, want        string
	}{
		{"base", "magic", 0, 0x67677372, "", "0x67677372"},
		{"base", "version", 0, 3, "", "state version 3: this build reads versions 2 and 4"},
		{"base", "version", 0, 5, "", "state version 5"},
		{"V rotated", "K rotation", 0, 1<<16 + 1, "", "65537 is above the limit of 65536"},
		{"V rotated", "V rotation", 0, 1 << 31, "", "2147483648 is above"},
		{"base", "version", 0, 0, "", "state version 0"},
		{"base", "token list", 0, 1 << 31, "", "2147483648 is above the limit of 4194308"},
		{"base", "token list", 0, 6, "token list", "6 entries"},
		{"base", "token list", 1, 5, "token list", "[5 1 3]"},
		{"base", "token list", 2, 2, "token list", "[-1 2 3]"},
		{"base", "token count", 0, 2, "token list", "[-1 1 2]"},
		{"base", "token count", 0, 1 << 31, "token list", "[-1 1 -2147483648]"},
		{"base", "tokens", 1, ^uint32(0), "", "token 1 is -1, which is no id"},
		{"base", "end of the token list", 0, 1, "", "1, want 0"},
		{"base", "streams", 0, 257, "", "257 is above the limit of 256"},
		{"base", "cells", 0, 2, "", "2 cells for 3 tokens"},
		{"base", "cells", 0, 1 << 23, "", "8388608 is above"},
		{"base", "cells", 1, 3, "", "a second stream has cells"},
		{"base", "position", 0, 1, "", "cell 0 is position 1"},
		{"base", "position", 2, 3, "", "cell 2 is position 3"},
		{"base", "position", 1, ^uint32(0), "", "cell 1 is position -1"},
		{"base", "sequences", 1, 2, "", "cell 1 belongs to 2 sequences"},
		{"base", "sequences", 0, 0, "", "cell 0 belongs to 0 sequences"},
		{"base", "sequence", 2, 1, "", "cell 2 belongs to sequence 1 and the first to 0"},
		{"base", "transposed", 0, 2, "", "2, want 0 or 1"},
		{"base", "transposed", 0, 1, "V rows", "rows of 0 bytes"},
		{"base", "layers", 0, 0, "", "there is none"},
		{"base", "layers", 0, 1 << 20, "", "1048576 is above the limit of 1024"},
		{"base", "K type", 1, 4, "", "type 4 is none that this build knows"},
		{"base", "K type", 0, 8, "K row bytes", "rows of 6 bytes are no whole number of q8_0's 34"},
		{"base", "V type", 0, 999, "", "type 999"},
		{"base", "K row bytes", 0, 0, "", "rows of 0 bytes"},
		{"base", "V row bytes", 1, 7, "", "rows of 7 bytes are no whole number of f16's 2"},
		{"base", "V row bytes", 1, 1 << 21, "", "2097152 is above the limit of 1048576"},
		{"transposed", "V element bytes", 0, 4, "V rows", "elements of 4 bytes; f16 has 2"},
		{"transposed", "V element bytes", 0, 9, "", "9 is above the limit of 8"},
		{"transposed", "V row count", 0, 0, "V rows", "rows of 0 bytes"},
		{"transposed", "V row count", 0, 1 << 20, "V rows", "rows of 2097152 bytes"},
		{"transposed", "V type", 0, 8, "V rows", "q8_0"},
	} {
		y := synthState(geometries()[c.geometry], []int32{1, 2, 3}, 0)
		at := y.where(c.field, c.nth)
		binary.LittleEndian.PutUint32(y.b[at:], c.value)
		_, err := openBytes(y.b)
		var se *StateError
		if !errors.As(err, &se) {
			t.Errorf("%s %d as %d: %v", c.field, c.nth, c.value, err)
			continue
		}
		as := c.as
		if as == "" {
			as = c.field
			if se.Offset != int64(at) {
				t.Errorf("%s %d as %d: %v; it is at byte %d", c.field, c.nth, c.value, err, at)
			}
		}
		if se.Field != as || !strings.Contains(se.Text, c.want) {
			t.Errorf("%s %d as %d: %v; want %s and %q", c.field, c.nth, c.value, err, as, c.want)
		}
	}
}

func TestTypesThatCannotBeTransposedAreRefused(t *testing.T) {
	g := Geometry{Version: 2, Streams: 1, Transposed: true, Layers: []Layer{{Tensor{Type: 1, Row: 2}, Tensor{Type: 8, Row: 34, Element: 2}}}}
	_, err := openBytes(synthState(g, []int32{1}, 0).b)
	if err == nil || !strings.Contains(err.Error(), "q8_0 cannot be transposed") {
		t.Error(err)
	}
}

func TestBytesBehindTheStateAndEmptyStatesAreRefused(t *testing.T) {
	g := geometries()["base"]
	b := synthState(g, []int32{1}, 0).b
	_, err := openBytes(append(b, 0, 0))
	var se *StateError
	if !errors.As(err, &se) || se.Field != "end" || se.Offset != int64(len(b)) || !strings.Contains(se.Text, "2 bytes follow") {
		t.Error(err)
	}
	y := &synth{}
	y.u32("all", stateMagic, 2, 4, ^uint32(0), 1, 0, 0, 2, 0, 0) // as a server saves an empty slot
	if _, err := openBytes(y.b); !errors.As(err, &se) || !strings.Contains(err.Error(), "no stream has a cell") {
		t.Error(err)
	}
}

// failing fails from an offset on.
type failing struct {
	memory
	from int64
	err  error
}

func (f *failing) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from {
		return 0, f.err
	}
	return f.memory.ReadAt(p, at)
}

func TestAReadersErrorComesThrough(t *testing.T) {
	own := errors.New("the disk is gone")
	y := synthState(geometries()["base"], []int32{1, 2, 3}, 0)
	var se *StateError
	_, err := OpenState(&failing{memory: memory{y.b}, err: own}, int64(len(y.b)))
	if !errors.Is(err, own) || !errors.As(err, &se) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if _, err := OpenState(&memory{y.b[:50]}, int64(len(y.b))); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &se) {
		t.Error("a size that is not the file's:", err)
	}
	f := &memory{y.b}
	s, err := OpenState(f, int64(len(y.b)))
	if err != nil {
		t.Fatal(err)
	}
	f.b = f.b[:y.where("K rows", 1)+3]
	body := make([]byte, s.Geometry().BlockBytes(3))
	if err := s.ReadBlock(0, 3, body); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &se) || se.Offset != int64(len(f.b)) {
		t.Error("a file that became shorter:", err)
	}
}

func TestReadBlockRefusesWhatIsNotThere(t *testing.T) {
	s, err := openBytes(synthState(geometries()["base"], []int32{1, 2, 3}, 0).b)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, s.Geometry().BlockBytes(4))
	for _, c := range [][2]int{{-1, 1}, {0, 0}, {0, -1}, {3, 1}, {0, 4}, {2, 2}, {1 << 62, 1 << 62}} {
		size := s.Geometry().BlockBytes(c[1]) // 0 of the last: it is beyond an int
		if err := s.ReadBlock(c[0], c[1], body[:max(0, size)]); err == nil {
			t.Errorf("%d tokens from %d on were read", c[1], c[0])
		}
	}
	if err := s.ReadBlock(0, 2, body); err == nil || !strings.Contains(err.Error(), fmt.Sprint(len(body))) {
		t.Error("a buffer of another size:", err)
	}
}

// What a file says of itself reserves nothing that the file does not have.
func TestALyingFileReservesNothing(t *testing.T) {
	y := &synth{}
	y.u32("all", stateMagic, 2, 4+MaxTokens, ^uint32(0), 1, MaxTokens)
	y.b = append(y.b, make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := openBytes(y.b)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were reserved", got)
	}
}

// Splitting needs the caller's buffer only, however long the file is.
func TestSplittingAndJoiningHoldNoRows(t *testing.T) {
	g := geometries()["base"]
	tokens := make([]int32, 4096)
	s, err := openBytes(synthState(g, tokens, 0).b)
	if err != nil {
		t.Fatal(err)
	}
	out := &memory{b: make([]byte, 1<<20)}
	a, err := NewAssembler(out, g, tokens, 16)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, g.BlockBytes(16))
	i := 0
	allocs := testing.AllocsPerRun(100, func() {
		if err := errors.Join(s.ReadBlock(i*16, 16, body), a.WriteBlock(i, body)); err != nil {
			t.Fatal(err)
		}
		i++
	})
	if allocs > 4 {
		t.Errorf("%v allocations a block", allocs)
	}
}

func FuzzOpenState(f *testing.F) {
	for _, g := range geometries() {
		f.Add(synthState(g, []int32{1, 2, 3}, 0).b)
		f.Add(synthState(g, []int32{5}, int(g.Streams-1)).b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		s, err := openBytes(b)
		var se *StateError
		if err != nil {
			if !errors.As(err, &se) || se.Field == "" || se.Offset < 0 || se.Offset > int64(len(b)) {
				t.Fatalf("%#v", err)
			}
			return
		}
		once, err := rebuild(s, len(s.Tokens()), 2, rand.New(rand.NewPCG(1, 2)).Perm)
		if err != nil {
			t.Fatal(err)
		}
		again, err := openBytes(once)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Geometry().Equal(s.Geometry()) || !slices.Equal(again.Tokens(), s.Tokens()) {
			t.Fatal("the rebuilt state is another")
		}
		twice, err := rebuild(again, len(s.Tokens()), 3, forwards)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatal("two rebuilt states differ", err)
		}
	})
}
