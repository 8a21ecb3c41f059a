package python

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"meridian/internal/realpart"
	"meridian/internal/testdaemon"
)

// limit bounds a run of Python, which bounds every wait itself.
const limit = 5 * time.Minute

// thinker is the model of which the tests know the think tokens.
const thinker = "[security]\ntenants = [\"acme\", \"default\"]\n[model.thinker]\nthink_start_token_ids = [1]\nthink_end_token_ids = [2]\n"

// python is a command with the package and numpy on its path.
func python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	numpy := realpart.Packages(t, "numpy")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, realpart.Python(t), args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(realpart.Root(t), "adapters/python")+":"+numpy, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	return cmd
}

// unittests runs modules of tests/ and fails where one fails, or fewer ran than are there.
func unittests(t *testing.T, env string, modules ...string) {
	t.Helper()
	want := 0
	for _, m := range modules {
		b, err := os.ReadFile(strings.ReplaceAll(m, ".", "/") + ".py")
		if err != nil {
			t.Fatal(err)
		}
		want += len(regexp.MustCompile(`(?m)^    def test_`).FindAll(b, -1))
	}
	cmd := python(t, append([]string{"-W", "error", "-m", "unittest", "-v"}, modules...)...)
	cmd.Env = append(cmd.Env, env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`(?m)^Ran (\d+) tests? in`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no test ran:\n%s", out)
	}
	if ran, _ := strconv.Atoi(string(m[1])); ran != want || strings.Contains(string(out), "(skipped=") {
		t.Errorf("%d tests ran, %d are written:\n%s", ran, want, out)
	}
}

// The package says that it is typed: mypy finds nothing, for the oldest Python that it takes.
func TestTheClientIsTyped(t *testing.T) {
	cmd := python(t, "-m", "mypy", "--strict", "--python-version", "3.10", "--cache-dir", t.TempDir(), "-p", "meridian")
	for i, v := range cmd.Env {
		if path, ok := strings.CutPrefix(v, "PYTHONPATH="); ok {
			cmd.Env[i] = "PYTHONPATH=" + path + ":" + realpart.Packages(t, "mypy")
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFormatsAndADaemonThatLies(t *testing.T) {
	unittests(t, "MERIDIAN_ENGINE=", "tests.test_formats", "tests.test_liar", "tests.test_group_liar")
}

func TestTheClientWithARealDaemon(t *testing.T) {
	d := testdaemon.Start(t, thinker)
	unittests(t, "MERIDIAN_ENGINE="+d.Engine(), "tests.test_blocks", "tests.test_generation", "tests.test_group", "tests.test_aio")
}
