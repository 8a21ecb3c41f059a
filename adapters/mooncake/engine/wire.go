package engine

import (
	"encoding/binary"
	"fmt"

	"meridian/wire"
)

// ProtoOurs is the version of the protocol that a Target speaks best.
const ProtoOurs = 2

const (
	headerLen = 24 // size, address, opcode, seven bytes that are not looked at
	statusLen = 8

	opRead  byte = 0
	opWrite byte = 1
	acked   byte = 0x80 // version 2: with a status

	statusMagic = 0x4D435456 // "MCTV", the upper half of a status

	statusOK       uint32 = 0
	statusRejected uint32 = 1
)

// header is a request.
type header struct {
	addr, size uint64
	write      bool
	acked      bool
}

func (h header) String() string {
	what := "read"
	if h.write {
		what = "write"
	}
	return fmt.Sprintf("%s of %d bytes at %#x", what, h.size, h.addr)
}

// check refuses ranges that no memory has.
func (h header) check() error {
	if h.size == 0 || h.addr+h.size-1 < h.addr {
		return fmt.Errorf("mooncake: %v, want a size from 1 to %d: %w", h, -h.addr, wire.CodeInvalid)
	}
	return nil
}

// put writes the header into b.
func (h header) put(b *[headerLen]byte) {
	*b = [headerLen]byte{}
	binary.LittleEndian.PutUint64(b[:], h.size)
	binary.LittleEndian.PutUint64(b[8:], h.addr)
	if h.write {
		b[16] = opWrite
	}
	if h.acked {
		b[16] |= acked
	}
}

// parseHeader reads a request. An unknown opcode is UNSUPPORTED, and the header's other
// fields are set; Mooncake's own engine serves it as a read.
func parseHeader(b *[headerLen]byte) (header, error) {
	op := b[16] &^ acked
	h := header{
		size: binary.LittleEndian.Uint64(b[:]), addr: binary.LittleEndian.Uint64(b[8:]),
		write: op == opWrite, acked: b[16]&acked != 0,
	}
	if op > opWrite {
		return h, fmt.Errorf("mooncake: opcode %#02x: %w", b[16], wire.CodeUnsupported)
	}
	return h, nil
}

func putStatus(b *[statusLen]byte, status uint32) {
	binary.LittleEndian.PutUint64(b[:], statusMagic<<32|uint64(status))
}

func parseStatus(b *[statusLen]byte) (uint32, error) {
	v := binary.LittleEndian.Uint64(b[:])
	if v>>32 != statusMagic {
		return 0, fmt.Errorf("mooncake: status frame % x, want % x in its last four bytes: %w", b[:], "VTCM", wire.CodeState)
	}
	return uint32(v), nil
}
