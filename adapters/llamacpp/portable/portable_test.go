package portable_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/adapters/llamacpp/portable"
	"meridian/internal/realpart"
)

// installed is the launcher beside the package that the tests use.
func installed(t *testing.T) string {
	t.Helper()
	path, err := portable.Put(filepath.Join(realpart.Root(t), ".tools", "py", "llama"))
	realpart.Need(t, err, portable.ErrMissing, "internal/ci/python.sh llama installs it")
	return path
}

// The server that the tests run must run on any processor with AVX2.
func TestTheServerIsBuiltForAVX2AndNothingNewer(t *testing.T) {
	out, err := exec.Command(installed(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^system_info: CPU : (.*)$`).FindSubmatch(out)
	if line == nil {
		t.Fatalf("no instruction sets in %q", out)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(\w+) = 1`).FindAllSubmatch(line[1], -1) {
		got = append(got, string(m[1]))
	}
	for _, want := range []string{"AVX2", "F16C", "FMA", "BMI2"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in use: %s", want, line[1])
		}
	}
	old := []string{"SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2"}
	features := []string{"LLAMAFILE", "OPENMP", "REPACK"} // of the program, not of the processor
	for _, set := range got {
		if !slices.Contains(old, set) && !slices.Contains(features, set) {
			t.Errorf("%s is not part of AVX2 and what came before it: %s", set, line[1])
		}
	}
}

func TestWhatTheLauncherDoesNotTakeIsRefusedByName(t *testing.T) {
	server := installed(t)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{args: []string{"--control-vector", "v.gguf"}, want: "--control-vector is no flag that this server takes"},
		{args: []string{"--model=" + file}, want: "--model=" + file + " is no flag"},
		{args: []string{"m.gguf"}, want: "m.gguf is no flag"},
		{args: []string{"--version", "--port"}, want: "--version is no flag"},
		{args: []string{"-m"}, want: "-m needs a value"},
		{args: []string{"-m", "/none"}, want: "'/none' is no file"},
		{args: nil, want: "--model: '' is no file"},
		{args: []string{"-c", "many"}, want: "-c: 'many' is no integer"},
		{args: []string{"--rope-freq-base", "x"}, want: "--rope-freq-base: 'x' is no number"},
		{args: []string{"--rope-scale", "0"}, want: "--rope-scale: "},
		{args: []string{"-c", "99999999999999999999"}, want: "-c: "},
		{args: []string{"-fa", "maybe"}, want: "-fa: 'maybe' is none of on, off, auto"},
		{args: []string{"-ctk", "q9_0"}, want: "-ctk: 'q9_0' is none of f32, f16"},
		{args: []string{"--device", "Vulkan0"}, want: "--device: 'Vulkan0'"},
		{args: []string{"--lora", "/none"}, want: "--lora: '/none' is no file"},
		{args: []string{"--lora-scaled", file}, want: "is not FILE:SCALE"},
		{args: []string{"--chat-template-kwargs", "[1]"}, want: "'[1]' is no JSON object"},
		{args: []string{"--chat-template-file", "/none"}, want: "--chat-template-file: '/none'"},
		{args: []string{"-m", file, "--slot-save-path", "/none"}, want: "--slot-save-path: '/none' is no folder"},
		{args: []string{"-m", file}, env: "LLAMA_ARG_ROPE_FREQ_BASE=5", want: "the environment has LLAMA_ARG_ROPE_FREQ_BASE"},
		{args: []string{"-m", file, "--host", filepath.Join(filepath.Dir(file), "s.sock")}, want: "the model cannot be served"},
	} {
		c1 := exec.Command(server, c.args...)
		c1.Env = []string{"PATH=" + os.Getenv("PATH"), c.env}
		var said bytes.Buffer
		c1.Stderr = &said
		err := c1.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%q %s: %v, want exit status 1", c.args, c.env, err)
		}
		last := strings.TrimSpace(said.String())
		last = last[strings.LastIndexByte(last, '\n')+1:]
		if !strings.HasPrefix(last, "llama-server: ") || !strings.Contains(last, c.want) || len(last) > 300 {
			t.Errorf("%q %s: last said %q, want %q", c.args, c.env, last, c.want)
		}
	}
}

func TestTheLauncherIsPutBesideThePackageOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := portable.Put(dir); !errors.Is(err, portable.ErrMissing) || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, portable.Package), 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := portable.Put(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(path)
	if err != nil || first.Mode().Perm() != 0o755 {
		t.Fatalf("%v, %v", first, err)
	}
	if again, err := portable.Put(dir); err != nil || again != path {
		t.Errorf("%s, %v", again, err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(first, now) {
		t.Errorf("the same launcher was written again: %v", err)
	}
	if err := os.WriteFile(path, []byte("of an earlier version"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := portable.Put(dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, []byte("#!/usr/bin/env python3\n")) {
		t.Errorf("an old launcher stays: %q, %v", b, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
