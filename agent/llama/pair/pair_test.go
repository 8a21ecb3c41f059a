package pair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
)

func TestTheConfigurationsAreValidAndPointAtEachOther(t *testing.T) {
	p := &Pair{Dir: t.TempDir()}
	o := Options{Server: "/bin/server", Model: "/m/a \"b\".gguf", Args: []string{"-ngl", "0"}, Name: "m", Context: 512, Slots: 3, Threads: 1,
		Capacity: 64 << 20, ListenDecode: "127.0.0.1:0", Llama: "block_tokens = 8\n", Extra: "[scheduler]\nmax_think_tokens = 9\nmin_think_tokens = 0\n"}
	loaded := map[string]*config.Config{}
	for _, name := range []string{Prefill, Decode} {
		path, err := p.write(&o, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := openers.Load(config.Options{Path: path})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l := cfg.Llama
		if l.Role != name || l.Model != o.Model || !slices.Equal(l.Args, o.Args) || l.Slots != 3 || l.BlockTokens != 8 || cfg.Scheduler.MaxThinkTokens != 9 {
			t.Errorf("%s: %+v", name, l)
		}
		loaded[name] = cfg
	}
	for name, other := range map[string]string{Prefill: Decode, Decode: Prefill} {
		if got, want := loaded[name].Llama.Partner, "unix://"+filepath.Join(loaded[other].Llama.Dir, "front.sock"); got != want {
			t.Errorf("%s: partner %s, want %s", name, got, want)
		}
		if got, want := valueOf(loaded[name], "link.peer[0].address"), valueOf(loaded[other], "link.listen"); "["+got+"]" != want {
			t.Errorf("%s: peer at %s, want that of %s", name, got, want)
		}
	}
}

// valueOf is a key's value as it would be written.
func valueOf(c *config.Config, key string) string {
	for _, o := range c.Origins() {
		if o.Key == key {
			return o.Value
		}
	}
	return ""
}

func TestANodeThatEndsIsToldWithItsLastWordsAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	// The program is a shell that says something and ends: no node ever serves.
	_, err := Start(context.Background(), Options{Self: []string{"/bin/sh", "-c", "echo sh $1: no such model >&2; exit 3", "sh"}, Server: "s", Model: "m", Dir: filepath.Join(dir, "pair")})
	if err == nil || !strings.HasSuffix(err.Error(), " ended before it served (exit status 3): no such model") {
		t.Errorf("%v; want the node's last words and status, without what its process is called", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pair", Prefill, "meridian.toml")); err != nil {
		t.Errorf("a folder that was named is kept: %v", err)
	}
}

// The user of a node that was stopped learns what it was waiting for, and not how
// Go says it.
func TestAStopIsToldWithWhatTheNodeWasWaitingFor(t *testing.T) {
	for err, want := range map[error]string{
		context.Canceled:         "prefill was stopped before it served; it was waiting for this: llama-server loads m.gguf",
		context.DeadlineExceeded: "prefill did not serve in the time that it had; it was waiting for this: llama-server loads m.gguf",
	} {
		e := &StoppedError{Node: "prefill", Waited: "llama-server loads m.gguf", Err: err}
		if e.Error() != want || !errors.Is(e, err) {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}
