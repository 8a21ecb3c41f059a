package mooncake_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meridian/adapters/mooncake/internal/realstore"
	"meridian/internal/realpart"
	"meridian/internal/testbed"
)

// LMCache's connector keeps its chunks on a daemon that is the only storage node of a real
// master, with the chunks' own metadata and without; another process reads them.
func TestLMCacheKeepsItsChunksOnADaemon(t *testing.T) {
	for _, meta := range []string{"false", "true"} {
		t.Run("save_chunk_meta="+meta, func(t *testing.T) {
			keepsOnADaemon(t, "MERIDIAN_TEST_LMCACHE", "lmcache_backend.py", meta)
		})
	}
}

// The same of the Mooncake storage of SGLang's HiCache and its pages.
func TestHiCacheKeepsItsPagesOnADaemon(t *testing.T) {
	keepsOnADaemon(t, "MERIDIAN_TEST_SGLANG", "hicache_backend.py")
}

// keepsOnADaemon runs a program twice: it puts 20 parts, of 2 MiB each, and then reads them.
// Its packages have several GB, so a variable names a python3 that has them.
func keepsOnADaemon(t *testing.T, variable, program string, args ...string) {
	python := os.Getenv(variable)
	if python == "" {
		t.Skipf("SKIPPED: %s names no python3 that has the packages", variable)
	}
	const parts = 20
	master := realstore.StartMaster(t)
	d := start(t, "", fmt.Sprintf("store_node_bytes = \"64MiB\"\nstore_masters = %q", master.Address))
	testbed.Until(t, "the daemon lends its memory", func() bool {
		return strings.Contains(d.Page("/metrics"), `meridian_fabric_finding{fabric="mooncake",finding="store_node"} 0`)
	})
	for _, do := range []string{"put", "get"} {
		all := append([]string{filepath.Join("testdata", program), master.Address}, args...)
		cmd := exec.Command(python, append(all, do, fmt.Sprint(parts))...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+realpart.Mooncake(t))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), fmt.Sprintf("right %d\n", parts)) {
			t.Fatalf("%s: %v\n%s", do, err, out)
		}
	}
}
