package llamacpp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A state of 1,024 tokens of a model of 30 layers, 23 MB: from a file to blocks
// of 16 tokens, and from these to another file.
func BenchmarkSplitAndJoin(b *testing.B) {
	row := Tensor{Type: 1, Row: 384}
	g := Geometry{Version: 2, Streams: 2, Layers: slices.Repeat([]Layer{{row, row}}, 30)}
	t := Geometry{Version: 2, Streams: 2, Layers: slices.Clone(g.Layers)}
	t.transpose()
	for name, g := range map[string]Geometry{"rows": g, "transposed": t} {
		b.Run(name, func(b *testing.B) {
			const n, bt = 1024, 16
			state := synthState(g, make([]int32, n), 0).b
			dir := b.TempDir()
			in, err := os.Create(filepath.Join(dir, "in"))
			if err != nil {
				b.Fatal(err)
			}
			defer in.Close()
			if _, err := in.Write(state); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(state)))
			body := make([]byte, g.BlockBytes(bt))
			for b.Loop() {
				s, err := OpenState(in, int64(len(state)))
				if err != nil {
					b.Fatal(err)
				}
				out, err := os.Create(filepath.Join(dir, "out"))
				if err != nil {
					b.Fatal(err)
				}
				a, err := NewAssembler(out, g, s.Tokens(), bt)
				if err != nil {
					b.Fatal(err)
				}
				for i := range n / bt {
					if err := errors.Join(s.ReadBlock(i*bt, bt, body), a.WriteBlock(i, body)); err != nil {
						b.Fatal(err)
					}
				}
				if err := errors.Join(a.Finish(), out.Close()); err != nil {
					b.Fatal(err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || !bytes.Equal(got, state) {
				b.Fatal("the file that was joined is another", err)
			}
		})
	}
}
