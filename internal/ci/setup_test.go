package ci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// setup runs setup.sh on a host that is made up of programs that do nothing: of a user
// with a number, with these programs besides what the script itself needs.
func setup(t *testing.T, uid string, programs ...string) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("#!/bin/bash\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	write("internal/ci/setup.sh", string(script))
	write("internal/ci/etcd.sh", "exit 0")
	write("internal/ci/python.sh", "exit 0")
	write("bin/id", "echo "+uid)
	write("bin/ldconfig", "echo libibverbs.so.1 libnuma.so.1 libcurl.so.4 libgomp.so.1")
	for _, p := range append(programs, "gcc", "python3", "redis-server", "etcd") {
		write("bin/"+p, "exit 0")
	}
	dirname, err := exec.LookPath("dirname")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dirname, filepath.Join(root, "bin", "dirname")); err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, filepath.Join(root, "internal/ci/setup.sh"))
	cmd.Env = []string{"PATH=" + filepath.Join(root, "bin")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// What is downloaded is announced before, whoever runs it.
func TestTheDownloadOfEtcdIsAnnounced(t *testing.T) {
	const want = "setup: will download Debian's etcd-server into .tools/etcd"
	for _, uid := range []string{"0", "1000"} {
		if out := setup(t, uid, "apt-get", "dpkg-deb"); !strings.Contains(out, want) {
			t.Errorf("uid %s: %q", uid, out)
		}
	}
	if out := setup(t, "1000"); strings.Contains(out, want) {
		t.Errorf("a host without apt-get: %q", out)
	}
}
