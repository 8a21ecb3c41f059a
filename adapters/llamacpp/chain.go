package llamacpp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/blake3"

	"meridian/wire"
)

// HashScheme names how Chain makes its hashes, as a manifest has it.
const HashScheme = "meridian-llamacpp-v1"

// chainLabel keeps chain hashes apart from other uses of BLAKE3.
const chainLabel = HashScheme + "\n"

// Chain returns the hash of each block of tokens, the short one at the end
// included. A hash covers all blocks before its own. blockTokens is at least 1.
func Chain(tokens []int32, blockTokens int) [][32]byte {
	if len(tokens) == 0 {
		return nil
	}
	out := make([][32]byte, 0, (len(tokens)-1)/blockTokens+1)
	var parent [32]byte
	b := make([]byte, 0, len(chainLabel)+len(parent)+4+4*min(blockTokens, len(tokens)))
	for len(tokens) > 0 {
		block := tokens[:min(blockTokens, len(tokens))]
		tokens = tokens[len(block):]
		b = append(append(b[:0], chainLabel...), parent[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(block)))
		for _, t := range block {
			b = binary.LittleEndian.AppendUint32(b, uint32(t))
		}
		parent = blake3.Sum256(b)
		out = append(out, parent)
	}
	return out
}

// Model is what a manifest says of the model and of the server that runs it.
type Model struct {
	Name string   // as it is served
	Hash [32]byte // of its bytes
	// Build is the server's, and what else of it may change KV: another one may compute
	// other bits or write another format.
	Build string
}

// Manifest describes the blocks of a server: one that differs in the model's
// bytes, the build, the number of streams, the types of the cache, flash attention
// or the size of a block shares no key with it. Its Check refuses what does not fit,
// such as the layout of a model that has ever other layers. Blocks of 4 GiB and more,
// which no manifest can tell, are said to have one byte less.
func Manifest(tenant string, m Model, g Geometry, blockTokens int) wire.Manifest {
	return wire.Manifest{
		Tenant: tenant, Model: m.Name, Revision: fmt.Sprintf("%x llama.cpp %s", m.Hash, m.Build), Role: "kv",
		Dtype: g.dtype(), Layout: g.layout(),
		BlockTokens: uint32(blockTokens), BlockBytes: uint32(min(g.BlockBytes(blockTokens), math.MaxUint32)),
		LayerFirst: 0, LayerLast: uint32(len(g.Layers) - 1),
		TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: HashScheme,
	}
}
