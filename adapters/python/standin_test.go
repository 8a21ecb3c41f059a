package python

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"meridian/internal/testbed"
)

// standin is an engine of three processes: tests/standin.py.
type standin struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	workers []int // their processes, by rank
}

// answer is a line of the scheduler.
type answer struct {
	Workers []int
	Stage   string
	Done    bool
	Error   string

	Stored, Pinned, Loaded []int // blocks, by rank
	Wrong                  int   // blocks whose bytes were wrong
	Pos                    []int // where the answer begins: as the scheduler and each rank were told
	Dropped                int   // steps that the socket did not take
	Agent                  string
	Inc                    uint64
}

func newStandin(t *testing.T, socket string) *standin {
	t.Helper()
	s := &standin{cmd: python(t, "-m", "tests.standin", "scheduler", socket)}
	s.cmd.Stderr = t.Output()
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if a, ok := s.line(t); !ok || len(a.Workers) != 2 {
		t.Fatalf("the scheduler began with %+v", a)
	}
	return s
}

// line reads one answer; false where the scheduler has gone.
func (s *standin) line(t *testing.T) (a answer, ok bool) {
	t.Helper()
	if !s.out.Scan() {
		return a, false
	}
	if err := json.Unmarshal(s.out.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, s.out.Bytes())
	}
	if a.Workers != nil {
		s.workers = a.Workers
	}
	return a, true
}

// do runs a command; at is called at each stage. An error is what the engine says, or that
// its scheduler has gone.
func (s *standin) do(t *testing.T, command map[string]any, at func(stage string)) (answer, error) {
	t.Helper()
	line, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(s.in, "%s\n", line) // a scheduler that has gone says so below
	for {
		a, ok := s.line(t)
		switch {
		case !ok:
			return a, fmt.Errorf("the scheduler has gone")
		case a.Stage != "":
			at(a.Stage)
			_, _ = fmt.Fprintln(s.in, "go") // as above
		case a.Done && a.Error != "":
			return a, fmt.Errorf("%s", a.Error)
		case a.Done:
			return a, nil
		}
	}
}

// stop ends it as an engine ends that has done its work.
func (s *standin) stop(t *testing.T) {
	t.Helper()
	_ = s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the scheduler: %v", err)
	}
}

// rig is a prefill engine and a decode engine on a daemon each.
type rig struct {
	t       *testing.T // of the whole: what is started again outlives a part of the test
	daemons [2]*daemon
	engines [2]*standin
	prompt  int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := testbed.ShortDir(t)
	link := "[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n"
	at := "unix://" + dir + "/link"
	r := &rig{t: t, daemons: [2]*daemon{
		newDaemon(t, dir, "prefill", link+fmt.Sprintf("listen = [%q]\n[[link.peer]]\nname = \"decode\"\ntenants = [\"acme\"]\n", at)),
		newDaemon(t, dir, "decode", link+fmt.Sprintf("[[link.peer]]\nname = \"prefill\"\naddress = %q\ntenants = [\"acme\"]\n", at)),
	}}
	for i, d := range r.daemons {
		d.ready(t)
		r.engines[i] = newStandin(t, d.at("e"))
	}
	return r
}

// request takes a new prompt through both engines. It fails the test where a byte is wrong, or
// where the engines say that all is well and it is not.
func (r *rig) request(t *testing.T, at func(stage string)) error {
	t.Helper()
	r.prompt++
	made, err := r.engines[0].do(t, map[string]any{"do": "prefill", "prompt": r.prompt}, func(s string) { at("prefill " + s) })
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	got, err := r.engines[1].do(t, map[string]any{"do": "decode", "prompt": r.prompt, "agent": made.Agent, "inc": made.Inc}, func(s string) { at("decode " + s) })
	if got.Wrong != 0 {
		t.Fatalf("prompt %d: %d blocks with wrong bytes", r.prompt, got.Wrong)
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	const blocks, answerAt = 6, 6*16 + 3 // of tests/standin.py: BLOCKS; PROMPT and the tokens of STEP up to the end of thinking
	if want := []int{blocks, blocks}; !slices.Equal(made.Stored, want) || !slices.Equal(got.Pinned, want) || !slices.Equal(got.Loaded, want) {
		return fmt.Errorf("blocks by rank: %v stored, %v pinned, %v loaded", made.Stored, got.Pinned, got.Loaded)
	}
	if want := []int{answerAt, answerAt, answerAt}; !slices.Equal(made.Pos, want) || !slices.Equal(got.Pos, want) {
		t.Fatalf("the answer begins at %v and %v, want %v at the scheduler and both ranks", made.Pos, got.Pos, want)
	}
	return nil
}

// fault is a process that is killed with -9 at a stage.
type fault struct {
	victim string
	stage  string
	quick  bool // for every run; the others are for MERIDIAN_TEST_FULL
	kill   func(r *rig)
	mend   func(r *rig)
}

func faults() []fault {
	stages := [2][]string{
		{"prefill begun", "prefill filled", "prefill stepped", "prefill handed off"},
		{"decode pinned", "decode loaded", "decode stepped", "decode finished"},
	}
	var all []fault
	for i, name := range []string{"prefill", "decode"} {
		for n, stage := range stages[i] {
			all = append(all, fault{name + "'s scheduler", stage, n == 1, func(r *rig) { _ = r.engines[i].cmd.Process.Kill() }, func(r *rig) {
				_ = r.engines[i].cmd.Wait()
				r.engines[i] = newStandin(r.t, r.daemons[i].at("e"))
			}})
			for rank := range 2 {
				kill := func(r *rig) { _ = syscall.Kill(r.engines[i].workers[rank], syscall.SIGKILL) }
				all = append(all, fault{fmt.Sprintf("rank %d of %s", rank, name), stage, n == 1+rank, kill, nil})
			}
		}
		for j := range stages { // a daemon dies under its own engine, and under the other one
			for n, stage := range stages[j] {
				all = append(all, fault{name + "'s daemon", stage, n == 2 && j >= i, func(r *rig) { r.daemons[i].kill() }, func(r *rig) {
					r.daemons[i].start(r.t)
					for _, d := range r.daemons {
						d.ready(r.t)
					}
				}})
			}
		}
	}
	return all
}

// Two engines of three processes each: what one prefills the other decodes. Pins are the
// scheduler's, loads the workers', advice comes to all. Each process is killed, and each
// daemon; a request after that is served, no byte is ever wrong and nothing is left.
func TestAnEngineOfThreeProcesses(t *testing.T) {
	r := newRig(t)
	none := func(string) {}
	seen := 0
	err := r.request(t, func(stage string) { // the daemons have what the engines hold
		prefill, decode := r.daemons[0].varz(t).Blocks, r.daemons[1].varz(t).Blocks
		var ok bool
		switch stage {
		case "prefill handed off":
			ok = prefill.Pins == 12 && decode.Leases == 0
		case "decode pinned":
			ok = decode.Leases >= 2 && decode.Holds == 0
		case "decode loaded", "decode stepped":
			ok = decode.Leases >= 2 && decode.Holds >= 2
		default:
			return
		}
		seen++
		if !ok {
			t.Errorf("%s: prefill %+v, decode %+v", stage, prefill, decode)
		}
	})
	if err != nil || seen != 4 {
		t.Fatal(seen, err)
	}
	var moved uint64
	for _, m := range r.daemons[1].varz(t).Moved {
		if m.Direction == "in" {
			moved += m.Bytes
		}
	}
	if want := uint64(2 * 6 * 64 << 10); moved < want {
		t.Errorf("%d bytes came from the prefill daemon, want %d", moved, want)
	}
	for _, f := range faults() {
		if os.Getenv("MERIDIAN_TEST_FULL") == "" && !f.quick {
			continue
		}
		t.Run(f.victim+" at "+f.stage, func(t *testing.T) {
			killed := false
			_ = r.request(t, func(stage string) { // may fail: what it was asked for was killed
				if stage == f.stage {
					killed = true
					f.kill(r)
				}
			})
			if !killed {
				t.Fatalf("stage %q was not reached", f.stage)
			}
			if f.mend != nil {
				f.mend(r)
			}
			var err error
			testbed.Until(t, "a request is served again", func() bool {
				err = r.request(t, none)
				return err == nil
			})
			for i := range r.engines {
				if _, err := r.engines[i].do(t, map[string]any{"do": "drop"}, none); err != nil {
					t.Error(err)
				}
			}
			for _, d := range r.daemons {
				d.quiet(t, 1)
			}
		})
	}
	for i := range r.engines {
		r.engines[i].stop(t)
	}
	for _, d := range r.daemons {
		d.quiet(t, 0)
	}
}

// A daemon that is stopped takes nothing, and an engine steps on: TOKENS are dropped and
// counted, BEGIN and FINISH wait for nobody.
func TestAStoppedDaemonHoldsUpNoStep(t *testing.T) {
	d := newDaemon(t, testbed.ShortDir(t), "house", "")
	e := newStandin(t, d.at("e"))
	none := func(string) {}
	if _, err := e.do(t, map[string]any{"do": "step", "steps": 1}, none); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a, err := e.do(t, map[string]any{"do": "step", "steps": 5000}, none)
	if err != nil || a.Dropped == 0 {
		t.Errorf("%d steps were dropped: %v", a.Dropped, err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if a, err := e.do(t, map[string]any{"do": "prefill", "prompt": 1}, none); err != nil || !slices.Equal(a.Stored, []int{6, 6}) {
		t.Errorf("after that: %v %v", a.Stored, err)
	}
	e.stop(t)
	d.quiet(t, 0)
}
