package llamacpp

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/zeebo/blake3"

	"meridian/wire"
)

// HashScheme names how Chain makes its hashes, as a manifest has it.
const HashScheme = "meridian-llamacpp-v1"

// chainLabel keeps chain hashes apart from other uses of BLAKE3.
const chainLabel = HashScheme + "\n"

// Chain returns the hash of each block of tokens, the short one at the end
// included. A hash covers all blocks before its own.
func Chain(tokens []int32, blockTokens int) [][32]byte {
	out := make([][32]byte, 0, (len(tokens)+blockTokens-1)/blockTokens)
	var parent [32]byte
	b := make([]byte, 0, len(chainLabel)+32+4+4*blockTokens)
	for at := 0; at < len(tokens); at += blockTokens {
		block := tokens[at:min(len(tokens), at+blockTokens)]
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

// HashModel is BLAKE3-256 over a model's file.
func HashModel(path string) (sum [32]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer func() { _ = f.Close() }()
	h := blake3.New()
	if _, err := io.CopyBuffer(onlyWriter{h}, onlyReader{f}, make([]byte, 1<<20)); err != nil {
		return sum, err
	}
	copy(sum[:], h.Sum(nil))
	return sum, nil
}

// CopyBuffer uses its buffer only between these.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// Model is what a manifest says of the model and of the server that runs it.
type Model struct {
	Name string   // as it is served
	Hash [32]byte // of its file
	// Build is the server's: another one may compute other bits or write another
	// format.
	Build string
}

// Manifest describes the blocks of a server: one that differs in the model's
// bytes, the build, the number of streams, the types of the cache, flash attention
// or the size of a block shares no key with it.
func Manifest(tenant string, m Model, g Geometry, blockTokens int) wire.Manifest {
	return wire.Manifest{
		Tenant: tenant, Model: m.Name, Revision: fmt.Sprintf("%x llama.cpp %s", m.Hash[:16], m.Build), Role: "kv",
		Dtype: g.dtype(), Layout: g.layout(),
		BlockTokens: uint32(blockTokens), BlockBytes: uint32(g.BlockBytes(blockTokens)),
		LayerFirst: 0, LayerLast: uint32(len(g.Layers) - 1),
		TPSize: 1, PPSize: 1, DCPSize: 1, HashScheme: HashScheme,
	}
}
