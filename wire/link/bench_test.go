package link

import "testing"

func BenchmarkWrite16(b *testing.B) {
	buf := make([]byte, 0, 64<<10)
	b.Run("Acquire", func(b *testing.B) {
		x := Acquire{Items: make([]Want, 16)}
		b.ReportAllocs()
		for b.Loop() {
			AppendMessage(buf, Frame{Type: TypeAcquire, Req: 1}, x)
		}
	})
	b.Run("Acquired", func(b *testing.B) {
		x := Acquired{Items: make([]Place, 16)}
		b.ReportAllocs()
		for b.Loop() {
			AppendMessage(buf, Frame{Type: TypeAcquired, Req: 1}, x)
		}
	})
	b.Run("Table", func(b *testing.B) {
		x := Table{Items: make([]Have, 16)}
		b.ReportAllocs()
		for b.Loop() {
			AppendMessage(buf, Frame{Type: TypeTable, Req: 1}, x)
		}
	})
}

// Header, trailer and payload: all that a reader checks.
func BenchmarkRead16(b *testing.B) {
	b.Run("Acquire", func(b *testing.B) {
		m := AppendMessage(nil, Frame{Type: TypeAcquire, Req: 1}, Acquire{Items: make([]Want, 16)})
		var x Acquire
		b.ReportAllocs()
		for b.Loop() {
			must(x.Parse(open(m)))
		}
	})
	b.Run("Acquired", func(b *testing.B) {
		m := AppendMessage(nil, Frame{Type: TypeAcquired, Req: 1}, Acquired{Items: make([]Place, 16)})
		var x Acquired
		b.ReportAllocs()
		for b.Loop() {
			must(x.Parse(open(m)))
		}
	})
	b.Run("Table", func(b *testing.B) {
		m := AppendMessage(nil, Frame{Type: TypeTable, Req: 1}, Table{Items: make([]Have, 16)})
		var x Table
		b.ReportAllocs()
		for b.Loop() {
			must(x.Parse(open(m)))
		}
	})
}

// One ACQUIRE of 16 items and its answer, written and read, with checksums and without.
func BenchmarkChecksums16(b *testing.B) {
	buf := make([]byte, 0, 64<<10)
	ask, answer := Acquire{Items: make([]Want, 16)}, Acquired{Items: make([]Place, 16)}
	for name, plain := range map[string]bool{"with": false, "without": true} {
		b.Run(name, func(b *testing.B) {
			s := Splitter{Begun: true, Plain: plain}
			var x Acquire
			var y Acquired
			b.ReportAllocs()
			for b.Loop() {
				_, ev, err := s.Next(AppendLocal(buf, plain, Frame{Type: TypeAcquire, Req: 1}, ask))
				must(err)
				must(x.Parse(ev.Payload))
				_, ev, err = s.Next(AppendLocal(buf, plain, Frame{Type: TypeAcquired, Req: 1}, answer))
				must(err)
				must(y.Parse(ev.Payload))
			}
		})
	}
}

func BenchmarkTokens256(b *testing.B) {
	x := Tokens{Req: make([]uint32, 256), N: make([]uint8, 256), Tok: make([]int32, 256)}
	for i := range x.N {
		x.N[i] = 1
	}
	buf := make([]byte, 0, 64<<10)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			AppendMessage(buf, Frame{Type: TypeTokens}, x)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/token")
	})
	b.Run("read", func(b *testing.B) {
		m := AppendMessage(nil, Frame{Type: TypeTokens}, x)
		var y Tokens
		b.ReportAllocs()
		for b.Loop() {
			must(y.Parse(open(m)))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/token")
	})
}

// A pull of 64 blocks of 16 KiB as one reader sees it, in reads of 64 KiB.
func BenchmarkSplitter(b *testing.B) {
	m := AppendMessage(nil, Frame{Type: TypeTable, Req: 1}, Table{Items: make([]Have, 64)})
	for i := range 4 {
		m = append(AppendData(m, Frame{Req: 1, Arg: uint32(16 * i)}, 0, MaxChunk), make([]byte, MaxChunk)...)
	}
	m = AppendMessage(m, Frame{Type: TypeEnd, Req: 1}, End{})
	s := Splitter{Begun: true}
	b.SetBytes(int64(len(m)))
	b.ReportAllocs()
	for b.Loop() {
		for rest := m; len(rest) > 0; {
			n, _, err := s.Next(rest[:min(64<<10, len(rest))])
			must(err)
			rest = rest[n:]
		}
	}
}
