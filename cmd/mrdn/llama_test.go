package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
)

func TestALlamaServerThatIsWaitedForIsToldWithAWayOut(t *testing.T) {
	for text, want := range map[string]bool{
		"llama-server (pid 7) has not answered: it loads m.gguf, or hangs (for 5s)": true,
		"llama-server (pid 7) has not answered: it loads m.gguf, or hangs":          false,
		"the model's files are being hashed (for 5s)":                               false,
	} {
		if got := stuckHint(text); (got != "") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What a flag says is refused before 135 MB are fetched for it.
func TestAFlagThatANodeWouldRefuseFetchesNothing(t *testing.T) {
	s := newShell(t, nil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing is fetched yet
	for _, c := range []struct{ flag, value, want string }{
		{"--memory", "1", "--memory: \"1\" must be"},
		{"--memory", "0", "--memory: \"0\" must be"},
		{"--slots", "0", "--slots: \"0\" must be"},
		{"--context", "16", "--context: \"16\" must be"},
		{"--threads", "-1", "--threads: \"-1\" must be"},
		{"--decode", "nowhere", "--decode: \"nowhere\""},
		{"--prefill", "192.0.2.1:1", "--prefill: \"192.0.2.1:1\" is beyond loopback"},
		{"--think", "a", "--think \"a\": want"},
	} {
		got := s.run(t, "llama", "up", "--fetch", c.flag, c.value)
		expect(t, got, exitUsage, "", c.want)
		if strings.Contains(got.err, "fetching") {
			t.Errorf("%s %s: %s", c.flag, c.value, got.err)
		}
	}
	if e, err := os.ReadDir(os.Getenv("XDG_CACHE_HOME")); err != nil || len(e) != 0 {
		t.Errorf("%v, %v", e, err)
	}
}

// A file that is not there is named at once, whatever else has to be found or started.
func TestAModelThatIsNotThereIsNamed(t *testing.T) {
	s := newShell(t, nil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing is fetched yet
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range [][]string{{"bench", "force", "record"}, {"bench", "think", "--mode", "real-llamacpp"}, {"llama", "up"}, {"llama", "run", "x"}} {
		for _, flag := range []string{"--model", "--server"} {
			expect(t, s.run(t, append(args, flag, "nosuch")...), exitUsage, "", flag+": stat nosuch: no such file")
			expect(t, s.run(t, append(args, flag, dir)...), exitUsage, "", flag+": "+dir+" is no file")
		}
	}
	if e, err := os.ReadDir(dir); err != nil || len(e) != 0 {
		t.Errorf("%v, %v", e, err)
	}
}

// The nodes serve as the environment says, and what it says wrongly, or what llama up says
// itself, is refused before anything is fetched; a flag comes before a variable.
func TestTheNodesTakeTheirKeysFromTheEnvironment(t *testing.T) {
	s := newShell(t, nil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing is fetched yet
	for variable, want := range map[string]string{
		"MERIDIAN_SCHEDULER_POLICY=foo":           `"foo" must be`,
		"MERIDIAN_SCHEDULER_POLICE=fcfs":          "did you mean MERIDIAN_SCHEDULER_POLICY?",
		"MERIDIAN_SCHEDULER_MAX_THINK_TOKENS=100": "min_think_tokens",
		"MERIDIAN_ENTROPY_EMA_ALPHA=7":            `"7" must be`,
		"MERIDIAN_ENTROPY_ENABLE=1":               "did you mean MERIDIAN_ENTROPY_ENABLED?",
		"MERIDIAN_LLAMA_QUANTUM=0":                `"0" must be`,
		"MERIDIAN_LLAMA_SLOTS=4":                  "MERIDIAN_LLAMA_SLOTS: --slots sets llama.slots of the nodes",
		"MERIDIAN_LLAMA_ROLE=both":                "MERIDIAN_LLAMA_ROLE: the command sets llama.role of the nodes",
	} {
		s.env = []string{variable}
		got := s.run(t, "llama", "up", "--fetch")
		expect(t, got, exitUsage, "", want)
		if strings.Contains(got.err, "fetching") {
			t.Errorf("%s: %s", variable, got.err)
		}
	}
	for _, c := range []struct {
		env          []string
		flags        map[string]string
		keys, tables string
	}{
		{nil, nil, "", ""},
		{[]string{"MERIDIAN_LINK_LANES=3", "MERIDIAN_AGENT_NAME=x", "MERIDIAN_SCHEDULER_POLICY=", "MERIDIAN_LLAMA_SLOTS=", "PATH=/bin"}, nil, "", ""},
		{[]string{"MERIDIAN_SCHEDULER_POLICY=slo-slack", "MERIDIAN_SCHEDULER_AGING=90s", "MERIDIAN_SCHEDULER_OUTPUT_TPOT_BUDGET_MS=150"}, nil, "", "[scheduler]\npolicy = \"slo-slack\"\noutput_tpot_budget_ms = 150\naging = \"1m30s\"\n"},
		{[]string{"MERIDIAN_SCHEDULER_MAX_THINK_TOKENS=9000"}, map[string]string{"scheduler.max_think_tokens": "200", "scheduler.min_think_tokens": "0"}, "", "[scheduler]\nmax_think_tokens = 200\nmin_think_tokens = 0\n"},
		{[]string{"MERIDIAN_ENTROPY_ENABLED=false", "MERIDIAN_SCHEDULER_POLICY=fcfs", "MERIDIAN_LLAMA_SIGNAL_PROBS=200"}, nil, "signal_probs = 200\n", "[scheduler]\npolicy = \"fcfs\"\n[entropy]\nenabled = false\n"},
		{[]string{`MERIDIAN_LLAMA_TOKEN=a"b`, "MERIDIAN_LLAMA_THINK_START=<a>", "MERIDIAN_LLAMA_HOSTS=a,b"}, map[string]string{"llama.think_start": "<think>", "llama.think_end": "</think>"}, "token = \"a\\\"b\"\nhosts = [\"a\", \"b\"]\nthink_start = \"<think>\"\nthink_end = \"</think>\"\n", ""},
	} {
		keys, tables, err := nodeKeys(c.env, c.flags)
		if keys != c.keys || tables != c.tables || err != nil {
			t.Errorf("%q, flags %v: %q, %q, %v; want %q, %q", c.env, c.flags, keys, tables, err, c.keys, c.tables)
		}
		file := filepath.Join(t.TempDir(), config.FileName)
		if err := os.WriteFile(file, []byte("[llama]\nmodel = \"m\"\nserver = \"s\"\n"+keys+tables), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openers.Load(config.Options{Path: file}); err != nil {
			t.Errorf("a node refuses %q and %q: %v", keys, tables, err)
		}
	}
}

// Each key that llama up sets for a node is one of the configuration, so that its variable is
// looked at.
func TestTheKeysOfThePairAreThoseOfTheConfiguration(t *testing.T) {
	cfg, _, err := openers.Load(config.Options{Path: os.DevNull})
	if err != nil {
		t.Fatal(err)
	}
	left := maps.Clone(pairKeys)
	for _, k := range cfg.Origins() {
		delete(left, k.Key)
	}
	if len(left) > 0 {
		t.Errorf("no keys: %v", left)
	}
}
