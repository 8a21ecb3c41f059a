package core
import ("testing";"math/rand";"os")
func TestZZ(t *testing.T){
 rg:=rand.New(rand.NewSource(7))
 for i:=0;i<60000;i++{ in:=make([]byte,rg.Intn(120)); rg.Read(in); os.WriteFile("/tmp/last.in",in,0o600); drive(t,in) }
}
