package child

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

func TestADeathIsNamedByItsSignalOrStatusInOneShortLine(t *testing.T) {
	for _, c := range []struct {
		script string
		want   []string
	}{
		{"kill -ILL $$", []string{"SIGILL, an illegal instruction"}},
		{"kill -SEGV $$", []string{"SIGSEGV"}},
		{"kill -KILL $$", []string{"SIGKILL"}},
		{"kill -ABRT $$", []string{"SIGABRT", "it said: GGML_ASSERT failed"}},
		{"exit 132", []string{"SIGILL"}}, // a script, of a program that it ran
		{"exit 3", []string{"exit status 3", "it said: GGML_ASSERT failed"}},
		{"exit 255", []string{"exit status 255"}},
		{"exit 0", []string{"exit status 0"}},
		{"kill -USR1 $$", []string{"signal 10"}},
	} {
		cmd := exec.Command("/bin/sh", "-c", c.script)
		_ = cmd.Run() // ProcessState says how it ended
		d := deathOf("llama-server", cmd, 1234*time.Millisecond, []string{"loading", "GGML_ASSERT failed", "bye"}, "")
		text := d.Error()
		for _, want := range append(c.want, "1.23s after its start") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", c.script, text, want)
			}
		}
		if len(text) > 2*maxLast || strings.Contains(text, "\n") {
			t.Errorf("%s: %q is no short line", c.script, text)
		}
	}
}

func TestTheInstructionSetsThatAProcessorLacksAreNamed(t *testing.T) {
	const old = "processor\t: 0\nflags\t\t: fpu pni ssse3 avx f16c avx2 fma bmi2\nbugs\t:\n"
	const built = "system_info: CPU : SSE3 = 1 | AVX2 = 1 | AVX_VNNI = 1 | AVX512 = 0 | AMX_INT8 = 1 | REPACK = 1 |"
	for _, c := range []struct {
		info, built string
		want        []string
	}{
		{old, built, []string{"AVX_VNNI", "AMX_INT8"}},
		{old, "", []string{"AVX_VNNI", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8"}},
		{strings.Replace(old, " avx2", "", 1), "CPU : AVX = 1 | AVX2 = 1 |", []string{"AVX2"}},
		{"flags : " + strings.Join([]string{"pni ssse3 avx f16c avx2 fma bmi2 avx_vnni avx512f", "avx512vbmi avx512_vnni avx512_bf16 amx_int8"}, " "), built, nil},
		{"", built, nil},
		{"Features\t: fp asimd\n", "", nil},
	} {
		got, said := lacking(c.info, c.built)
		if !slices.Equal(got, c.want) || said != (c.built != "" && c.want != nil) {
			t.Errorf("%q built for %q: %q said %v, want %q", c.info, c.built, got, said, c.want)
		}
	}
	d := &Death{Signal: syscall.SIGILL, Lacks: []string{"AVX_VNNI"}, Said: true, Last: "loading"}
	if text := d.Error(); !strings.Contains(text, "it was built for another processor, and this one lacks AVX_VNNI") || strings.Contains(text, "loading") {
		t.Error(text)
	}
	d.Said = false
	if text := d.Error(); !strings.Contains(text, "probably built for another processor; of what newer ones have, this one lacks AVX_VNNI") {
		t.Errorf("a guess is told as a fact: %s", text)
	}
}

func TestLastWordsAreTheLineThatNamesTheCause(t *testing.T) {
	for _, c := range []struct {
		tail []string
		want string
	}{
		{nil, ""},
		{[]string{"a", "b"}, "b"},
		{[]string{"error: invalid argument: --nope", "usage"}, "error: invalid argument: --nope"},
		{[]string{"error: first", "failed to load", "cleaning up"}, "failed to load"},
		{[]string{"a\x1b[31mb\xff"}, "a?[31mb?"},
		{[]string{strings.Repeat("é", 200)}, strings.Repeat("é", 120) + "…"},
		{[]string{"x" + strings.Repeat("é", 200)}, "x" + strings.Repeat("é", 119) + "…"},
	} {
		if got := lastWords(c.tail); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", c.tail, got, c.want)
		}
	}
}

func TestThreeQuickDeathsInARowAreTheEnd(t *testing.T) {
	death := &Death{Signal: syscall.SIGILL, Lacks: []string{"AVX_VNNI"}}
	r := Restarts{Name: "x", Advice: advice}
	for i := range mostDeaths - 1 {
		if pause, failure := r.After(death, false, time.Second); failure != nil || pause > firstPause {
			t.Fatalf("death %d: %v, %v", i, pause, failure)
		}
	}
	_, failure := r.After(death, false, time.Second)
	if failure == nil || !errors.Is(failure, ErrFailed) || !strings.Contains(failure.Error(), "3 times in a row") ||
		!strings.Contains(failure.Error(), "SIGILL") || !strings.Contains(failure.Error(), "What to do: ") {
		t.Errorf("%v", failure)
	}
}

func TestARefusalThatStaysIsNotTriedAgain(t *testing.T) {
	var r Restarts
	err := fmt.Errorf("slot state: %w", Permanent("use another", errors.New("state version 3")))
	if _, failure := r.After(err, false, time.Minute); failure == nil || !errors.Is(failure, ErrFailed) || failure.Advice != "use another" {
		t.Errorf("%v", failure)
	}
}

func TestWhatMayPassIsTriedForEver(t *testing.T) {
	death := &Death{Status: 1}
	for name, run := range map[string]func(r *Restarts, i int) *Failure{
		"one that served":  func(r *Restarts, _ int) *Failure { _, f := r.After(death, true, time.Second); return f },
		"one that is slow": func(r *Restarts, _ int) *Failure { _, f := r.After(death, false, quickDeath); return f },
		"the daemon's":     func(r *Restarts, _ int) *Failure { _, f := r.After(&Ours{death}, false, 0); return f },
		"two, and one that served": func(r *Restarts, i int) *Failure {
			_, f := r.After(death, i%mostDeaths == 2, 0)
			return f
		},
	} {
		var r Restarts
		for i := range 10 {
			if failure := run(&r, i); failure != nil {
				t.Errorf("%s, run %d: %v", name, i, failure)
			}
		}
		if r.pause != maxPause {
			t.Errorf("%s: the pause is %v after ten ends, want %v", name, r.pause, maxPause)
		}
	}
	var r Restarts
	for range 5 {
		r.After(death, true, time.Second)
	}
	r.After(death, true, settled+1)
	if pause, _ := r.After(death, true, time.Second); pause != firstPause {
		t.Errorf("after one that served long the pause is %v, want %v", pause, firstPause)
	}
}

func TestAProgramThatCannotBeStartedIsAPermanentRefusal(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir + "/none":     "no such file",
		dir:               "permission denied",
		"/proc/self/maps": "permission denied",
		"/etc/passwd/x":   "not a directory",
	} {
		_, err := Start(exec.Command(path), Options{Name: "prog", Key: "table.key"})
		var failure *Failure
		if !errors.As(err, &failure) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || !strings.Contains(failure.Advice, "table.key") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := (&Options{}).notStarted("/x", syscall.EAGAIN); errors.Is(err, ErrFailed) {
		t.Errorf("too many processes is taken for permanent: %v", err)
	}
}

// A child that talks without end fills no log; its last words are still known.
func TestTheLinesOfAChildAreBounded(t *testing.T) {
	var log bytes.Buffer
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done; echo error: the end", 5*maxLines)
	p, err := Start(exec.Command("/bin/sh", "-c", script), Options{Name: "talker", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Gone
	if n := strings.Count(log.String(), "\n"); n != maxLines {
		t.Errorf("%d lines are in the log, limit %d", n, maxLines)
	}
	if !strings.Contains(p.Death.Error(), "error: the end") {
		t.Error(p.Death)
	}
}

func advice(*Death) string { return "do this" }
