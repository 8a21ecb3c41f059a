package blake3

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []Path{Generic, AVX2, AVX512}
	for _, c := range []struct {
		name string
		have []Path
		want Path
	}{
		{"", all, AVX512},
		{"", []Path{Generic}, Generic},
		{"avx512", all, AVX512},
		{"avx2", all, AVX2},
		{"generic", all, Generic},
		{"avx512", []Path{Generic, AVX2}, AVX2},
		{"avx2", []Path{Generic}, Generic},
		{"AVX2", all, AVX512},
		{"sse2", []Path{Generic, AVX2}, AVX2},
	} {
		if got := choose(c.name, c.have); got != c.want {
			t.Errorf("%q of %v: %s, want %s", c.name, c.have, got, c.want)
		}
	}
}

func TestForceRefusesWhatTheProcessorLacks(t *testing.T) {
	before := Current()
	if err := Force(AVX512 + 1); err == nil || Current() != before {
		t.Errorf("Force of an unknown path: %v, now %s", err, Current())
	}
	for _, p := range Paths() {
		force(t, p)
		if Current() != p {
			t.Errorf("after Force(%s): %s", p, Current())
		}
	}
}

// A Hasher keeps its path while another is forced.
func TestHasherKeepsItsPath(t *testing.T) {
	b := random(9, 50000)
	want := Sum256(b)
	for _, first := range Paths() {
		for _, then := range Paths() {
			var h Hasher
			force(t, first)
			_, _ = h.Write(b[:20001])
			force(t, then)
			_, _ = h.Write(b[20001:])
			if h.Sum256() != want {
				t.Errorf("begun on %s, ended on %s: wrong digest", first, then)
			}
		}
	}
}

// TestVariableSetsThePath runs this test again, as a process of its own.
func TestVariableSetsThePath(t *testing.T) {
	const child = "BLAKE3_TEST_CHILD"
	if os.Getenv(child) != "" {
		fmt.Printf("path=%s\n", Current())
		return
	}
	for _, p := range Paths() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestVariableSetsThePath$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", Variable+"="+p.String())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if want := "path=" + p.String() + "\n"; !strings.Contains(string(out), want) {
			t.Errorf("with %s=%s: no %q in\n%s", Variable, p, want, out)
		}
	}
}
