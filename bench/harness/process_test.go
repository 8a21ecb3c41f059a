package harness

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/internal/invariants/leak"
)

// roleArgument makes the test binary a process that does what comes after it.
const roleArgument = "harness-test-process"

type order struct {
	N int `json:"n"`
}

func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != roleArgument {
		leak.Main(m)
	}
	switch os.Args[2] {
	case "answer":
		_ = Serve(os.Stdin, os.Stdout, order{-1}, func(o order) order { return order{2 * o.N} })
	case "talk":
		_, _ = os.Stdout.WriteString("hello, I am a library\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "fail":
		_, _ = os.Stderr.WriteString("the disk is full\n")
		os.Exit(3)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "listen":
		_ = os.WriteFile(os.Args[3], []byte(`{"http":["here"]}`), 0o600)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	os.Exit(0)
}

func begin(t *testing.T, o Options, role ...string) *Process {
	t.Helper()
	o.Log = LogIn(t.TempDir(), role[0])
	p, err := Start(role[0], Again([]string{os.Args[0], roleArgument}, role...), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestEachOrderHasItsAnswerInTurn(t *testing.T) {
	p := begin(t, Options{Talk: true}, "answer")
	var a order
	if err := p.Next(t.Context(), &a); err != nil || a.N != -1 {
		t.Fatal(a, err)
	}
	for n := range 3 {
		if err := p.Ask(t.Context(), order{n}, &a); err != nil || a.N != 2*n {
			t.Fatal(n, a, err)
		}
	}
	if err := errors.Join(p.Rest(), p.Rest(), p.Wake(), p.Wake()); err != nil {
		t.Fatal(err)
	}
	if err := p.Ask(t.Context(), order{7}, &a); err != nil || a.N != 14 {
		t.Errorf("after a rest: %v, %v", a, err)
	}
	if used, err := p.CPU(); err != nil || used <= 0 {
		t.Errorf("processor time %v, %v", used, err)
	}
	if err := p.End(); err != nil {
		t.Error(err)
	}
	if err := p.Next(t.Context(), &a); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// The next line of one that talks otherwise, or too late, would be taken for the
// answer of another order.
func TestAProcessThatTalksOtherwiseOrTooLateIsKilled(t *testing.T) {
	var a order
	p := begin(t, Options{Talk: true}, "talk")
	if err := p.Next(t.Context(), &a); err == nil || !strings.Contains(err.Error(), `"hello, I am a library" is no answer`) {
		t.Error(err)
	}
	<-p.Done()
	p = begin(t, Options{Talk: true}, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Ask(ctx, order{1}, &a); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.Done()
	if err := p.End(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

func TestALineThatItsReaderRefusesEndsTheProcess(t *testing.T) {
	refused := errors.New("refused")
	p := begin(t, Options{Talk: true, Line: func([]byte) error { return refused }}, "talk")
	<-p.Done()
	if err := p.End(); !errors.Is(err, refused) {
		t.Error(err)
	}
}

func TestAProcessThatEndsBadlyIsToldWithItsLastWords(t *testing.T) {
	p := begin(t, Options{}, "fail")
	_, err := p.Ports(t.Context(), filepath.Join(t.TempDir(), "never"))
	for _, e := range []error{err, p.End()} {
		if e == nil || !strings.Contains(e.Error(), "exit status 3") || !strings.Contains(e.Error(), "its log ends: the disk is full") {
			t.Errorf("%v", e)
		}
	}
}

func TestAProcessListensWhereItsFileSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports")
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	one := 0
	for !mine.IsSet(one) {
		one++
	}
	ports, err := begin(t, Options{Term: true, CPUs: []int{one}}, "listen", path).Ports(t.Context(), path)
	if err != nil || len(ports["http"]) != 1 || ports["http"][0] != "here" {
		t.Error(ports, err)
	}
	if _, err := Start("x", exec.Command("/nonexistent"), Options{}); err == nil || !strings.Contains(err.Error(), "start x") {
		t.Error(err)
	}
}
