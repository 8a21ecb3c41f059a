package config_test

import (
	"strings"
	"testing"

	"meridian/agent/config"
	"meridian/wire"
)

// What a manifest can say, [[namespace]] can say too.
func TestANamespaceHasEveryKeyOfAManifest(t *testing.T) {
	all := wire.Manifest{
		Tenant: "a", Model: "m", Revision: "r", Role: "kv", Dtype: "bf16", Layout: "nhd", BlockTokens: 16, BlockBytes: 4096, KVHeads: 8, HeadSize: 64,
		LayerFirst: 1, LayerLast: 3, TPRank: 1, TPSize: 2, PPRank: 1, PPSize: 3, DCPRank: 3, DCPSize: 4, HashScheme: "h",
		KVGroup: 1, KVGroupKind: "sliding", KVWindow: 128, ScaleBytes: 64, ScaleDtype: "fp32",
	}
	text := "[security]\ntenants = [\"a\"]\n[kv_memory]\ncapacity_bytes = \"1MiB\"\n[[namespace]]\n"
	for _, line := range strings.Split(strings.TrimSuffix(string(all.Append(nil)), "\n"), "\n") {
		key, value, _ := strings.Cut(line, "=")
		if strings.Trim(value, "0123456789") != "" {
			value = `"` + value + `"`
		}
		text += key + " = " + value + "\n"
	}
	c := mustLoad(t, text)
	if len(c.Namespaces) != 1 || c.Namespaces[0] != all {
		t.Errorf("%+v", c.Namespaces)
	}
	for _, m := range []wire.Manifest{all, c.Namespaces[0]} {
		m.KVGroup = 0
		if m.SamePart(all) {
			t.Error("another cache group is the same part")
		}
	}
	if changes := config.Changes(c, mustLoad(t, strings.Replace(text, "kv_window = 128", "kv_window = 256", 1))); len(changes) != 2 || !changes[0].Live || !changes[1].Live {
		t.Errorf("another window is one namespace less and another one more: %v", changes)
	}
}
