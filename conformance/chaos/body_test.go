package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"meridian/wire"
)

func key(i int) wire.Key { return wire.KeyOf(wire.Namespace{9}, fmt.Appendf(nil, "block-%d", i)) }

func body(k wire.Key, n int) []byte {
	b := make([]byte, n)
	Body(b, k)
	return b
}

func TestBodyIsAPrefixOfALongerOne(t *testing.T) {
	long := body(key(1), 1000)
	for n := range 1000 {
		if !bytes.Equal(body(key(1), n), long[:n]) {
			t.Fatalf("the body of %d bytes is no prefix of the one of 1000", n)
		}
	}
}

func TestCheckBodyAcceptsEveryLength(t *testing.T) {
	for n := range 300 {
		if err := CheckBody(body(key(2), n), key(2)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckBodyNamesTheFirstWrongByte(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 31, 32, 33, 63, 64, 100} {
		for off := range n {
			b := body(key(3), n)
			b[off] ^= 0x10
			b[n-1] ^= 0x01
			err := CheckBody(b, key(3))
			var e *BodyError
			if !errors.As(err, &e) || e.Off != off || e.Len != n || e.Got == e.Want || e.Got != b[off] {
				t.Fatalf("length %d, wrong from %d: %v", n, off, err)
			}
			if !errors.Is(err, wire.CodeChecksum) {
				t.Fatal("does not match CHECKSUM")
			}
		}
	}
}

// What a broken transfer typically leaves is always noticed: zeros, a shift by a
// word, another key's body, two pages swapped.
func TestCheckBodyNoticesTypicalDamage(t *testing.T) {
	good := body(key(4), 16384)
	swapped := append(append([]byte(nil), good[4096:8192]...), good[:4096]...)
	for name, b := range map[string][]byte{
		"zeros":   make([]byte, 16384),
		"shifted": good[8:],
		"other":   body(key(5), 16384),
		"swapped": append(swapped, good[8192:]...),
	} {
		if CheckBody(b, key(4)) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Every byte of the key matters from the first word on, and bits are balanced.
func TestBodyDependsOnEveryKeyByte(t *testing.T) {
	base := body(wire.Key{}, 64)
	for i := range 32 {
		var k wire.Key
		k[i] = 1
		if b := body(k, 64); bytes.Equal(b[:8], base[:8]) {
			t.Errorf("key byte %d does not change the first word", i)
		}
	}
	ones := 0
	for _, c := range body(key(6), 1<<16) {
		for ; c != 0; c &= c - 1 {
			ones++
		}
	}
	if half := 1 << 18; ones < half-4000 || ones > half+4000 { // 10 standard deviations
		t.Errorf("%d of %d bits are set", ones, 2*half)
	}
}

// A change of the generator breaks ledgers that were written before: it is pinned.
func TestBodyIsPinned(t *testing.T) {
	var k wire.Key
	for i := range k {
		k[i] = byte(i)
	}
	if got := fmt.Sprintf("%x", body(k, 20)); got != pinned {
		t.Errorf("body is %s", got)
	}
}

func BenchmarkBody(b *testing.B) {
	dst := make([]byte, 1<<20)
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		Body(dst, key(1))
	}
}

func BenchmarkCheckBody(b *testing.B) {
	buf := body(key(1), 1<<20)
	b.SetBytes(int64(len(buf)))
	k := key(1)
	for b.Loop() {
		if CheckBody(buf, k) != nil {
			b.Fatal("refused")
		}
	}
}

// pinned is the first 20 bytes of the body of key 00 01 02 .. 1f.
const pinned = "5c0e94ea42a00efc36f02f3142c2827d609c0579"
