// Package realpart is for tests of what is installed and not built here: python3,
// its packages, llama-server with a model. Under CI (the variable CI is set) a part
// that is missing is a failure; elsewhere the test is skipped and says what
// installs it. It imports "testing" and is for test binaries only.
package realpart

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Missing ends a test that cannot do without a part; how says what is missing and
// what installs it.
func Missing(t testing.TB, how string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(how + " (CI is set: it is a part of what is tested)")
	}
	t.Skip("SKIPPED: " + how)
}

// Need ends a test where err is not nil: as Missing where it matches missing, as a
// failure otherwise.
func Need(t testing.TB, err, missing error, how string) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, missing):
		Missing(t, err.Error()+"; "+how)
	default:
		t.Fatal(err)
	}
}

// Python is the path of python3.
func Python(t testing.TB) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	Need(t, err, exec.ErrNotFound, "make setup installs it")
	return python
}

// Packages is the folder of the Python packages, and what comes with them, that
// internal/ci/python.sh installs under a name.
func Packages(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(Root(t), ".tools", "py", name)
	_, err := os.Stat(filepath.Join(dir, ".installed"))
	Need(t, err, os.ErrNotExist, "internal/ci/python.sh "+name+" installs it")
	return dir
}

// MooncakeVariable names a folder with another release of Mooncake's wheel, which tests
// then use; internal/ci/mooncake-versions.sh sets it.
const MooncakeVariable = "MERIDIAN_TEST_MOONCAKE"

// Mooncake is the folder of the Python package mooncake.
func Mooncake(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(MooncakeVariable); dir != "" {
		return dir
	}
	return Packages(t, "peers")
}

// MooncakeMaster is mooncake_master with its RPC and its pages at addresses of this host.
// Releases before 0.3.12 have the pages at every address.
func MooncakeMaster(t testing.TB, at, pages string, flags ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(Mooncake(t), "mooncake", "mooncake_master")
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(at)
	args := []string{"--rpc_address=" + host, "--rpc_port=" + port}
	host, port, _ = net.SplitHostPort(pages)
	if args = append(args, "--metrics_port="+port); bytes.Contains(program, []byte("metrics_host")) {
		args = append(args, "--metrics_host="+host)
	}
	return exec.Command(path, append(append(args, "--rpc_thread_num=2", "--logtostderr=1"), flags...)...)
}

// Etcd is the path of an etcd server.
func Etcd(t testing.TB) string {
	t.Helper()
	path := filepath.Join(Root(t), ".tools", "etcd", "usr", "bin", "etcd")
	_, err := os.Stat(path)
	Need(t, err, os.ErrNotExist, "internal/ci/etcd.sh installs it")
	return path
}

// TransferBench is Mooncake's own benchmark of its transfer engine, over TCP on this
// host and without a metadata server; it logs to its standard error.
func TransferBench(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(Mooncake(t), "mooncake")
	cmd := exec.Command(filepath.Join(dir, "transfer_engine_bench"), append([]string{
		"--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--protocol=tcp", "--logtostderr",
	}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Root is the module's folder.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
