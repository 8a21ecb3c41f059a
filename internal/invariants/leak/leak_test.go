package leak

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/invariants"
)

func TestMain(m *testing.M) { Main(m) }

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	cleanup func()
	said    string
}

func (r *recorder) Cleanup(f func()) { r.cleanup = f }
func (r *recorder) Failed() bool     { return false }
func (r *recorder) Name() string     { return "TestOfATest" }
func (r *recorder) Error(a ...any)   { r.said += a[0].(string) }

// A cleanup that runs while the goroutines are read does not end the tests. The
// ancestors are read at a process's start, so this is one of its own.
func TestACleanupThatRunsIsNoFault(t *testing.T) {
	if os.Getenv("LEAK_TEST_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestACleanupThatRunsIsNoFault$", "-test.v")
		cmd.Env = append(os.Environ(), "LEAK_TEST_CHILD=1", "GODEBUG=tracebackancestors=5")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	running := make(chan struct{})
	func() {
		runtime.AddCleanup(new([64]byte), func(int) {
			close(running)
			time.Sleep(100 * time.Millisecond)
		}, 0)
	}()
	for {
		runtime.GC()
		select {
		case <-running:
			if what := find(patience, read(goleak.IgnoreCurrent)); what != "" {
				t.Error(what)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func startOne(end chan struct{}) {
	go func() { <-end }()
}

func TestAGoroutineThatOutlivesItsTestIsNamedByWhoMadeIt(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	startOne(end)
	what := find(time.Millisecond, before)
	if !strings.Contains(what, "created by meridian/internal/invariants/leak.startOne") {
		t.Error(what)
	}
	close(end)
	if what := find(patience, before); what != "" {
		t.Error(what)
	}
}

func TestATestThatLeavesALeaseFails(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("SKIPPED: nothing is reported as left without -tags invariants")
	}
	r := &recorder{TB: t}
	Check(r)
	r.cleanup()
	if r.said != "" {
		t.Error(r.said)
	}
	Check(r)
	invariants.Left("lease", invariants.Here(0))
	r.cleanup()
	if !strings.Contains(r.said, "TestOfATest left lease, made by") || !strings.Contains(r.said, "leak.TestATestThatLeavesALeaseFails") {
		t.Error(r.said)
	}
}
