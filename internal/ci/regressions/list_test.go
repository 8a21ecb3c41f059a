package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestParseListReadsEntriesAndTheirTests(t *testing.T) {
	got, err := parseList(strings.NewReader(`# a comment
with internal/testlog

1 One title.
    ./adapters/link  -run TestA|TestB  adapters/link/a_test.go adapters/link/testdata
    wire -run '^TestC$' wire/c_test.go !wire/old_test.go newly built

K Words.
    wire -run TestD changed wire/d.go "a == \"b\"\n" "true"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{id: "1", title: "One title.", lines: []line{
			{at: 5, pkg: "adapters/link", run: "TestA|TestB", copied: []string{"internal/testlog", "adapters/link/a_test.go", "adapters/link/testdata"}},
			{at: 6, pkg: "wire", run: "^TestC$", copied: []string{"internal/testlog", "wire/c_test.go"}, removed: []string{"wire/old_test.go"}, newlyBuilt: true},
		}},
		{id: "K", title: "Words.", lines: []line{
			{at: 9, pkg: "wire", run: "TestD", copied: []string{}, change: &change{file: "wire/d.go", old: "a == \"b\"\n", new: "true"}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseListNamesTheLineItCannotRead(t *testing.T) {
	for name, c := range map[string]struct{ list, want string }{
		"a test first":        {"    wire -run X\n", "line 1: a test before"},
		"no -run":             {"1 T\n    wire TestX f_test.go\n", "line 2: "},
		"a bad pattern":       {"1 T\n    wire -run ( f_test.go\n", "line 2: "},
		"a path outside":      {"1 T\n    wire -run X ../f_test.go\n", `"../f_test.go" is not a path`},
		"an absolute path":    {"1 T\n    wire -run X /f_test.go\n", `"/f_test.go" is not a path`},
		"a package outside":   {"1 T\n    ../wire -run X\n", `"../wire" is not a path`},
		"common outside":      {"with ../x\n", `"../x" is not a path`},
		"common later":        {"1 T\nwith x\n", "line 2: "},
		"a change of what":    {"1 T\n    wire -run X changed wire/a.go \"a\"\n", "is not `FILE "},
		"a change outside":    {"1 T\n    wire -run X changed ../a.go \"a\" \"b\"\n", `"../a.go" is not a path`},
		"a change of nothing": {"1 T\n    wire -run X changed a.go \"a\" \"a\"\n", "is not `FILE "},
		"a change and a copy": {"1 T\n    wire -run X b_test.go changed a.go \"a\" \"b\"\n", "a change is made in this tree"},
		"no title":            {"1\n", "line 1: "},
		"an id twice":         {"1 T\n1 U\n", "entry 1 is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseList(strings.NewReader(c.list)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestOutcomeIsReadFromWhatGoTestPrints(t *testing.T) {
	for _, c := range []struct {
		ok     bool
		output string
		want   outcome
	}{
		{true, "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tp\t0.1s\n", passed},
		{true, "--- SKIP: TestA (0.00s)\nPASS\n", skippedAll},
		{true, "--- SKIP: TestA (0.00s)\n--- PASS: TestB (0.00s)\n", passed},
		{true, "testing: warning: no tests to run\nPASS\nok  \tp\t0.1s [no tests to run]\n", noTest},
		{false, "--- FAIL: TestA (0.00s)\nFAIL\n", failed},
		{false, "panic: test timed out after 5m0s\n", failed},
		{false, "# p\n./a_test.go:3:2: undefined: X\nFAIL\tp [build failed]\n", unbuilt},
		{false, "FAIL\tp [setup failed]\n", unbuilt},
	} {
		if got := read(c.ok, c.output); got != c.want {
			t.Errorf("%v, %q: %v, want %v", c.ok, c.output, got, c.want)
		}
	}
}

func TestVerdictWantsAFaultBeforeAndNoneNow(t *testing.T) {
	for _, c := range []struct {
		before, now outcome
		newly, good bool
	}{
		{failed, passed, false, true},
		{unbuilt, passed, true, true},
		{failed, passed, true, false},
		{unbuilt, passed, false, false},
		{passed, passed, false, false},
		{noTest, passed, false, false},
		{skippedAll, passed, true, false},
		{failed, failed, false, false},
		{failed, skippedAll, false, false},
		{failed, noTest, false, false},
	} {
		if got := verdict(line{newlyBuilt: c.newly}, c.before, c.now); (got == "") != c.good {
			t.Errorf("old %v, new %v, newly built %v: verdict %q", c.before, c.now, c.newly, got)
		}
	}
}

func TestAFailureIsSaidByItsFirstMessage(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestA\n    a_test.go:7: 1, want 2\n    a_test.go:8: more\n--- FAIL: TestA (0.00s)\n": "a_test.go:7: 1, want 2",
		"=== RUN   TestA\npanic: boom [recovered]\n":                                                    "panic: boom [recovered]",
		"exit status 1\n": "",
	} {
		if got := firstFailure(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestAChangeMustBuild(t *testing.T) {
	l := line{change: &change{}}
	if got := verdict(l, unbuilt, passed); !strings.Contains(got, "does not build with its change") {
		t.Errorf("verdict %q", got)
	}
	if got := verdict(l, failed, passed); got != "" {
		t.Errorf("verdict %q", got)
	}
}

// What can be seen of the list without the old commit.
func TestTheListNamesFilesTestsAndPlacesThatAreThere(t *testing.T) {
	top := filepath.Join("..", "..", "..")
	entries, err := readList(top, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if len(e.lines) == 0 {
			t.Errorf("entry %s has no test", e.id)
		}
		for _, l := range e.lines {
			for _, name := range l.copied {
				if _, err := os.Stat(filepath.Join(top, name)); err != nil {
					t.Errorf("line %d: %v", l.at, err)
				}
			}
			if l.change != nil {
				if _, err := l.change.overlay(top, t.TempDir()); err != nil {
					t.Errorf("line %d: %v", l.at, err)
				}
			}
			names := testsOf(t, filepath.Join(top, l.pkg))
			for part := range strings.SplitSeq(l.run, "|") {
				test, _, _ := strings.Cut(part, "/")
				if !slices.ContainsFunc(names, regexp.MustCompile(test).MatchString) {
					t.Errorf("line %d: ./%s has no test %s", l.at, l.pkg, test)
				}
			}
		}
	}
}

// testsOf is the names of a package's tests.
func testsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if _, err := declared(file, names); err != nil {
			t.Fatal(err)
		}
	}
	return slices.Collect(maps.Keys(names))
}
