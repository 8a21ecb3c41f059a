package nixl

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"meridian/adapters/nixl/control"
	"meridian/wire"
)

// maxConns bounds the backends of an agent.
const maxConns = 64

// metadata is what an agent's blob says of who it is. The library reads the rest.
type metadata struct {
	agent string
	// life is another one for each run of the agent: the hash of its name and of the
	// addresses of its backends.
	life [32]byte
}

// parseMetadata reads the begin of a blob: "nixlSerDes|", then fields, each a tag, a u64
// of its length in the byte order of its host, the bytes and "|". Agent is the name, Conns
// the number of backends, t and c the name and the address of each.
func parseMetadata(b []byte) (m metadata, err error) {
	rest := b
	bad := func(what string) (metadata, error) {
		return metadata{}, fmt.Errorf("nixl: the agent's metadata: %s at byte %d of %d: %w", what, len(b)-len(rest), len(b), wire.CodeInvalid)
	}
	field := func(tag string) (value []byte, ok bool) {
		after, found := bytes.CutPrefix(rest, []byte(tag))
		if !found || len(after) < 8 {
			return nil, false
		}
		n := binary.LittleEndian.Uint64(after)
		if after = after[8:]; n >= uint64(len(after)) || after[n] != '|' {
			return nil, false
		}
		rest = after[n+1:]
		return after[:n], true
	}
	rest, found := bytes.CutPrefix(b, []byte("nixlSerDes|"))
	if !found {
		return bad("no nixlSerDes")
	}
	name, ok := field("Agent")
	if !ok || len(name) == 0 || len(name) > control.MaxName || bytes.IndexByte(name, 0) >= 0 {
		return bad("no Agent with a name")
	}
	n, ok := field("Conns")
	if !ok || len(n) != 8 || binary.LittleEndian.Uint64(n) > maxConns {
		return bad("no Conns")
	}
	for range binary.LittleEndian.Uint64(n) {
		if _, ok := field("t"); !ok {
			return bad("no backend")
		}
		if _, ok := field("c"); !ok {
			return bad("no address of a backend")
		}
	}
	return metadata{agent: string(name), life: sha256.Sum256(b[:len(b)-len(rest)])}, nil
}
