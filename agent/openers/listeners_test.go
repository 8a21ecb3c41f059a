package openers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/agent/config"
)

// Each table that can listen is seen beside each other one: the second would find the
// address in use, at the start.
func TestTwoTablesMayNotListenAtOneAddress(t *testing.T) {
	const at = "127.0.0.1:7400"
	tables := map[string]string{
		"link.listen":                  "[link]\ninsecure = true\nlisten = [\"tcp://127.0.0.1:7399\", \"tcp://" + at + "\"]\n",
		"admin.http":                   "[admin]\nhttp = \"" + at + "\"\n",
		"llama.listen":                 "[llama]\nmodel = \"m.gguf\"\nserver = \"llama-server\"\nlisten = \"" + at + "\"\n",
		"fabric.store.listen":          "[fabric.store]\nkind = \"mooncake\"\nlisten = \"" + at + "\"\ndata = \"127.0.0.1:7401\"\n",
		"fabric.bytes.data":            "[fabric.bytes]\nkind = \"mooncake\"\nlisten = \"127.0.0.1:7402\"\ndata = \"" + at + "\"\n",
		"fabric.names.metadata_listen": "[fabric.names]\nkind = \"mooncake\"\nlisten = \"127.0.0.1:7403\"\ndata = \"127.0.0.1:7404\"\nmetadata_listen = \"" + at + "\"\n",
		"fabric.between.data":          "[fabric.between]\nkind = \"mooncake-relay\"\ntarget = \"far=127.0.0.1:1\"\nlisten = \"127.0.0.1:7405\"\ndata = \"127.0.0.1:7390-7400\"\n",
		"fabric.agents.listen":         "[fabric.agents]\nkind = \"nixl\"\nlisten = \"" + at + "\"\n",
		"fabric.hub.listen":            "[fabric.hub]\nkind = \"nixl-hub\"\nlisten = \"" + at + "\"\n",
	}
	load := func(text string) error {
		path := filepath.Join(t.TempDir(), "meridian.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(config.Options{Path: path, Memory: func() config.Memory { return config.Memory{Available: 4 << 30} }})
		return err
	}
	for a, first := range tables {
		if err := load(first); err != nil {
			t.Errorf("%s alone: %v", a, err)
		}
		for b, second := range tables {
			if a == b {
				continue
			}
			err := load(first + second)
			if err == nil || !strings.Contains(err.Error(), "listens there too") || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
				t.Errorf("%s and %s: %v", a, b, err)
			}
		}
	}
}
