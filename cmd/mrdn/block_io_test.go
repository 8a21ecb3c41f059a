package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is no regular file is refused at once, by name, and so is one that is longer than a
// block; a descriptor that a shell has opened is read.
func TestAFileThatIsNoBlockIsRefused(t *testing.T) {
	s := newShell(t, nil)
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"block": 1024, "long": 1025, "huge": 1 << 34} { // sparse
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]struct {
		exit int
		text string
	}{
		"pipe":      {exitFailed, "pipe is a pipe, and no regular file"},
		".":         {exitFailed, ". is a folder, and no regular file"},
		"/dev/zero": {exitFailed, "/dev/zero is a device, and no regular file"},
		"none":      {exitFailed, "none: no such file"},
		"long":      {exitUsage, "long is longer than a block, which is 1 KiB: raise --block-bytes"},
		"huge":      {exitUsage, "huge is longer than a block, which is 1 KiB: raise --block-bytes"},
	} {
		got := s.run(t, "block", "put", name, "--block-bytes", "1KiB")
		expect(t, got, want.exit, "", want.text)
	}
	if len(s.engine.blocks) != 0 {
		t.Errorf("%d blocks were stored", len(s.engine.blocks))
	}
	expect(t, s.run(t, "block", "put", "block", "--block-bytes", "1KiB"), exitOK, "", "")
	if len(s.engine.blocks) != 1 {
		t.Errorf("%d blocks were stored, want 1", len(s.engine.blocks))
	}
}

// A file that grows, shrinks or is written over while it is read becomes no block.
func TestAFileThatChangesWhileItIsReadIsNoBlock(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, change := range map[string]func() error{
		"":                          func() error { return nil },
		"it had 6 bytes, and has 7": func() error { return os.WriteFile("f", []byte("longer!"), 0o600) },
		"it had 6 bytes, and has 2": func() error { return os.Truncate("f", 2) },
		"it had 6 bytes, and has 6": func() error { return os.Chtimes("f", time.Time{}, time.Unix(1000, 0)) }, // as a write does
	} {
		if err := os.WriteFile("f", []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := openBody("f", 1024)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if name == "" && (err != nil || string(b) != "before") || name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%q, %v; want %q", b, err, name)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}
