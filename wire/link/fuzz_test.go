package link

import (
	"bytes"
	"errors"
	"testing"

	"meridian/wire"
)

// FuzzMessage: what parses has one encoding, and it is the input, except that
// DENIED becomes ABSENT. What does not parse is a typed error within the input.
func FuzzMessage(f *testing.F) {
	for _, k := range kinds {
		for i := range k.samples {
			f.Add(byte(k.t), k.payload(i))
		}
	}
	f.Fuzz(func(t *testing.T, ty byte, b []byte) {
		k := kindOf(Type(ty))
		if k == nil {
			return
		}
		x, err := k.parse(b)
		if err != nil {
			var fe *FrameError
			if !errors.As(err, &fe) || fe.Offset > uint64(len(b)) || len(fe.Text) > MaxText {
				t.Fatalf("%v: %#v", k.t, err)
			}
			if fe.Code != wire.CodeLength && fe.Code != wire.CodeInvalid && (fe.Code != wire.CodeLinkMagic || k.t != TypeHello) {
				t.Fatalf("%v: %v", k.t, err)
			}
			return
		}
		out := x.Append(nil)
		if len(out) != x.Length() {
			t.Fatalf("%v: %d bytes, Length %d", k.t, len(out), x.Length())
		}
		again, err := k.parse(out)
		if err != nil || !same(x, again) {
			t.Fatalf("%v: %+v becomes %+v, %v", k.t, x, again, err)
		}
		if denied := []byte{byte(wire.CodeDenied), 0}; !bytes.Equal(out, b) && !bytes.Contains(b, denied) {
			t.Fatalf("%v: %x becomes %x", k.t, b, out)
		}
	})
}

// FuzzFrame: a header that parses is the one that Append writes.
func FuzzFrame(f *testing.F) {
	for _, k := range kinds {
		f.Add(AppendMessage(nil, k.samples[0].f, k.samples[0].m)[:FrameLen])
	}
	f.Add(AppendData(nil, Frame{Req: 1}, 0, 5)[:FrameLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= FrameLen { // let the fuzzer past the checksum
			b = seal(bytes.Clone(b[:FrameLen]))
		}
		x, err := ParseFrame(b)
		if err != nil {
			var fe *FrameError
			if !errors.As(err, &fe) || fe.Offset > uint64(len(b)) {
				t.Fatalf("%#v", err)
			}
			return
		}
		if out := x.Append(nil); !bytes.Equal(out, b) {
			t.Fatalf("%x becomes %x", b, out)
		}
	})
}

// FuzzSplitter: a stream gives the same events and the same error however it
// is cut, and whichever side places the body bytes.
func FuzzSplitter(f *testing.F) {
	f.Add(lane(), []byte{1, 200, 3})
	f.Add(lane()[:300], []byte{0})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n........."), []byte{5})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		i := 0
		next := func() int {
			i++
			if len(cuts) == 0 {
				return 1
			}
			return int(cuts[i%len(cuts)])
		}
		want := trace(b, whole, never)
		got := trace(b, func(int) int { return next() }, func() bool { return next()%2 == 0 })
		if got != want {
			t.Fatalf("in pieces:\n%s\nwhole:\n%s", got, want)
		}
	})
}
