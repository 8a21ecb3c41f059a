package demo

import (
	"encoding/binary"
	"hash/fnv"

	"meridian/bench/trace"
	"meridian/wire"
)

// Shares of the synthetic part: the trace has prompts, and says nothing of
// reasoning.
const (
	reasonShare  = 0.4 // of the requests think
	tagInPrompt  = 0.5 // of those have the start tag in the prompt, as many chat templates do
	resumeShare  = 0.1 // of those are preempted after thinking and read their think blocks again
	minThink     = 3   // blocks
	maxThink     = 8   // blocks
	tokensABlock = 16  // tokens that the stand-in sends for a block of thinking
)

// Token ids of Qwen3, which the daemon's built-in table knows.
const (
	modelName  = "qwen3-8b"
	thinkStart = 151667
	thinkEnd   = 151668
	endOfText  = 151645
	anyToken   = 1000
)

// job is one request: what both engines do for it follows from the trace, the
// seed and its number alone.
type job struct {
	n           int
	prompt      []wire.Key
	think       []wire.Key // empty: it does not reason
	tagInPrompt bool
	resumes     bool
}

// manifest is what both engines open.
func manifest(blockBytes uint32) wire.Manifest {
	return wire.Manifest{
		Tenant: "demo", Model: modelName, Revision: "demo", Role: "kv", Dtype: "bf16", Layout: "NHD",
		BlockTokens: trace.BlockTokens, BlockBytes: blockBytes, KVHeads: 8, HeadSize: 128,
		LayerLast: 35, TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: "fast25-trace-id",
	}
}

// jobs derives all requests of a run.
func jobs(ns wire.Namespace, seed uint64, reqs []trace.Request) []job {
	out := make([]job, len(reqs))
	for i, r := range reqs {
		out[i] = job{n: i, prompt: make([]wire.Key, len(r.Blocks))}
		for k, id := range r.Blocks {
			out[i].prompt[k] = keyOf(ns, 'p', uint64(id), 0)
		}
		if chance(seed, i, 'r') >= reasonShare {
			continue
		}
		blocks := minThink + int(chance(seed, i, 'n')*(maxThink-minThink+1))
		for k := range blocks {
			out[i].think = append(out[i].think, keyOf(ns, 't', uint64(i), uint64(k)))
		}
		out[i].tagInPrompt = chance(seed, i, 't') < tagInPrompt
		out[i].resumes = chance(seed, i, 's') < resumeShare
	}
	return out
}

// keyOf is the engines' own block hash, put through the namespace.
func keyOf(ns wire.Namespace, kind byte, a, b uint64) wire.Key {
	h := append(make([]byte, 0, 17), kind)
	h = binary.LittleEndian.AppendUint64(h, a)
	return wire.KeyOf(ns, binary.LittleEndian.AppendUint64(h, b))
}

// chance is a number in [0, 1) that depends on its arguments alone.
func chance(seed uint64, n int, what byte) float64 {
	h := fnv.New64a()
	b := binary.LittleEndian.AppendUint64(nil, seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	_, _ = h.Write(append(b, what))
	x := h.Sum64()
	// FNV mixes its last bytes poorly: the finaliser of MurmurHash3 does it.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
