package plane

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"meridian/adapters/nixl/control"
	"meridian/wire"
)

// MaxBlob bounds the metadata of an agent, in bytes, and MaxName its name.
const (
	MaxBlob = control.MaxMetadata
	MaxName = control.MaxName

	maxConns    = 64 // backends of an agent
	maxSections = 64 // lists of regions, one for a backend and a kind of memory
)

// Metadata is what an agent's blob says of who it is. The library reads the rest.
type Metadata struct {
	Agent string
	// Life is another one for each run of the agent: the hash of its name and of the
	// addresses of its backends.
	Life [sha256.Size]byte
	// Whole says that the blob has addresses: a partial one may have none.
	Whole bool
}

// blob is read field by field: a tag, a u64 of the length in the byte order of the host,
// the bytes and "|". The tag has no length, so the reader must know the order.
type blob struct {
	all, rest []byte
	err       error
}

func (b *blob) bad(what string) {
	if b.err == nil {
		b.err = fmt.Errorf("nixl: the agent's metadata: %s at byte %d of %d: %w", what, len(b.all)-len(b.rest), len(b.all), wire.CodeInvalid)
	}
}

// field takes the next field, whose length is want, or any with -1.
func (b *blob) field(tag string, want int, what string) []byte {
	after, found := bytes.CutPrefix(b.rest, []byte(tag))
	if b.err != nil || !found || len(after) < 8 {
		b.bad(what)
		return nil
	}
	n := binary.LittleEndian.Uint64(after)
	if after = after[8:]; n >= uint64(len(after)) || after[n] != '|' || want >= 0 && n != uint64(want) {
		b.bad(what)
		return nil
	}
	b.rest = after[n+1:]
	return after[:n]
}

// count takes a field that says how many follow.
func (b *blob) count(tag string, most uint64, what string) (n uint64) {
	if v := b.field(tag, 8, what); v != nil {
		n = binary.LittleEndian.Uint64(v)
	}
	if n > most {
		b.bad(what)
		return 0
	}
	return n
}

// ParseMetadata reads a blob. It begins with "nixlSerDes|"; Agent is the name, Conns the
// number of backends, t and c the name and the address of each; then come the regions of
// memory. What follows these is of a later release, and is left to the library.
func ParseMetadata(all []byte) (m Metadata, err error) {
	b := &blob{all: all, rest: all}
	rest, found := bytes.CutPrefix(all, []byte("nixlSerDes|"))
	if b.rest = rest; !found {
		b.bad("no nixlSerDes")
	}
	m.Agent = string(b.field("Agent", -1, "no Agent"))
	if err := CheckName(m.Agent); err != nil {
		b.bad(err.Error())
	}
	conns := b.count("Conns", maxConns, "no Conns")
	for range conns {
		b.field("t", -1, "no backend")
		b.field("c", -1, "no address of a backend")
	}
	who := all[:len(all)-len(b.rest)]
	if string(b.field("", -1, "no MemSection")) != "MemSection" {
		b.bad("no MemSection")
	}
	for range b.count("nixlSecElms", maxSections, "no nixlSecElms") {
		b.field("bknd", -1, "no backend of regions")
		if string(b.field("nixlDList", -1, "no list of regions")) != "nixlSDList" {
			b.bad("no nixlSDList")
		}
		b.field("t", 4, "no kind of memory")
		for range b.count("n", uint64(len(all)), "no number of regions") {
			if b.field("", -1, "no region"); b.err != nil {
				break
			}
		}
	}
	if b.err != nil {
		return Metadata{}, b.err
	}
	m.Life, m.Whole = sha256.Sum256(who), conns > 0
	return m, nil
}

// CheckName says why a text cannot be an agent's name here: it stands in keys, in frames
// and in logs. NIXL takes any.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("an agent's name has 1 to %d bytes, this %d: %w", MaxName, len(name), wire.CodeInvalid)
	}
	for _, c := range []byte(name) {
		if c < ' ' || c == 0x7f {
			return fmt.Errorf("an agent's name with a control character: %w", wire.CodeInvalid)
		}
	}
	return nil
}
