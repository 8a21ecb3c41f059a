package engine

import (
	"errors"
	"net"
	"time"

	"meridian/internal/door"
)

// Request is the header of a read or write, for one who passes requests on and has none
// of the memory.
type Request struct {
	Addr, Size uint64
	Write      bool
	Acked      bool // version 2: with a status
}

// RequestLen is the length of a request's header.
const RequestLen = headerLen

// StatusLen is the length of a status.
const StatusLen = statusLen

// ErrEnded is a connection that its peer has ended between two requests.
var ErrEnded = errEnded

func (r Request) header() header { return header{r.Addr, r.Size, r.Write, r.Acked} }

func (r Request) String() string { return r.header().String() }

// Check refuses ranges that no memory has.
func (r Request) Check() error { return r.header().check() }

// Append adds the header's bytes to b.
func (r Request) Append(b []byte) []byte {
	var head [headerLen]byte
	r.header().put(&head)
	return append(b, head[:]...)
}

// ReadRequest waits for a request for as long as it takes, and then HeaderTime for its
// rest. An unknown opcode is an error that comes with the header's other fields; with every other
// error the Request is zero.
func ReadRequest(c net.Conn) (Request, error) {
	h, err := readHeader(c)
	return Request{h.addr, h.size, h.write, h.acked}, err
}

// AppendStatus adds a status that accepts a request.
func AppendStatus(b []byte) []byte {
	var s [statusLen]byte
	putStatus(&s, statusOK)
	return append(b, s[:]...)
}

// ReadStatus waits for a status. ok: the request was accepted, or its bytes are in place.
func ReadStatus(c net.Conn, within time.Duration) (ok bool, err error) {
	l := &lane{Conn: c}
	err = l.status(within)
	if errors.Is(err, errRejected) {
		return false, nil
	}
	return err == nil, err
}

// Refuse answers a request that is not served, so that the answer survives what the
// source still sends. The connection is of no use afterwards.
func Refuse(c *door.Conn, r Request) { refuse(c, r.header()) }

// Spoke says that bytes have arrived that nobody has read.
func Spoke(c net.Conn) bool {
	var b [1]byte
	n, _ := (&lane{Conn: c}).peek(b[:])
	return n > 0
}

// Alive says that a connection on which nothing is under way can have a request.
func Alive(c net.Conn) bool { return (&lane{Conn: c}).alive() }
