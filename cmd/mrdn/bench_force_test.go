package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ownRecording = `{"meridian_signals":1,"name":"own","kind":"recorded","source":"a test","requests":1}
{"id":"a","ended":"cut","entropy":[1,2,3],"p_end":[0,0.5,1]}
`

func TestBenchForceShowsAUsersRecording(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own.jsonl")
	if err := os.WriteFile(file, []byte(ownRecording), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShell(t, nil)
	args := []string{"bench", "force", "--recording", file, "--synthetic", "0", "--out", filepath.Join(dir, "out")}
	one := s.run(t, args...)
	if one.exit != exitOK || !strings.Contains(one.out, "own: recorded; 1 requests, 3 thinking tokens") || !strings.Contains(one.out, "flat: synthetic") {
		t.Errorf("exit %d, %s\n%s", one.exit, one.err, one.out)
	}
	for _, name := range []string{"report.json", "report.md"} {
		if b, err := os.ReadFile(filepath.Join(dir, "out", name)); err != nil || !strings.Contains(string(b), "a test") {
			t.Errorf("%s: %v\n%.200s", name, err, b)
		}
	}
	if again := s.run(t, args...); again.out != one.out {
		t.Error("the same flags gave another report")
	}
}

func TestBenchForceNamesWhatIsWrongWithARecording(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.jsonl")
	if err := os.WriteFile(file, []byte(strings.Replace(ownRecording, "0.5", "NaN", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := newShell(t, nil).run(t, "bench", "force", "--recording", file)
	if got.exit != exitUsage || !strings.Contains(got.err, file+": line 2: invalid character 'N'") {
		t.Errorf("exit %d, %s", got.exit, got.err)
	}
}

// Thresholds under which a flat series is forced are a failure, with the report.
func TestBenchForceFailsWhereFlatSeriesAreForced(t *testing.T) {
	dir := t.TempDir()
	cfg, file := filepath.Join(dir, "meridian.toml"), filepath.Join(dir, "own.jsonl")
	for name, text := range map[string]string{cfg: "[entropy]\nema_alpha = 0.5\n", file: ownRecording} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := newShell(t, nil).run(t, "bench", "force", "--config", cfg, "--recording", file, "--synthetic", "0")
	if got.exit != exitFailed || !strings.Contains(got.err, "on flat series") || !strings.Contains(got.out, "overthinking") {
		t.Errorf("exit %d, %s\n%s", got.exit, got.err, got.out)
	}
}
