package rpc

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
)

// Sizes and the fixed bytes of coro_rpc, version 0.
const (
	magic         = 0x15
	version       = 0
	requestHeader = 20
	answerHeader  = 16
)

// request is the header in front of a call's arguments.
type request struct {
	seq      uint32
	function uint32
	body     uint32
}

// append writes magic, version, serialization and message type, both 0, and four
// little-endian numbers, the last of which is the length of an attachment.
func (r request) append(b []byte) []byte {
	b = append(b, magic, version, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, r.seq)
	b = binary.LittleEndian.AppendUint32(b, r.function)
	b = binary.LittleEndian.AppendUint32(b, r.body)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// answer is the header in front of an answer.
type answer struct {
	code       uint8
	seq        uint32
	body       uint32
	attachment uint32
}

func parseAnswer(b [answerHeader]byte) (answer, error) {
	if b[0] != magic {
		return answer{}, fmt.Errorf("the answer begins with %#02x, want %#02x: the other side does not speak coro_rpc", b[0], magic)
	}
	if b[1] != version {
		return answer{}, fmt.Errorf("the answer is of version %d of coro_rpc, known is %d", b[1], version)
	}
	return answer{
		code: b[2], seq: binary.LittleEndian.Uint32(b[4:]),
		body: binary.LittleEndian.Uint32(b[8:]), attachment: binary.LittleEndian.Uint32(b[12:]),
	}, nil
}

// ID is the id of a function, by its full C++ name: the first four bytes of the
// name's MD5, big-endian.
func ID(name string) uint32 {
	sum := md5.Sum([]byte(name))
	return binary.BigEndian.Uint32(sum[:])
}
