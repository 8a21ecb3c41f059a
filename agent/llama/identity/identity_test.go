package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// setup is a server, a model and adapters in a folder.
type setup struct {
	t   *testing.T
	dir string
	src Source
	say Server
	sum Cache
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	p := &setup{t: t, dir: t.TempDir(), say: Server{Build: "b1-7e4c0a9", Context: 512}}
	p.src.Server = p.write("llama-server", "\x7fELF program")
	p.src.Model = p.write("m.gguf", "weights")
	return p
}

func (p *setup) write(name, content string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// key is the whole of what a manifest gets.
func (p *setup) key() string {
	p.t.Helper()
	id, err := p.try()
	if err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("%x %s", id.Model, id.Build)
}

func (p *setup) try() (Identity, error) {
	f, err := Open(p.src)
	if err != nil {
		return Identity{}, err
	}
	defer func() { _ = f.Close() }()
	return f.Of(p.t.Context(), &p.sum, p.say)
}

// differs says that a change must give another key.
func (p *setup) differs(what string, change func()) {
	p.t.Helper()
	before := p.key()
	change()
	if after := p.key(); after == before {
		p.t.Errorf("%s: the key is still %s", what, before)
	}
}

func (p *setup) same(what string, change func()) {
	p.t.Helper()
	before := p.key()
	change()
	if after := p.key(); after != before {
		p.t.Errorf("%s: the key is %s, and was %s", what, after, before)
	}
}

func TestAModelOfOneFileCountsByItsBytesAndNotByItsPath(t *testing.T) {
	p := newSetup(t)
	id, err := p.try()
	if err != nil || id.Model != blake3.Sum256([]byte("weights")) || id.Build != "b1-7e4c0a9" || id.Settings != nil {
		t.Errorf("%+v, %v", id, err)
	}
	p.same("another path", func() { p.src.Model = p.write("n.gguf", "weights") })
	p.differs("other weights, written in place", func() { p.write("n.gguf", "WEIGHTS") })
	p.differs("other weights, renamed over", func() {
		if err := os.Rename(p.write("next", "Weights"), p.src.Model); err != nil {
			t.Fatal(err)
		}
	})
	link := filepath.Join(p.dir, "link.gguf")
	move := func(to string) {
		_ = os.Remove(link)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	move(p.write("a", "one"))
	p.src.Model = link
	p.differs("a symlink that is moved", func() { move(p.write("b", "two")) })
}

func TestEveryShardOfASplitModelCounts(t *testing.T) {
	p := newSetup(t)
	for i := range 3 {
		p.write(fmt.Sprintf("m-0000%d-of-00003.gguf", i+1), fmt.Sprint("shard ", i))
	}
	p.src.Model = filepath.Join(p.dir, "m-00001-of-00003.gguf")
	for i := range 3 {
		p.differs(fmt.Sprint("shard ", i+1), func() { p.write(fmt.Sprintf("m-0000%d-of-00003.gguf", i+1), fmt.Sprint("other ", i)) })
	}
	p.differs("two shards exchanged", func() {
		p.write("m-00002-of-00003.gguf", "other 2")
		p.write("m-00003-of-00003.gguf", "other 1")
	})
	if err := os.Remove(filepath.Join(p.dir, "m-00003-of-00003.gguf")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.try(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "m-00003-of-00003.gguf") {
		t.Errorf("a shard that is not there: %v", err)
	}
	p.src.Model = p.write("m-00001-of-99999.gguf", "x")
	if _, err := p.try(); err == nil || !strings.Contains(err.Error(), "99999 shards are not between 1 and 4096") {
		t.Errorf("%v", err)
	}
}

func TestAdaptersAndVectorsCountByTheirBytes(t *testing.T) {
	for _, flag := range []string{"--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--some-new-file"} {
		p := newSetup(t)
		a, b := p.write("a.gguf", "one"), p.write("b.gguf", "two")
		scale := ""
		if strings.HasSuffix(flag, "scaled") {
			scale = ":0.5"
		}
		p.differs(flag, func() { p.src.Args = []string{flag, a + scale} })
		p.differs(flag+" overwritten", func() { p.write("a.gguf", "ONE") })
		p.same(flag+" at another path", func() { p.src.Args = []string{flag, p.write("c.gguf", "ONE") + scale} })
		p.differs(flag+", two", func() { p.src.Args = []string{flag, a + scale + "," + b + scale} })
		p.differs(flag+", the second overwritten", func() { p.write("b.gguf", "TWO") })
		p.differs(flag+", in another order", func() { p.src.Args = []string{flag, b + scale + "," + a + scale} })
		if scale != "" {
			p.differs(flag+", another scale", func() { p.src.Args = []string{flag, b + ":0.6," + a + scale} })
		}
		p.differs(flag+" with an equals sign", func() { p.src.Args = []string{flag + "=" + b} })
	}
}

// A server may load adapters that no argument names, as a script that starts it
// may. Their bytes at that time are not known.
func TestWhatTheServerReportsIsChecked(t *testing.T) {
	p := newSetup(t)
	a := p.write("a.gguf", "one")
	p.src.Args = []string{"--lora", a}
	p.differs("an adapter at another scale", func() { p.say.Adapters = []Adapter{{a, 0.25}} })
	p.say.Adapters = []Adapter{{"/other.gguf", 1}}
	if _, err := p.try(); err == nil || !strings.Contains(err.Error(), `"/other.gguf", which llama.args does not name`) {
		t.Errorf("%v", err)
	}
	p.say.Adapters = nil
	p.same("the path of its model", func() { p.say.Model = p.src.Model })
	p.say.Model = "/other.gguf"
	if _, err := p.try(); err == nil || !strings.Contains(err.Error(), "serves /other.gguf, not "+p.src.Model) {
		t.Errorf("%v", err)
	}
}

func TestSettingsCountUnlessTheyAreKnownToChangeNoKV(t *testing.T) {
	p := newSetup(t)
	for _, args := range [][]string{
		{"--rope-freq-base", "5000"}, {"--rope-freq-base", "6000"}, {"--rope_freq_scale", "2"}, {"--yarn-ext-factor", "-1"}, {"--yarn-ext-factor", "-0.5"},
		{"--override-kv", "a=int:1"}, {"-ot", "x=CPU"}, {"--swa-full"}, {"-ub", "64"}, {"--never-heard-of"}, {"-ngl", "0", "--swa-full", "--no-repack"}, {"stray"},
	} {
		p.differs(fmt.Sprint(args), func() { p.src.Args = args })
	}
	p.src.Args = nil
	for _, args := range [][]string{{"-ngl", "99"}, {"--device", "none"}, {"-t", "4"}, {"-fa", "off"}, {"-ctk", "q8_0"}, {"--metrics"}, {"--jinja"}, {"--temp", "-1"}} {
		p.same(fmt.Sprint(args), func() { p.src.Args = args })
	}
	p.src.Args = nil
	p.same("PATH", func() { p.src.Env = []string{"PATH=/x", "CUDA_VISIBLE_DEVICES=1", "LC_ALL=C"} })
	p.differs("GGML", func() { p.src.Env = append(p.src.Env, "GGML_CUDA_FORCE_MMQ=1") })
	p.differs("another value", func() { p.src.Env[3] = "GGML_CUDA_FORCE_MMQ=0" })
	p.differs("build", func() { p.say.Build = "b2" })
	p.same("the context", func() { p.say.Context = 1024 })
}

// Such a model rotates otherwise where the context is long.
func TestTheContextCountsForAModelThatRotatesByIt(t *testing.T) {
	for _, at := range []int{0, 5, chunk - 3, chunk, chunk + 9} {
		p := newSetup(t)
		p.write("m.gguf", strings.Repeat("x", at)+"rope_factors_long.weight"+strings.Repeat("y", 100))
		p.differs(fmt.Sprint("named at byte ", at), func() { p.say.Context = 1024 })
	}
}

func TestABuildThatHasNoNameCountsByItsVersionAndBytes(t *testing.T) {
	p := newSetup(t)
	p.say.Build = "b0-unknown"
	script := "#!/bin/sh\necho 'version: package 1.2'; echo more\n"
	p.src.Server = p.write("llama-server", script)
	if key := p.key(); !strings.Contains(key, " package 1.2 file ") {
		t.Errorf("%s has no version", key)
	}
	p.differs("another version", func() { p.write("llama-server", strings.Replace(script, "1.2", "1.3", 1)) })
	p.differs("another script", func() { p.write("llama-server", "#!/bin/sh\nLLAMA_ARG_SWA_FULL=1\necho version: package 1.3") })
	p.say.Build = "b1-7e4c0a9"
	p.differs("a script that runs a known build", func() { p.write("llama-server", script+"#") })
	p.say.Build = "b0-unknown"
	for _, script := range []string{"exit 1", "true", "echo; echo 'version: \t'", "printf 'a\\001b'", "printf '%0200d' 1"} {
		p.write("llama-server", "#!/bin/sh\n"+script)
		if _, err := p.try(); err == nil || !strings.Contains(err.Error(), "--version: ") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestAFileThatChangesWhileTheServerLoadsIsSeen(t *testing.T) {
	for name, change := range map[string]func(p *setup, path string){
		"overwritten": func(p *setup, path string) { p.write(filepath.Base(path), "another") },
		"grown":       func(p *setup, path string) { p.write(filepath.Base(path), "weights and more") },
		"renamed over": func(p *setup, path string) {
			if err := os.Rename(p.write("next", "weights"), path); err != nil {
				p.t.Fatal(err)
			}
		},
		"removed": func(p *setup, path string) {
			if err := os.Remove(path); err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		for _, which := range []string{"model", "adapter", "server"} {
			p := newSetup(t)
			adapter := p.write("a.gguf", "adapter")
			p.src.Args = []string{"--lora", adapter}
			path := map[string]string{"model": p.src.Model, "adapter": adapter, "server": p.src.Server}[which]
			long := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
			f, err := Open(p.src)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Changed(), f.Overwritten()); err != nil {
				t.Errorf("%s %s: before: %v", which, name, err)
			}
			change(p, path)
			if err := f.Changed(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", which, name, err)
			}
			inPlace := which == "model" && (name == "overwritten" || name == "grown")
			if err := f.Overwritten(); (err != nil) != inPlace {
				t.Errorf("%s %s: Overwritten says %v", which, name, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestASumIsKeptOnlyOfAFileThatHasBeenStillForLong(t *testing.T) {
	p := newSetup(t)
	read := func(age time.Duration) int {
		f, err := openFile(p.src.Model)
		if err != nil {
			t.Fatal(err)
		}
		defer f.f.Close()
		f.at.mtime, f.at.ctime = time.Now().Add(-age), time.Now().Add(-age)
		var c Cache
		// changed compares with the file's own times.
		if err := os.Chtimes(p.src.Model, f.at.mtime, f.at.mtime); err != nil {
			t.Fatal(err)
		}
		if _, err := c.of(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		return len(c.sums)
	}
	if n := read(racy / 2); n != 0 {
		t.Error("the sum of a file that has just been changed is kept")
	}
	if n := read(time.Hour); n != 1 {
		t.Error("the sum of a file that has not been changed for long is not kept")
	}
}

func TestHashingEndsWithItsCaller(t *testing.T) {
	p := newSetup(t)
	f, err := Open(p.src)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Of(ctx, &p.sum, p.say); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestALongFileIsHashedAsAWhole(t *testing.T) {
	p := newSetup(t)
	b := bytes.Repeat([]byte("gguf"), chunk/2+3)
	p.write("m.gguf", string(b))
	if id, err := p.try(); err != nil || id.Model != blake3.Sum256(b) {
		t.Errorf("%x, %v", id.Model, err)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	p := newSetup(t)
	model := p.src.Model
	for _, path := range []string{filepath.Join(p.dir, "none"), p.dir} {
		p.src.Model = path
		if _, err := p.try(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	p.src.Model, p.src.Server = model, filepath.Join(p.dir, "none")
	if _, err := p.try(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestArgumentsThatTheNodeSetsAreRefusedHoweverTheyAreWritten(t *testing.T) {
	for _, args := range [][]string{
		{"-m", "x"}, {"--model=x"}, {"--ctx_size", "5"}, {"-ngl", "0", "--kv_unified"}, {"--slot-save-path", "/"}, {"-hf", "a/b"}, {"--models-preset", "p.ini"},
		{"--sleep-idle-seconds", "3"}, {"--cache-reuse", "1"}, {"--api-key", "k"}, {"--context-shift"}, {"--embeddings"},
	} {
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && a != "-ngl" })
		name, _, _ := strings.Cut(strings.ReplaceAll(args[i], "_", "-"), "=")
		if err := CheckArgs(args); err == nil || !strings.HasPrefix(err.Error(), name+" ") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := CheckArgs([]string{"-ngl", "-1", "--lora", "m", "--device", "none"}); err != nil {
		t.Error(err)
	}
}

func TestTheChildGetsAnEnvironmentOfOurs(t *testing.T) {
	parent := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "CUDA_VISIBLE_DEVICES=0", "GGML_X=1", "LLAMA_CACHE=/c", "LLAMA_ARG_HOST=0.0.0.0", "SECRET=s", "HF_TOKEN=t", "MERIDIAN_LLAMA_TOKEN=u", "PYTHONPATH=/evil", "LD_PRELOAD=x.so", "odd"}
	want := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "CUDA_VISIBLE_DEVICES=0", "GGML_X=1"}
	if got := Env(parent); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := CheckEnv(parent); err != nil {
		t.Error(err)
	}
	err := CheckEnv(append(parent, "LLAMA_ARG_ROPE_FREQ_BASE=5", "LLAMA_API_KEY=k", "LLAMA_ARG_CACHE_REUSE=1", "LLAMA_ARG_LOG_FILE=x"))
	if err == nil || !strings.Contains(err.Error(), "LLAMA_API_KEY, LLAMA_ARG_CACHE_REUSE, LLAMA_ARG_ROPE_FREQ_BASE,") || strings.Contains(err.Error(), "LOG_FILE") {
		t.Errorf("%v", err)
	}
	for _, name := range append(slices.Clone(plainEnv), "GGML_X") {
		if strings.HasPrefix(name, "LLAMA_") {
			t.Errorf("%s is both handed on and refused", name)
		}
	}
}
