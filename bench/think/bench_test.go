package think

import "testing"

// An arm of 10,000 requests near what stock can serve, of which the aim is at most 10 s of
// processor time.
func BenchmarkArm(b *testing.B) {
	o := Defaults()
	reqs := o.Workload.draw(1, 10_000, 2.6)
	for _, a := range o.Arms {
		b.Run(a.Name, func(b *testing.B) {
			for b.Loop() {
				r, err := newRun(b.Context(), &o, a, reqs)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.play(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.n.Decoded)/float64(len(reqs)), "tokens/request")
			}
		})
	}
}
