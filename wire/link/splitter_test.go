package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/wire"
)

// lane is a stream as one side sends it: HELLO, every specimen, DATA between
// them, a frame of unknown type.
func lane() []byte {
	b := AppendMessage(nil, Frame{Type: TypeHello, Flags: FlagCritical}, helloKind.samples[0].m)
	for i, k := range kinds {
		for _, s := range k.samples {
			b = AppendMessage(b, s.f, s.m)
		}
		body := bytes.Repeat([]byte{byte(i)}, 1+3*i)
		b = append(AppendData(b, Frame{Req: 21, Arg: uint32(i)}, uint32(i), len(body)), body...)
	}
	b = AppendMessage(b, Frame{Type: 200, Req: 99}, Open{Manifest: []byte("from a later version")})
	return AppendMessage(b, Frame{Type: TypePing, Req: 101}, Empty{})
}

// trace runs a Splitter over b in pieces and writes down what it finds; body
// bytes that follow each other are one entry. cut gives the size of the next
// piece, direct whether the shell places that many body bytes itself.
func trace(b []byte, cut func(left int) int, direct func() bool) string {
	return traceOf(&Splitter{}, b, cut, direct)
}

// traceOf is trace of a Splitter that may have begun.
func traceOf(s *Splitter, b []byte, cut func(left int) int, direct func() bool) string {
	var (
		out strings.Builder
		run []byte
	)
	flush := func() {
		if len(run) > 0 {
			fmt.Fprintf(&out, "bytes %x\n", run)
			run = nil
		}
	}
	for len(b) > 0 {
		piece := b[:max(1, min(cut(len(b)), len(b)))]
		if left := s.Left(); left > 0 && direct() {
			n := min(left, len(piece))
			run = append(run, piece[:n]...)
			if err := s.Direct(n); err != nil {
				fmt.Fprintf(&out, "direct %v\n", err)
				break
			}
			b = b[n:]
			continue
		}
		n, ev, err := s.Next(piece)
		if err != nil {
			flush()
			fmt.Fprintf(&out, "error %v\n", err)
			break
		}
		if n == 0 {
			out.WriteString("no progress\n")
			break
		}
		b = b[n:]
		switch ev.Kind {
		case EventBytes:
			run = append(run, ev.Payload...)
		case EventNone:
		default:
			flush()
			fmt.Fprintf(&out, "%d %+v %x at %d, %d to come\n", ev.Kind, ev.Frame, ev.Payload, ev.Offset, ev.Left)
		}
	}
	flush()
	fmt.Fprintf(&out, "%d consumed", s.Offset())
	return out.String()
}

func whole(left int) int { return left }

func never() bool { return false }

func TestSplitterFindsEveryFrame(t *testing.T) {
	var (
		s    Splitter
		msgs int
		body int
	)
	b := lane()
	for rest := b; len(rest) > 0; {
		n, ev, err := s.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		switch ev.Kind {
		case EventMessage:
			msgs++
			if _, err := kindOf(ev.Frame.Type).parse(ev.Payload); err != nil {
				t.Errorf("%v: %v", ev.Frame.Type, err)
			}
		case EventPlace:
			if ev.Offset != uint64(ev.Frame.Arg) || ev.Left != 1+3*int(ev.Frame.Arg) {
				t.Errorf("place %+v", ev)
			}
		case EventBytes:
			body += len(ev.Payload)
		case EventSkipped:
			if ev.Frame.Type != 200 || ev.Frame.Req != 99 || ev.Payload != nil {
				t.Errorf("skipped %+v", ev)
			}
		}
	}
	want, data := 2, 0
	for i, k := range kinds {
		want += len(k.samples)
		data += 1 + 3*i
	}
	if msgs != want || body != data || s.Offset() != uint64(len(b)) || s.Need() != HeadLen {
		t.Errorf("%d messages of %d, %d body bytes of %d, at %d of %d, need %d", msgs, want, body, data, s.Offset(), len(b), s.Need())
	}
}

func TestSplitterInPiecesOfAnySizeEqualsWhole(t *testing.T) {
	b := lane()
	want := trace(b, whole, never)
	if strings.Contains(want, "error") {
		t.Fatal(want)
	}
	for size := 1; size < 70; size++ {
		if got := trace(b, func(int) int { return size }, never); got != want {
			t.Fatalf("pieces of %d: differs", size)
		}
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		got := trace(b, func(int) int { return 1 + r.IntN(1<<r.IntN(9)) }, func() bool { return r.IntN(2) == 0 })
		if got != want {
			t.Fatalf("seed %d: differs", seed)
		}
	}
}

// A shell that reads no more than Need, or Left bytes and HeadLen behind them,
// never holds a byte of body that belongs elsewhere.
func TestNeedNeverPassesTheEndOfAFrame(t *testing.T) {
	var (
		s Splitter
		r = bytes.NewReader(lane())
	)
	for {
		if left := s.Left(); left > 0 { // one readv: the body's home, the next head
			home, head := make([]byte, left), make([]byte, HeadLen)
			if _, err := io.ReadFull(r, home); err != nil {
				t.Fatal(err)
			}
			if err := s.Direct(left); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, head); err != nil {
				t.Fatal(err)
			}
			for len(head) > 0 {
				n, ev, err := s.Next(head)
				if err != nil || ev.Kind == EventBytes {
					t.Fatalf("%+v, %v", ev, err)
				}
				head = head[n:]
			}
			continue
		}
		b := make([]byte, s.Need())
		if _, err := io.ReadFull(r, b); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			n, ev, err := s.Next(b)
			if err != nil || ev.Kind == EventBytes {
				t.Fatalf("%+v, %v", ev, err)
			}
			b = b[n:]
		}
	}
}

func TestTheFirstFrameIsHelloOrError(t *testing.T) {
	for what, b := range map[string][]byte{
		"http":             []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"zeros":            make([]byte, FrameLen),
		"ping":             AppendMessage(nil, Frame{Type: TypePing, Req: 1}, Empty{}),
		"unknown":          AppendMessage(nil, Frame{Type: 77, Flags: FlagCritical}, Empty{}),
		"hello too long":   Frame{Type: TypeHello, Len: MaxControl}.Append(nil),
		"hello, bad crc":   with(AppendMessage(nil, Frame{Type: TypeHello}, Hello{}), 20, 0xee),
		"mrdn payload":     wire.Header{}.Append(nil),
		"data":             AppendData(nil, Frame{Req: 1}, 0, 1),
		"tls client hello": append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 32)...),
	} {
		var s Splitter
		_, ev, err := s.Next(b)
		var fe *FrameError
		if !errors.As(err, &fe) || fe.Code != wire.CodeLinkMagic || fe.Offset != 0 || ev.Kind != EventNone || s.Begun {
			t.Errorf("%s: %+v, %v", what, ev, err)
		}
	}
	var s Splitter
	if _, ev, err := s.Next(AppendMessage(nil, Frame{Type: TypeError}, Error{Code: wire.CodeTooMany})); err != nil || ev.Kind != EventMessage {
		t.Errorf("error: %+v, %v", ev, err)
	}
}

func TestAnErrorIsTheLanesEnd(t *testing.T) {
	b := lane()
	hello := FrameLen + helloKind.samples[0].m.Length() + TrailerLen
	b[hello+FrameLen] ^= 1 // the first payload byte of the second frame
	s := Splitter{}
	n, ev, err := s.Next(b)
	if err != nil || ev.Kind != EventMessage || n != hello {
		t.Fatalf("%d, %+v, %v", n, ev, err)
	}
	_, _, err = s.Next(b[n:])
	var fe *FrameError
	if !errors.As(err, &fe) || fe.Code != wire.CodeCRC || fe.Offset <= uint64(hello) {
		t.Fatal(err)
	}
	for range 2 {
		if n, ev, again := s.Next(b[:1]); n != 0 || ev.Kind != EventNone || again != err {
			t.Errorf("after the error: %d, %+v, %v", n, ev, again)
		}
	}
}

func TestOffsetsCountFromTheLanesStart(t *testing.T) {
	ping := AppendMessage(nil, Frame{Type: TypePing, Req: 1}, Empty{})
	for what, c := range map[string]struct {
		bad  []byte
		code wire.Code
		off  uint64
	}{
		"header crc":       {with(ping, 9, 9), wire.CodeCRC, 56 + 20},
		"payload crc":      {with(ping, FrameLen, 9), wire.CodeCRC, 56 + FrameLen},
		"length":           {Frame{Type: TypePing, Len: 5}.Append(nil), wire.CodeLength, 56},
		"critical unknown": {Frame{Type: 77, Flags: FlagCritical, Len: 4}.Append(nil), wire.CodeUnsupported, 56 + 4},
		"unknown, bad crc": {with(AppendMessage(nil, Frame{Type: 77}, Open{}), FrameLen, 9), wire.CodeCRC, 56 + FrameLen + 4},
	} {
		s := Splitter{Begun: true}
		b := append(append(bytes.Clone(ping), ping...), c.bad...)
		var err error
		for err == nil && len(b) > 0 {
			var n int
			n, _, err = s.Next(b[:min(7, len(b))])
			b = b[n:]
		}
		var fe *FrameError
		if !errors.As(err, &fe) || fe.Code != c.code || fe.Offset != c.off {
			t.Errorf("%s: %v, want %v at %d", what, err, c.code, c.off)
		}
	}
}

func TestASinglyFlippedBitNeverPassesUnseen(t *testing.T) {
	hello := AppendMessage(nil, Frame{Type: TypeHello}, Hello{})
	b := AppendMessage(bytes.Clone(hello), Frame{Type: TypeEnd, Req: 1}, End{Status: make([]wire.Code, 3)})
	b = AppendMessage(b, Frame{Type: 90, Req: 1}, Renew{})
	for i := 8 * len(hello); i < 8*len(b); i++ {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		if got := trace(c, whole, never); !strings.Contains(got, "error link: CRC") {
			t.Fatalf("bit %d: %s", i, got)
		}
	}
}

func TestMemoryGrowsWithTheBytesThatCameNotWithTheLengthAnnounced(t *testing.T) {
	s := Splitter{Begun: true}
	used := allocated(func() {
		s = Splitter{Begun: true}
		_, _, err := s.Next(append(Frame{Type: 36, Len: MaxControl}.Append(nil), make([]byte, 100)...))
		must(err)
	})
	if used > 4096 {
		t.Errorf("%d bytes for 100 that came", used)
	}
}

func TestALargeBufferDoesNotStayWithTheLane(t *testing.T) {
	s := Splitter{Begun: true}
	feed := func(b []byte) {
		for len(b) > 0 {
			n, _, err := s.Next(b[:min(1000, len(b))])
			must(err)
			b = b[n:]
		}
	}
	feed(AppendMessage(nil, Frame{Type: TypeBegin}, Begin{Prompt: make([]int32, MaxPrompt)}))
	feed(AppendMessage(nil, Frame{Type: TypePing}, Empty{}))
	if cap(s.buf) > keepBuffer {
		t.Errorf("%d bytes stay", cap(s.buf))
	}
}

// In the middle of a frame's head, and of DATA's prefix, Need is what is missing.
func TestNeedIsWhatIsMissing(t *testing.T) {
	s := Splitter{Begun: true}
	b := AppendData(nil, Frame{Req: 1}, 9, 10)
	for at := range HeadLen {
		if got := s.Need(); got != HeadLen-at {
			t.Fatalf("after %d bytes %d are needed, want %d", at, got, HeadLen-at)
		}
		if _, _, err := s.Next(b[at : at+1]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectRefusesMoreThanTheFrameHas(t *testing.T) {
	s := Splitter{Begun: true}
	if err := s.Direct(1); !errors.Is(err, wire.CodeState) {
		t.Errorf("outside of DATA: %v", err)
	}
	if _, ev, err := s.Next(AppendData(nil, Frame{Req: 1}, 9, 10)); err != nil || ev.Kind != EventPlace || s.Left() != 10 || s.Need() != 10 {
		t.Fatalf("%+v, %v, left %d", ev, err, s.Left())
	}
	for _, n := range []int{-1, 11} {
		if err := s.Direct(n); !errors.Is(err, wire.CodeState) {
			t.Errorf("%d of 10: %v", n, err)
		}
	}
	for _, n := range []int{0, 4} {
		if err := s.Direct(n); err != nil {
			t.Fatal(err)
		}
	}
	n, ev, err := s.Next([]byte("sixmore"))
	if err != nil || n != 6 || ev.Kind != EventBytes || ev.Offset != 13 || ev.Left != 0 || string(ev.Payload) != "sixmor" {
		t.Errorf("%d, %+v, %v", n, ev, err)
	}
}

func TestPayloadThatLiesWholeInTheInputIsNotCopied(t *testing.T) {
	s := Splitter{Begun: true}
	b := AppendMessage(nil, Frame{Type: TypeRenew, Req: 1}, Renew{})
	_, ev, err := s.Next(b)
	if err != nil || &ev.Payload[0] != &b[FrameLen] {
		t.Errorf("copied, or %v", err)
	}
}
