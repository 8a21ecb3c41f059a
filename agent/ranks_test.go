package agent

import (
	"errors"
	"fmt"
	"testing"

	"meridian/agent/client"
	"meridian/wire"
)

// ranksOf are the manifests of one engine's workers: tensor parallel times pipeline
// parallel. All hold 16 layers together, and a worker its share of the heads.
func ranksOf(tp, pp uint32) (all []wire.Manifest) {
	for p := range pp {
		for r := range tp {
			m := testManifest("acme")
			m.TPRank, m.TPSize, m.PPRank, m.PPSize = r, tp, p, pp
			m.KVHeads, m.BlockBytes = m.KVHeads/tp, 64<<10/tp
			m.LayerFirst, m.LayerLast = p*16/pp, (p+1)*16/pp-1
			all = append(all, m)
		}
	}
	return all
}

// The ranks of one model connect to one daemon, and to the daemon that decodes: what
// a rank has put comes to the same rank, and no rank sees another's blocks.
func TestRanksOfOneModelStandSideBySide(t *testing.T) {
	for _, c := range []struct{ tp, pp uint32 }{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 2}, {4, 2}, {8, 2}} {
		t.Run(fmt.Sprintf("tp %d pp %d", c.tp, c.pp), func(t *testing.T) {
			// All ranks are one process here: it may have all of the rings, and 16 engines.
			prefill, decode := pairWith(t, "[kv_memory]\ncapacity_bytes = \"64MiB\"\n[quota]\nengine_staging_share = 1.0\nprocess_engines = 16\n")
			manifests := ranksOf(c.tp, c.pp)
			var have, want []*testEngine
			for _, m := range manifests {
				have = append(have, prefill.engineOf(t, m))
				want = append(want, decode.engineOf(t, m))
			}
			for i, e := range have {
				e.put(t, e.keys("prompt", 3), int(manifests[i].BlockBytes), wire.OutputCritical, 0)
			}
			for i, e := range want {
				e.mustFetch(t, e.keys("prompt", 3))
				if other := want[(i+1)%len(want)]; other != e {
					for j, err := range e.fetch(t, other.keys("prompt", 3)) {
						if !errors.Is(err, wire.CodeAbsent) {
							t.Errorf("rank %d: block %d of another rank: %v, want ABSENT", i, j, err)
						}
					}
				}
			}
			have[0].oneGeometry(t, manifests)
		})
	}
}

// The groups of a hybrid model have blocks of their own, which keep other tokens.
func TestCacheGroupsOfAHybridModelStandSideBySide(t *testing.T) {
	prefill, decode := pair(t)
	full := testManifest("acme")
	full.KVGroupKind, full.BlockBytes = "full", 64<<10
	sliding := full
	sliding.KVGroup, sliding.KVGroupKind, sliding.KVWindow, sliding.BlockTokens, sliding.BlockBytes = 1, "sliding", 4096, 64, 32<<10
	state := full
	state.KVGroup, state.KVGroupKind, state.BlockBytes, state.ScaleBytes, state.ScaleDtype = 2, "mamba", 16<<10, 512, "float32"
	groups := []wire.Manifest{full, sliding, state}
	var e *testEngine
	for _, m := range groups {
		e = prefill.engineOf(t, m)
		e.put(t, e.keys("prompt", 2), int(m.BlockBytes), wire.OutputCritical, 0)
		w := decode.engineOf(t, m)
		w.mustFetch(t, w.keys("prompt", 2))
	}
	e.oneGeometry(t, groups)
}

// oneGeometry opens each manifest with another geometry: it is refused, and the
// refusal names the field, since an engine has the right one of the same part open.
func (e *testEngine) oneGeometry(t *testing.T, manifests []wire.Manifest) {
	t.Helper()
	for i, m := range manifests {
		for field, change := range map[string]func(*wire.Manifest){
			"block_tokens":  func(m *wire.Manifest) { m.BlockTokens *= 2 },
			"tp_size":       func(m *wire.Manifest) { m.TPSize++ },
			"kv_group_kind": func(m *wire.Manifest) { m.KVGroupKind += "?" },
			"scale_dtype":   func(m *wire.Manifest) { m.ScaleDtype = "float16" },
		} {
			wrong := m
			change(&wrong)
			_, err := e.Open(t.Context(), wrong)
			var open *client.OpenError
			if !errors.As(err, &open) || open.Code != wire.CodeGeometry || open.Field != field {
				t.Errorf("manifest %d with another %s: %v, want GEOMETRY", i, field, err)
			}
		}
	}
}
