package plane

import (
	"encoding/binary"
	"fmt"
	"io"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Op is what a client asks a TCPStore for: the numbers of torch.distributed (c10d).
type Op uint8

// The ones that NIXL's client uses.
const (
	OpValidate Op = 0  // a number that shows that the client speaks the protocol; no answer
	OpSet      Op = 1  // no answer
	OpGet      Op = 3  // the value
	OpCheck    Op = 5  // 0: there, 1: not
	OpDelete   Op = 8  // how many keys were there, an i64
	OpPing     Op = 13 // the number that came with it
)

var opNames = [...]string{
	"VALIDATE", "SET", "COMPARE_SET", "GET", "ADD", "CHECK", "WAIT", "GETNUMKEYS", "DELETE_KEY", "APPEND", "MULTI_GET", "MULTI_SET",
	"CANCEL_WAIT", "PING", "QUEUE_PUSH", "QUEUE_POP", "QUEUE_LEN", "LIST_KEYS",
}

// String is torch's name of it.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("request %d", uint8(o))
}

// magic is the number of VALIDATE.
const magic = 0x3C85F7CE

// The answers of CHECK.
const (
	Ready    = 0
	NotReady = 1
)

// Request is one of a client's. All numbers are of the byte order of the host.
type Request struct {
	Op    Op
	Key   string // of SET, GET, CHECK and DELETE
	Value []byte // of SET
	Nonce uint32 // of PING; clients put their process id there
}

// Append adds the request to b.
func (q Request) Append(b []byte) []byte {
	b = append(b, byte(q.Op))
	switch q.Op {
	case OpValidate:
		return binary.LittleEndian.AppendUint32(b, magic)
	case OpPing:
		return binary.LittleEndian.AppendUint32(b, q.Nonce)
	case OpCheck:
		b = binary.LittleEndian.AppendUint64(b, 1)
	}
	b = appendText(b, q.Key)
	if q.Op == OpSet {
		b = appendText(b, q.Value)
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(text))), text...)
}

// ReadRequest reads one. io.EOF: there was none. Requests have no length, so that one that
// is not known ends a connection. take is as ReadFrame's.
func ReadRequest(r io.Reader, take func(n int) error) (q Request, err error) {
	var op [1]byte
	if _, err := io.ReadFull(r, op[:]); err != nil {
		return q, err
	}
	q.Op = Op(op[0])
	return q, cutOff(q.Op.String(), q.read(r, take))
}

func (q *Request) read(r io.Reader, take func(n int) error) error {
	switch q.Op {
	case OpValidate, OpPing:
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return cutOff(q.Op.String(), err)
		}
		n := binary.LittleEndian.Uint32(b[:])
		if q.Op == OpPing {
			q.Nonce = n
		} else if n != magic {
			return fmt.Errorf("nixl: VALIDATE with %#x, want %#x: %w", n, magic, wire.CodeMagic)
		}
		return nil
	case OpCheck:
		n, err := readNumber(r)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("nixl: CHECK of %d keys, and NIXL asks for one: %w", n, wire.CodeUnsupported)
		}
	case OpSet, OpGet, OpDelete:
	default:
		return fmt.Errorf("nixl: %s, which NIXL's client does not use: %w", stranger.Text(q.Op.String()), wire.CodeUnsupported)
	}
	key, err := readText(r, MaxKey, nil)
	if err != nil {
		return err
	}
	q.Key = string(key)
	if q.Op == OpSet {
		q.Value, err = readText(r, MaxBlob, take)
	}
	return err
}

func readNumber(r io.Reader) (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func readText(r io.Reader, most int, take func(n int) error) ([]byte, error) {
	n, err := readNumber(r)
	if err != nil {
		return nil, err
	}
	if n > uint64(most) {
		return nil, fmt.Errorf("nixl: a text of %d bytes, limit %d: %w", n, most, wire.CodeLength)
	}
	return readBytes(r, int(n), take)
}
