package nixl

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"meridian/internal/realpart"
	"meridian/internal/testbed"
)

// builtWith is a helper that was built with CGO on or off.
func builtWith(t *testing.T, cgo string) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil && cgo == "1" {
		realpart.Missing(t, "a C compiler builds the helper with CGO (Debian: gcc libc6-dev)")
	}
	path := filepath.Join(t.TempDir(), program)
	cmd := exec.Command("go", "build", "-o", path, "meridian/cmd/meridian-ffi")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// The helper with CGO asks the driver, and says what is missing where there is none; the
// one without says that it cannot ask.
func TestAHelperIsAskedForTheGPUs(t *testing.T) {
	for cgo, want := range map[string]string{"0": "not built in", "1": "libnvidia-ml.so.1"} {
		t.Run("CGO_ENABLED="+cgo, func(t *testing.T) {
			driver, list, err := GPUs(t.Context(), HelperConfig{Path: builtWith(t, cgo), Log: testLog(t)})
			if cgo == "1" && err == nil && driver != "" && len(list) > 0 {
				t.Logf("driver %s: %+v", driver, list)
				return
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %+v, %v; want %q", driver, list, err, want)
			}
		})
	}
}

// A helper that never answers, as one whose driver hangs, is not waited for beyond the
// caller's time, and does not stay.
func TestADriverThatHangsIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path, pidFile := filepath.Join(dir, "hangs"), filepath.Join(dir, "pid")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho $$ >"+pidFile+".new; mv "+pidFile+".new "+pidFile+"\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := GPUs(ctx, HelperConfig{Path: path, Log: testLog(t)})
		ended <- err
	}()
	var pid int
	testbed.Until(t, "the helper runs", func() bool {
		b, err := os.ReadFile(pidFile)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testbed.Until(t, "the helper is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func TestTheDevicesAreChosenAtEachStart(t *testing.T) {
	c := fakeConfig(t)
	c.Choose = func(context.Context) (string, error) { return "", errors.New("no port is active") }
	if _, err := startProcess(t.Context(), &c, "house", func(string, []byte) {}); err == nil || !strings.Contains(err.Error(), "no port is active") {
		t.Error(err)
	}
	c.Choose = func(context.Context) (string, error) { return "mlx5_0:1", nil }
	p, err := startProcess(t.Context(), &c, "house", func(string, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer p.end(context.Canceled)
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid()), "environ"))
	if err != nil || !strings.Contains(string(env), "UCX_NET_DEVICES=mlx5_0:1\x00") {
		t.Errorf("%q, %v", env, err)
	}
	if c.Devices != "lo" {
		t.Error("the choice changed the configuration")
	}
}
