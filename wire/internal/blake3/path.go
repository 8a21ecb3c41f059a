package blake3

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Path is a way to do the work.
type Path uint32

// The paths, from slow to fast.
const (
	Generic Path = iota
	AVX2
	AVX512
)

// Variable is the environment variable that sets the path.
const Variable = "MERIDIAN_BLAKE3"

var pathNames = [...]string{Generic: "generic", AVX2: "avx2", AVX512: "avx512"}

// String returns the name that the environment variable takes.
func (p Path) String() string {
	if int(p) < len(pathNames) {
		return pathNames[p]
	}
	return fmt.Sprintf("Path(%d)", uint32(p))
}

// Paths returns those that this processor has, slowest first.
func Paths() []Path { return slices.Clone(supported) }

var (
	supported = detect()
	current   atomic.Uint32
)

func init() { current.Store(uint32(choose(os.Getenv(Variable), supported))) }

// choose returns the path called name, or the best one below it that there is;
// for any other name the best of all.
func choose(name string, have []Path) Path {
	best := have[len(have)-1]
	for _, p := range slices.Backward(have) {
		if limit := slices.Index(pathNames[:], name); limit < 0 || p <= Path(limit) {
			return p
		}
	}
	return best
}

// Current returns the path that work starts on.
func Current() Path { return Path(current.Load()) }

// Force sets the path for work that starts from now on. It fails for one that
// the processor lacks. A Hasher that was written to keeps its path until it is
// reset.
func Force(p Path) error {
	if !slices.Contains(supported, p) {
		return fmt.Errorf("blake3: this processor has no %s path", p)
	}
	current.Store(uint32(p))
	return nil
}
