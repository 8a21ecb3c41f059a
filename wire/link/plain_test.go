package link

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/wire"
)

// plainLane is what follows the HELLOs on an engine's socket with PLAIN: every
// specimen, and a frame of unknown type.
func plainLane() (b []byte) {
	for _, k := range kinds {
		for _, s := range k.samples {
			b = AppendLocal(b, true, s.f, s.m)
		}
	}
	b = AppendLocal(b, true, Frame{Type: 200, Req: 99}, Open{Manifest: []byte("from a later version")})
	return AppendLocal(b, true, Frame{Type: TypePing, Req: 101}, Empty{})
}

func TestAPlainFrameIsTheSameWithoutItsChecksums(t *testing.T) {
	for _, k := range kinds {
		for _, s := range k.samples {
			want := AppendMessage([]byte("before"), s.f, s.m)
			if got := AppendLocal([]byte("before"), false, s.f, s.m); !bytes.Equal(got, want) {
				t.Errorf("%v: with checksums %x, want %x", k.t, got, want)
			}
			clear(want[6+20 : 6+FrameLen])
			clear(want[len(want)-TrailerLen:])
			got := AppendLocal([]byte("before"), true, s.f, s.m)
			if !bytes.Equal(got, want) {
				t.Errorf("%v: %x, want %x", k.t, got, want)
			}
			n, ev, err := (&Splitter{Begun: true, Plain: true}).Next(got[6:])
			if err != nil || n != len(got)-6 || ev.Kind != EventMessage || !bytes.Equal(ev.Payload, s.m.Append(nil)) {
				t.Errorf("%v: %d of %d read, %+v, %v", k.t, n, len(got)-6, ev, err)
			}
			if _, _, err := (&Splitter{Begun: true}).Next(got[6:]); !errors.Is(err, wire.CodeCRC) {
				t.Errorf("%v where PLAIN was not agreed: %v, want CRC", k.t, err)
			}
		}
	}
}

func TestAPlainLaneInPiecesEqualsWhole(t *testing.T) {
	b := plainLane()
	want := traceOf(&Splitter{Begun: true, Plain: true}, b, whole, never)
	if strings.Contains(want, "error") {
		t.Fatal(want)
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		if got := traceOf(&Splitter{Begun: true, Plain: true}, b, func(int) int { return 1 + r.IntN(1<<r.IntN(9)) }, never); got != want {
			t.Fatalf("seed %d: differs", seed)
		}
	}
}

// A checksum on a plain lane is a side that does not know what was agreed.
func TestAChecksumOnAPlainLaneIsCRC(t *testing.T) {
	ping := AppendLocal(nil, true, Frame{Type: TypePing, Req: 1}, Empty{})
	other := AppendLocal(nil, true, Frame{Type: 77, Req: 1}, Open{Manifest: []byte("x")})
	for what, c := range map[string]struct {
		b   []byte
		off uint64
	}{
		"a frame with both":            {AppendMessage(nil, Frame{Type: TypePing, Req: 1}, Open{}), 28 + 20},
		"in the header":                {with(ping, 23, 1), 28 + 20},
		"in the trailer":               {with(ping, 27, 1), 28 + 24},
		"in an unknown type's header":  {with(other, 20, 1), 28 + 20},
		"in an unknown type's trailer": {with(other, len(other)-1, 1), 28 + uint64(len(other)) - 4},
	} {
		s := Splitter{Begun: true, Plain: true}
		b := append(bytes.Clone(ping), c.b...)
		var err error
		for err == nil && len(b) > 0 {
			var n int
			n, _, err = s.Next(b[:min(5, len(b))])
			b = b[n:]
		}
		var fe *FrameError
		if !errors.As(err, &fe) || fe.Code != wire.CodeCRC || fe.Offset != c.off {
			t.Errorf("%s: %v, want CRC at %d", what, err, c.off)
		}
	}
}

// HELLO has its checksums: PLAIN counts from the frame behind it.
func TestALaneBecomesPlainBehindHello(t *testing.T) {
	hello := AppendMessage(nil, Frame{Type: TypeHello, Flags: FlagCritical}, Hello{Features: FeatureLocal | FeaturePlain})
	var s Splitter
	if n, ev, err := s.Next(append(bytes.Clone(hello), plainLane()...)); err != nil || n != len(hello) || ev.Kind != EventMessage {
		t.Fatalf("%d of %d, %+v, %v", n, len(hello), ev, err)
	}
	s.Plain = true
	if got := traceOf(&s, plainLane(), whole, never); strings.Contains(got, "error") {
		t.Error(got)
	}
}

func TestPlainFramesDoNotAllocate(t *testing.T) {
	acquired := Acquired{Items: make([]Place, 16)}
	buf := make([]byte, 0, 64<<10)
	s := Splitter{Begun: true, Plain: true}
	var back Acquired
	run := func() {
		b := AppendLocal(buf, true, Frame{Type: TypeAcquired, Req: 1}, acquired)
		n, ev, err := s.Next(b)
		must(err)
		must(back.Parse(ev.Payload))
		if n != len(b) {
			panic("in pieces")
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzPlainSplitter: a stream without checksums gives the same events and the same
// error however it is cut.
func FuzzPlainSplitter(f *testing.F) {
	f.Add(plainLane(), []byte{1, 200, 3})
	f.Add(plainLane()[:300], []byte{0})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		i := 0
		next := func(int) int {
			i++
			if len(cuts) == 0 {
				return 1
			}
			return int(cuts[i%len(cuts)])
		}
		want := traceOf(&Splitter{Begun: true, Plain: true}, b, whole, never)
		if got := traceOf(&Splitter{Begun: true, Plain: true}, b, next, never); got != want {
			t.Fatalf("in pieces:\n%s\nwhole:\n%s", got, want)
		}
	})
}
