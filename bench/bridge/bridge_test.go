package bridge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/internal/realpart"
	"meridian/internal/testbed"
	"meridian/wire"
)

// processArgument makes the test binary a daemon of a run.
const processArgument = "bridge-test-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == processArgument {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Play(ctx, os.Args[2:])
		stop()
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if path, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, helper)
	out, err := exec.Command("go", "build", "-o", path, "meridian/cmd/meridian-ffi").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// How fast is not asked here.
func TestAQuickRunMeasuresEveryBridge(t *testing.T) {
	realpart.Python(t)
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{
		Sizes: []uint32{64 << 10, 1 << 20}, Self: []string{os.Args[0], processArgument}, Dir: testbed.ShortDir(t),
		Python: realpart.Packages(t, "peers"), Helper: path, Require: true, Version: "test", Progress: func(s string) { t.Log(s) },
	}
	opt.Quick()
	rep, err := Run(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	head, rows := rep.Rows()
	t.Log(head)
	for _, row := range rows {
		t.Log(row)
	}
	t.Log(rep.Note())
	if len(rep.Bridges) != 2*len(Names()) || len(rep.Skipped) != 0 || len(rows) != len(rep.Bridges) || len(rows[0]) != len(head) {
		t.Fatalf("%+v", rep)
	}
	for i, b := range rep.Bridges {
		if b.Bridge != Names()[i%len(Names())] || b.BlockBytes != opt.Sizes[i/len(Names())] || b.Compared != 2*b.Blocks || uint64(b.Blocks)*uint64(b.BlockBytes) != opt.Bytes {
			t.Errorf("row %d: %+v", i, b)
		}
		for name, v := range map[string]float64{"leg1": b.Leg1, "leg2": b.Leg2, "hash": b.Hash, "bound": b.Bound, "rate": b.Rate, "ratio": b.Ratio} {
			if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s of %d bytes: %s is %v", b.Bridge, b.BlockBytes, name, v)
			}
		}
		if ofLink := b.Bridge == LinkToLink || b.Bridge == LinkStored; ofLink != (b.One > 0) {
			t.Errorf("%s: one block took %v ms", b.Bridge, b.One)
		}
		if b.Bound >= min(b.Leg1, b.Leg2) {
			t.Errorf("contradiction: %+v", b)
		}
	}
	for _, of := range []string{"meridian", "nixl", "mooncake"} {
		if rep.Versions[of] == "" || !strings.Contains(rep.Note(), rep.Versions[of]) {
			t.Errorf("no version of %s in %q", of, rep.Note())
		}
	}
}

func TestTheBoundIsThatOfBothLegsAndTheHashInTurn(t *testing.T) {
	if got := bound(2, 2, 0.5, 2); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("%v, want 0.5", got)
	}
	if bound(0, 1, 1, 2) != 0 || bound(1, 0, 1, 2) != 0 || bound(1, 1, 0, 2) != 0 {
		t.Error("what was not measured has a bound")
	}
}

func TestAPartThatIsNotThereIsSkippedOrFailsTheRun(t *testing.T) {
	opt := Options{Only: []string{LinkToNIXL, MooncakeToNIXL, NIXLToLink}, Sizes: []uint32{64 << 10}, Self: []string{"x"}, Python: t.TempDir(), Dir: t.TempDir()}
	opt.Quick()
	rep, err := Run(t.Context(), opt)
	if err != nil || len(rep.Bridges) != 0 || len(rep.Skipped) != 3 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if _, rows := rep.Rows(); len(rows) != 3 || !strings.Contains(rows[0][1], "SKIPPED: ") || !strings.Contains(rows[0][1], "internal/ci/python.sh peers") {
		t.Errorf("%q", rows)
	}
	opt.Require = true
	var missing *MissingError
	if _, err := Run(t.Context(), opt); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}

func TestAMissingHelperIsNamed(t *testing.T) {
	packages := t.TempDir()
	if err := os.WriteFile(filepath.Join(packages, ".installed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	realpart.Python(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	only := t.TempDir()
	if err := os.Symlink(python, filepath.Join(only, "python3")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", only)
	opt := Options{Self: []string{"x"}, Python: packages}
	if err := (&run{opt: opt}).needs(); err == nil || !strings.Contains(err.Error(), helper) {
		t.Errorf("%v", err)
	}
}

// A sink that takes other bytes for right would make each figure worthless.
func TestASinkOfTheLinkTellsOtherBytes(t *testing.T) {
	for name, change := range map[string]func(p []byte){
		"another header": func(p []byte) { p[0] ^= 1 },
		"another body":   func(p []byte) { p[len(p)-1] ^= 1 },
	} {
		r := &run{opt: Options{Bytes: 64 << 10}, dir: t.TempDir(), psk: strings.Repeat("5b", 16)}
		s, err := r.make(32 << 10)
		if err != nil {
			t.Fatal(err)
		}
		end, err := r.newLinkEnd(edge, s)
		if err != nil {
			t.Fatal(err)
		}
		l := &linkSink{linkEnd: end}
		keys := s.keys("a")
		if err := l.expect(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		ended, stop := context.WithCancel(t.Context())
		stop()
		if err := l.wait(ended); err == nil || !strings.Contains(err.Error(), "2 of 2 blocks") {
			t.Errorf("before anything has come: %v", err)
		}
		publish(t, end, keys)
		if err := l.wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := l.check(t.Context()); n != 2 || err != nil {
			t.Errorf("%d blocks, %v", n, err)
		}
		change(s.payload(1))
		if _, err := l.check(t.Context()); err == nil || !strings.Contains(err.Error(), "block 1 has "+name) {
			t.Errorf("%v does not say %s", err, name)
		}
		if err := l.expect(t.Context(), s.keys("b")); err != nil {
			t.Fatal(err)
		}
		if n := end.store.Touch(s.ns, keys); n != 0 {
			t.Errorf("%d blocks of before still take room", n)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}

func publish(t *testing.T, end *linkEnd, keys []wire.Key) {
	t.Helper()
	owner := end.store.NewOwner(0)
	for i, k := range keys {
		v, err := end.store.ReserveTier(owner, end.set.ns, tier, []uint32{end.set.size}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		copy(end.store.Room(v[0])[wire.HeaderLen:], end.set.payload(i)[wire.HeaderLen:])
		c := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: end.set.ns, Key: k, Tier: tier, Len: end.set.size}}
		if end.store.Commit(owner, c); c[0].Err != nil {
			t.Fatal(c[0].Err)
		}
	}
}
