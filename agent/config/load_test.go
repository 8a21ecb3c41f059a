package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/wire"
)

// tape is a fabric's table with a key of each sort.
type tape struct {
	Path  string
	Quota uint64
	Token config.Secret
}

// kinds are those that the test data names: one that needs no table, one with keys,
// and the one that every daemon has.
var kinds = append(slices.DeleteFunc(openers.Kinds(), func(k config.FabricKind) bool { return k.Name != "link" }),
	config.NewFabricKind[struct{}]("nixl-synth", "A copy in memory.", nil),
	config.NewFabricKind("tape", "Blocks on tape.", func(t *tape, bad config.Bad) {
		if t.Path == "" {
			bad("path", "missing: the folder of the tape")
		}
	},
		config.Key("path", func(t *tape) *string { return &t.Path }, config.Paths, "", config.Free[string](), "Its folder."),
		config.Key("quota_bytes", func(t *tape) *uint64 { return &t.Quota }, config.Sizes, 1<<20, config.BytesWithin(1<<10, 1<<40), "How much it holds."),
		config.Key("token", func(t *tape) *config.Secret { return &t.Token }, config.Secrets, "", config.Free[config.Secret](), "What it asks for."),
	),
)

// fixed is a host with 8 GiB free, so that "auto" is the same everywhere.
func fixed() config.Memory { return config.Memory{Available: 8 << 30} }

func loadText(t *testing.T, text string, env ...string) (*config.Config, []config.Warning, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), config.FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Options{Path: path, Env: env, Kinds: kinds, Memory: fixed})
}

func mustLoad(t *testing.T, text string, env ...string) *config.Config {
	t.Helper()
	c, _, err := loadText(t, text, env...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.toml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("testdata/%s: %d files, %v", dir, len(names), err)
	}
	return names
}

func TestBadConfigsSayWhatIsWrong(t *testing.T) {
	for _, name := range files(t, "bad") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			_, _, err := config.Load(config.Options{Path: name, Kinds: kinds, Memory: fixed})
			var ce *config.Error
			if !errors.As(err, &ce) || !errors.Is(err, wire.CodeConfig) {
				t.Fatalf("error %v, want an *Error that matches CONFIG", err)
			}
			var b strings.Builder
			for _, p := range ce.Problems {
				fmt.Fprintln(&b, p)
			}
			golden(t, strings.TrimSuffix(name, ".toml")+".golden", b.String())
		})
	}
}

func TestGoodConfigsLoad(t *testing.T) {
	for _, name := range files(t, "good") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c, warnings, err := config.Load(config.Options{Path: name, Kinds: kinds, Memory: fixed})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, w := range warnings {
				fmt.Fprintln(&b, "warning:", w)
			}
			for _, o := range c.Origins() {
				if o.Source != "default" {
					fmt.Fprintln(&b, o.At, o.Key, "=", o.Value)
				}
			}
			golden(t, strings.TrimSuffix(name, ".toml")+".golden", b.String())
		})
	}
}

func TestDefaultsAreThoseOfTheSeed(t *testing.T) {
	c := mustLoad(t, "")
	for _, w := range []struct {
		name      string
		got, want any
	}{
		{"think_tpot_budget_ms", c.Scheduler.ThinkTPOTBudget, 80.0},
		{"output_tpot_budget_ms", c.Scheduler.OutputTPOTBudget, 20.0},
		{"think_batch_multiplier", c.Scheduler.ThinkBatchMultiplier, 2.5},
		{"max_think_tokens", c.Scheduler.MaxThinkTokens, uint32(32768)},
		{"min_think_tokens", c.Scheduler.MinThinkTokens, uint32(512)},
		{"entropy.enabled", c.Entropy.Enabled, true},
		{"ema_alpha", c.Entropy.EMAAlpha, 0.05},
		{"rpdi_threshold", c.Entropy.RPDIThreshold, 3.0},
		{"eat_ema_variance_threshold", c.Entropy.EATEMAVarianceThreshold, 0.001},
		{"transition_entropy_threshold", c.Entropy.TransitionEntropyThreshold, 2.5},
		{"eat_probe_interval_tokens", c.Entropy.EATProbeInterval, uint32(32)},
		{"aggressive_think_eviction", c.KVMemory.AggressiveThinkEviction, false},
		{"think_phase_memory_fraction", c.KVMemory.ThinkPhaseMemoryFraction, 0.4},
		{"block_size_bytes", c.KVMemory.BlockSize, uint64(16384)},
		{"capacity_bytes", c.KVMemory.Capacity, uint64(4 << 30)},
		{"disagg.enabled", c.Disagg.Enabled, false},
		{"disagg.fabric", c.Disagg.Fabric, "none"},
		{"offload_threshold_blocks", c.Disagg.OffloadThresholdBlocks, uint32(4)},
		{"otlp_enabled", c.Telemetry.OTLPEnabled, false},
		{"otlp_endpoint", c.Telemetry.OTLPEndpoint, "http://localhost:4318"},
		{"service_name", c.Telemetry.ServiceName, "meridian"},
	} {
		if w.got != w.want {
			t.Errorf("%s = %v, want %v", w.name, w.got, w.want)
		}
	}
}

func TestNothingListensBeyondThisHostByDefault(t *testing.T) {
	c := mustLoad(t, "")
	if at, insecure := valueOf(c, "link.listen"), valueOf(c, "link.insecure"); at != "[]" || insecure != "false" || c.Admin.Insecure || !strings.HasPrefix(c.Admin.HTTP, "127.0.0.1:") {
		t.Errorf("link %s, insecure %s/%v, http %s", at, insecure, c.Admin.Insecure, c.Admin.HTTP)
	}
	if !filepath.IsAbs(c.Admin.Socket) || !filepath.IsAbs(c.Engine.Socket) || !filepath.IsAbs(c.Agent.StateDir) {
		t.Errorf("places %q %q %q", c.Admin.Socket, c.Engine.Socket, c.Agent.StateDir)
	}
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), config.FileName)
	text := "[scheduler]\nmin_think_tokens = 1\nmax_think_tokens = 11\nthink_tpot_budget_ms = 111\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Options{
		Path:   path,
		Env:    []string{"MERIDIAN_SCHEDULER_MIN_THINK_TOKENS=2", "MERIDIAN_SCHEDULER_MAX_THINK_TOKENS=22", "OTHER=1"},
		Flags:  map[string]string{"scheduler.min_think_tokens": "3"},
		Memory: fixed,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Scheduler; s.MinThinkTokens != 3 || s.MaxThinkTokens != 22 || s.ThinkTPOTBudget != 111 || s.OutputTPOTBudget != 20 {
		t.Errorf("got %+v", s)
	}
	want := map[string]config.Origin{
		"scheduler.min_think_tokens":      {Value: "3", Source: "flag", At: "flag"},
		"scheduler.max_think_tokens":      {Value: "22", Source: "env", At: "MERIDIAN_SCHEDULER_MAX_THINK_TOKENS"},
		"scheduler.think_tpot_budget_ms":  {Value: "111", Source: "file", At: path + ":4"},
		"scheduler.output_tpot_budget_ms": {Value: "20", Source: "default"},
	}
	for _, o := range c.Origins() {
		if w, ok := want[o.Key]; ok {
			w.Key = o.Key
			if o != w {
				t.Errorf("origin %+v, want %+v", o, w)
			}
			delete(want, o.Key)
		}
	}
	if len(want) != 0 {
		t.Errorf("origins lack %v", want)
	}
}

func TestVariablesThatAreNoKeysAreErrors(t *testing.T) {
	for variable, want := range map[string]string{
		"MERIDIAN_SCHEDULER_MIN_THINK_TOKEN=1": "MERIDIAN_SCHEDULER_MIN_THINK_TOKEN: unknown variable; did you mean MERIDIAN_SCHEDULER_MIN_THINK_TOKENS?",
		"MERIDIAN_ZZZ=1":                       "MERIDIAN_ZZZ: unknown variable",
		"MERIDIAN_MODEL_R1_REASONING_PARSER=x": "MERIDIAN_MODEL_R1_REASONING_PARSER: models, peers, namespaces and routes are set in the file only",
		"MERIDIAN_LINK_LANES=17":               `MERIDIAN_LINK_LANES: link.lanes: "17" must be "auto", or between 1 and 16`,
		"MERIDIAN_LINK_PSK=short":              "MERIDIAN_LINK_PSK: link.psk: [redacted] must be a key of at least 128 random bits: 32 hexadecimal digits or 22 characters of base64, neither words nor a pattern (`mrdn cert psk` makes one)",
	} {
		if _, _, err := loadText(t, "", variable); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", variable, err, want)
		}
	}
	for _, fine := range []string{"MERIDIAN_CLI_OUTPUT=json", "MERIDIAN_CONFIG=", "MERIDIANX=1"} {
		if _, _, err := loadText(t, "", fine); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

func TestListsAndAutoFromTheEnvironment(t *testing.T) {
	c := mustLoad(t, "", "MERIDIAN_SECURITY_TENANTS=acme, globex", "MERIDIAN_SECURITY_UIDS=10,20",
		"MERIDIAN_LINK_LISTEN=tcp://[::1]:0", "MERIDIAN_ENGINE_SOCKET=", "MERIDIAN_LINK_LANES=auto", "MERIDIAN_KV_MEMORY_CAPACITY_BYTES=256MiB",
		"MERIDIAN_AGENT_LOG_LEVEL=debug", "MERIDIAN_DISAGG_ENABLED=0", "MERIDIAN_AGENT_READY_MIN_PEERS=3")
	if got := fmt.Sprint(c.Security.Tenants, c.Security.UIDs, valueOf(c, "link.listen"), valueOf(c, "link.lanes"), c.KVMemory.Capacity, c.Agent.LogLevel, c.Disagg.Enabled, c.Agent.ReadyMinPeers); got != `[acme globex] [10 20]["tcp://[::1]:0"]"auto"268435456 DEBUG false 3` {
		t.Errorf("got %s", got)
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	_, _, err := loadText(t, "[scheduler]\nmin_think_tokens = -1\n\n[entropy]\nema_alpha = 2\n[nonsense]\n")
	var ce *config.Error
	if !errors.As(err, &ce) || len(ce.Problems) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, line := range []int{2, 5, 6} {
		if ce.Problems[i].Line != line {
			t.Errorf("problem %d is at line %d, want %d: %s", i, ce.Problems[i].Line, line, ce.Problems[i])
		}
	}
}

func TestSearchPathIsHereThenTheUsersFolder(t *testing.T) {
	here, home := t.TempDir(), t.TempDir()
	t.Chdir(here)
	env := []string{"HOME=" + home}
	if got := (config.Options{Env: env}).Find(); got != "" {
		t.Errorf("found %q in empty folders", got)
	}
	user := filepath.Join(home, ".config", "meridian")
	if err := os.MkdirAll(user, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, name string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("[agent]\nname = \""+name+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nameOf := func(o config.Options) string {
		t.Helper()
		o.Memory = fixed
		c, _, err := config.Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return c.Agent.Name
	}
	write(filepath.Join(user, config.FileName), "user")
	if got := nameOf(config.Options{Env: env}); got != "user" {
		t.Errorf("read %q", got)
	}
	write(config.FileName, "here")
	if got := nameOf(config.Options{Env: env}); got != "here" {
		t.Errorf("read %q", got)
	}
	write("named.toml", "named")
	if got := nameOf(config.Options{Env: append(env, "MERIDIAN_CONFIG=named.toml")}); got != "named" {
		t.Errorf("read %q", got)
	}
	if got := nameOf(config.Options{Path: config.FileName, Env: append(env, "MERIDIAN_CONFIG=named.toml")}); got != "here" {
		t.Errorf("read %q", got)
	}
	if _, _, err := config.Load(config.Options{Path: "absent.toml"}); err == nil || err.Error() != "absent.toml: no such file or directory" {
		t.Errorf("a named file that is absent: %v", err)
	}
	if _, _, err := config.Load(config.Options{Env: append(env, "MERIDIAN_CONFIG=absent.toml")}); err == nil || err.Error() != "absent.toml: no such file or directory (MERIDIAN_CONFIG names this file)" {
		t.Errorf("one that a variable names: %v", err)
	}
}

func TestRelativePathsOfTheFileAreFromItsFolder(t *testing.T) {
	c := mustLoad(t, "[admin]\nsocket = \"a.sock\"\n[agent]\nstate_dir = \"/abs\"\n")
	if want := filepath.Join(filepath.Dir(c.File), "a.sock"); c.Admin.Socket != want || c.Agent.StateDir != "/abs" {
		t.Errorf("socket %s, want %s; state %s", c.Admin.Socket, want, c.Agent.StateDir)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	const psk = "5b1e7f0c92d84a63b0f6a9d13e57c248"
	c := mustLoad(t, "[link]\npsk = \""+psk+"\"\n[[link.peer]]\nname = \"p\"\ntenants = [\"t\"]\npsk = \""+psk+"\"\n")
	if got := c.SecretsInFile(); len(got) != 2 {
		t.Fatalf("the secrets that were read are %q", got)
	}
	text, err := config.Secret(psk).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(c), fmt.Sprintf("%+v", *c), fmt.Sprintf("%#v", *c), fmt.Sprintf("%s %q", config.Secret(psk), config.Secret(psk)), fmt.Sprintf("%+v %#v", c.Settings("link"), c.Settings("link")),
		string(text), config.Secret(psk).LogValue().String(), fmt.Sprint(c.Origins()),
	} {
		if strings.Contains(s, psk) {
			t.Errorf("the secret is in %s", s)
		}
	}
}

func TestChangesTellLiveKeysFromOthers(t *testing.T) {
	a := mustLoad(t, "[agent]\nname = \"a\"\nlog_level = \"info\"\n[link]\npsk = \"5b1e7f0c92d84a63b0f6a9d13e57c248\"\n")
	b := mustLoad(t, "[agent]\nname = \"a\"\nlog_level = \"debug\"\n[link]\npsk = \"c20d94f1a7be4356980e1fd57a3b6c88\"\n[[link.peer]]\nname=\"p\"\ntenants=[\"t\"]\n")
	live := map[string]bool{}
	for _, c := range config.Changes(a, b) {
		live[c.Key] = c.Live
	}
	if v, ok := live["agent.log_level"]; !ok || !v {
		t.Errorf("log_level: changed %v, live %v", ok, v)
	}
	for _, k := range []string{"link.psk", "link.peer.p"} {
		if v, ok := live[k]; !ok || !v {
			t.Errorf("%s: changed %v, live %v", k, ok, v)
		}
	}
	if _, ok := live["agent.name"]; ok {
		t.Error("agent.name did not change")
	}
	if got := config.Changes(b, a); len(got) != len(live) {
		t.Errorf("back: %v, forth: %v", got, live)
	}
	if got := config.Changes(a, a); len(got) != 0 {
		t.Errorf("no change: %v", got)
	}
}

// The key is read under output-first alone, so no other policy makes its value worth a warning.
func TestTheMultiplierIsAWarningOnlyWhereItIsRead(t *testing.T) {
	for policy, warned := range map[string]bool{"": true, "output-first": true, "fcfs": false, "reason-first": false, "slo-slack": false} {
		text := "[scheduler]\nthink_batch_multiplier = 9\n"
		if policy != "" {
			text += fmt.Sprintf("policy = %q\n", policy)
		}
		_, warnings, err := loadText(t, text)
		if err != nil || slices.ContainsFunc(warnings, func(w config.Warning) bool { return w.Key == "scheduler.think_batch_multiplier" }) != warned {
			t.Errorf("policy %q: %v, %v; warned: want %v", policy, warnings, err, warned)
		}
	}
}

// Configurations are loaded at the same time, as by a command that was left behind and the
// next one: the race detector watches.
func TestConfigurationsAreLoadedAtTheSameTime(t *testing.T) {
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			if _, _, err := config.Load(config.Options{Path: os.DevNull, Kinds: kinds, Memory: fixed}); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
}
