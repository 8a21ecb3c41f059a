package agent

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/internal/testlog"
)

// What needs a restart is what the file says and the daemon does not do. It does
// not become true by being read twice, nor false by being put back.
func TestAReloadListsWhatIsNotInForceUntilItIs(t *testing.T) {
	dir := shortDir(t)
	start := loadConfig(t, dir, "one", "")
	bigger := "[kv_memory]\ncapacity_bytes = \"32MiB\"\n"
	log := &testlog.Buffer{}
	var next *config.Config
	a, err := Start(t.Context(), start, Options{
		Version: "test", Log: NewLogger(log, start.Agent, new(slog.LevelVar)),
		Reload: func() (*config.Config, error) { return next, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []struct {
		what, text     string
		env            []string
		taken, restart string
	}{
		{"a bigger arena", bigger, nil, "[]", "[kv_memory.capacity_bytes]"},
		{"the same file again", bigger, nil, "[]", "[kv_memory.capacity_bytes]"},
		{"a live key besides", bigger, []string{"MERIDIAN_AGENT_DRAIN_TIMEOUT=3s"}, "[agent.drain_timeout]", "[kv_memory.capacity_bytes]"},
		{"as it was at the start", "", nil, "[agent.drain_timeout]", "[]"},
	} {
		loadConfig(t, dir, "one", step.text) // writes the file
		if next, _, err = config.Load(config.Options{Path: filepath.Join(dir, "one.toml"), Env: step.env, Kinds: openers.Kinds()}); err != nil {
			t.Fatal(err)
		}
		before := len(log.String())
		a.reload()
		got := log.String()[before:]
		if !strings.Contains(got, "taken_over="+step.taken+" ") || !strings.Contains(got, "needs_restart="+step.restart+"\n") {
			t.Errorf("%s: the log says %q, want %s taken over and %s to need a restart", step.what, got, step.taken, step.restart)
		}
	}
}
