package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
)

// asJudge makes the test binary a judge on its standard input and output.
const asJudge = "CHAOS_TEST_AS_JUDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asJudge) != "" {
		if err := Attend(os.Stdin, os.Stdout, NewLedger(LedgerOptions{})); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

func TestSeveralEnginesReportToOneJudge(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "judge")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ledger := NewLedger(LedgerOptions{})
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, ledger) }()

	const engines, blocks = 4, 25
	var wg sync.WaitGroup
	for e := range engines {
		wg.Go(func() {
			r, err := Dial(t.Context(), "unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = r.Close() }()
			w := Witness{Judge: r, Who: fmt.Sprint("engine-", e), At: fmt.Sprint("node-", e)}
			for i := range blocks {
				own := blockOf(e*blocks + i)
				other := blockOf((e*blocks + i + blocks) % (engines * blocks)) // of the next engine
				for _, err := range []error{
					w.Offer(own, Generated(64)), w.Put(own, nil),
					w.Served(own, body(own.Key, 64)), w.Served(other, body(other.Key, 64)),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	r, err := Dial(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	bad := body(key(3), 64)
	bad[9] ^= 2
	guilty(t, Witness{Judge: r, Who: "late"}.Served(blockOf(3), bad), WrongBytes, "is at 9")
	report, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	if report.Served != 2*engines*blocks+1 || report.Kinds[WrongBytes] != 1 || len(report.Kinds) != 1 {
		t.Errorf("report: %v", report)
	}
	stop() // with r still open
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := r.Tell(Event{Op: OpMark}); err == nil {
		t.Error("the judge answers after its end")
	}
	_ = r.Close()
}

func TestJudgeAnswersJunkAndGoesOn(t *testing.T) {
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Attend(far, far, NewLedger(LedgerOptions{})); _ = far.Close() }()
	in := bufio.NewReader(near)
	for _, c := range []struct{ line, want string }{
		{"this is no event", "INVALID"},
		{`{"op":"nonsense"}`, "INVALID"},
		{`{"op":"offer","key":"12"}`, "INVALID"},
		{`{"op":"mark"}`, `"mark":2`},
	} {
		if _, err := io.WriteString(near, c.line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := in.ReadString('\n')
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
	go func() { _, _ = io.WriteString(near, strings.Repeat("x", maxLine+10)+"\n") }()
	if err := <-done; err == nil {
		t.Error("a line beyond the limit was taken")
	}
	_ = near.Close()
}

// stdio is both ends of a child's standard input and output.
type stdio struct {
	io.Reader
	io.WriteCloser
}

func TestJudgeAsAProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asJudge+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := NewRemote(stdio{out, in})
	w := Witness{Judge: r, Who: "engine", At: "node"}
	b := blockOf(1)
	must(t, w.Offer(b, ContentOf([]byte("abc"))), w.Put(b, nil), w.Served(b, []byte("abc")))
	must(t, w.Start("t", time.Minute), w.Count("leases", 1))
	report, err := r.Report()
	if err != nil {
		t.Fatal(err)
	}
	if report.Open != 1 || report.Kinds[Leak] != 1 || report.Bytes != 3 {
		t.Errorf("report: %v", report)
	}
	must(t, r.Close(), cmd.Wait())
}

func TestEventSurvivesItsLine(t *testing.T) {
	e := Event{Op: OpServe, Who: "w", At: "a", Block: blockOf(7), Content: ContentOf([]byte("x")),
		Seen: Seen{Wrong: 3, Word: 1 << 63}, Mark: 9, ID: "i", MS: -1, Name: "n", N: 5}
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := json.Unmarshal(line, &got); err != nil || got != e {
		t.Errorf("%s gives %+v, %v", line, got, err)
	}
}
