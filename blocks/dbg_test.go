package blocks
import ("testing")
func BenchmarkSmall(b *testing.B) {
	for _, n := range []int{20000, 100000, 1000000} { b.Run("", func(b *testing.B) {
	c, o, ns := fullCore(b, n)
	h := newChurn(c, o, ns, 64)
	next := uint64(1 << 40)
	b.ResetTimer()
	for n := 0; n < b.N; n += 64 {
		for i := range h.keys { h.keys[i] = benchKey(next); next++ }
		if err := h.turn(64); err != nil { b.Fatal(err) }
	}
	})}
}
