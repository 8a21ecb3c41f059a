package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sample = `package room

// F has one of each operator that is changed.
func F(a, b int, m map[string]int) int {
	n := 0
	for i := 0; i < b; i++ {
		n += a*i - b/2 + i%3
	}
	if a > 3 &&
		b != 2 {
		n = -n
	}
	m["x"]++
	var shift uint32 = 1<<uint(n&1) - 1
	_ = shift
	return n
}

// G is not tested at its edge.
func G(a int) string {
	if a >= 10 {
		return "many" + "!"
	}
	return "few"
}

func H(a int) bool { return a == 1 }

// Loop does not end where its step goes back.
func Loop(n int) int {
	i := 0
	for i != n {
		i++
	}
	return i
}
`

const sampleTest = `package room

import "testing"

func TestF(t *testing.T) {
	for _, c := range [][3]int{{4, 5, -34}, {3, 2, 2}, {4, 2, 3}, {3, 5, 24}} {
		m := map[string]int{}
		if got := F(c[0], c[1], m); got != c[2] || m["x"] != 1 {
			t.Error(c, got, m)
		}
	}
}

func TestG(t *testing.T) {
	if G(1) != "few" || G(11) != "many!" {
		t.Error("G")
	}
}

func TestLoop(t *testing.T) {
	if Loop(3) != 3 {
		t.Error("Loop")
	}
}

func TestThatFails(t *testing.T) { t.Error("always") }
`

// Every change of a small room has the outcome that it must have.
func TestASmallRoom(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module sample\n\ngo 1.26\n")
	write("room/room.go", sample)
	write("room/room_test.go", sampleTest)
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "x"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	s := settings{workers: 4, longest: time.Minute, grace: 3 * time.Second, out: filepath.Join(dir, "out")}
	if err := os.Mkdir(s.out, 0o755); err != nil {
		t.Fatal(err)
	}
	lived, err := tryRoom(t.Context(), s, dir, "room")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(s.out, "room.txt"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(b)) {
		how, what, _ := strings.Cut(line, " room/room.go:")
		count[how]++
		edge := strings.HasSuffix(strings.TrimSpace(what), ":7 >= to >")
		switch {
		case (how == "LIVED") != edge,
			(how == "NOT REACHED") != strings.HasSuffix(what, "== to its negation\n"),
			(how == "TIMED OUT") != strings.HasSuffix(what, "++ to --\n"):
			t.Errorf("%s", line)
		}
	}
	if lived != 1 || count["LIVED"] != 1 || count["KILLED"] != 13 || count["NOT REACHED"] != 1 {
		t.Errorf("%d lived, outcomes %v:\n%s", lived, count, b)
	}
	s.again = true
	if lived, err = tryRoom(t.Context(), s, dir, "room"); err != nil || lived != 1 {
		t.Errorf("again: %d lived, %v", lived, err)
	}
}
