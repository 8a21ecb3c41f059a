package blocks
import ("testing";"fmt")
func TestDbg(t *testing.T) {
	for seed := uint64(10); seed < 40; seed++ { for _, ex := range []bool{true,false} {
	m := newModel(ex)
	ops := randomOps(seed, 50000)
	if err := m.run(ops); err != nil { s, err := shrink(ex, ops, err); fmt.Println(seed, ex, len(s), err, s); return }
	if seed == 10 { st := m.c.Stats(); fmt.Printf("%+v %v\n", st, m.now) }
	}}
}
