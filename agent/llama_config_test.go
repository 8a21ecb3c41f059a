package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/scheduler/queue"
)

// What [scheduler] says reaches the queue of a node, and the file takes each policy that
// the queue has.
func TestTheQueueHasWhatTheConfigurationSays(t *testing.T) {
	for _, p := range queue.Policies() {
		path := filepath.Join(t.TempDir(), "c.toml")
		text := fmt.Sprintf(`[scheduler]
policy = %q
think_tpot_budget_ms = 70
output_tpot_budget_ms = 0.5
first_answer_budget_ms = 3000
think_batch_multiplier = 3
answer_buffer = "4s"
min_residency = "5s"
aging = "6s"
[llama]
tick = "7ms"
hold = "8s"
`, p)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := openers.Load(config.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		got := scheduling(c.Llama, c.Scheduler)
		want := queue.Config{Policy: p, ThinkPace: 70 * time.Millisecond, OutputPace: 500 * time.Microsecond, FirstAnswer: 3 * time.Second,
			ThinkMultiplier: 3, Buffer: 4 * time.Second, MinResidency: 5 * time.Second, Aging: 6 * time.Second}
		if fmt.Sprintf("%+v", got.Queue) != fmt.Sprintf("%+v", want) || got.Tick != 7*time.Millisecond || got.Hold != 8*time.Second {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
