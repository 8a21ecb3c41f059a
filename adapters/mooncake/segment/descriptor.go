package segment

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Limits and values of the protocol.
const (
	MaxBytes = 1 << 20 // of a descriptor in JSON; engines drop what is longer
	TCP      = "tcp"   // the one protocol that this build speaks

	// ProtoAcked is the first version of the TCP protocol that acknowledges writes,
	// and answers a refusal.
	ProtoAcked = 2
)

// Descriptor is what a peer publishes about its segment.
type Descriptor struct {
	Name      string   // of the segment: HOST:PORT of the handshake, or any name of a metadata server
	Protocols []string // one; several of a build that has them side by side
	DataHost  string   // tcp_data_host: without brackets; "" where the peer does not say
	DataPort  uint16   // tcp_data_port; 0 where the peer does not say
	Proto     int      // tcp_proto_version, 1 where the peer does not say
	Timestamp string   // when it was made, in the peer's words
	Buffers   []Buffer // memory that may be read and written over TCP
}

// Buffer is a range of a peer's memory. Addresses are the peer's own.
type Buffer struct {
	Name      string // its place, in the peer's words; never empty
	Addr, Len uint64 // bytes
}

// Acked says that the peer acknowledges writes and answers refusals.
func (d *Descriptor) Acked() bool { return d.Proto >= ProtoAcked }

// DataAddr is the address of data connections. A data host in the descriptor wins;
// else it is host, which is that of the name the segment was opened by, or of the
// peer's entry on a metadata server. UNSUPPORTED: the peer does not speak TCP.
// INVALID: it does not say how.
func (d *Descriptor) DataAddr(host string) (string, error) {
	if !slices.Contains(d.Protocols, TCP) {
		return "", &ProtocolError{Have: d.Protocols}
	}
	if d.DataPort == 0 {
		return "", &FieldError{Field: "tcp_data_port", Value: "0", Want: "a port from 1 to 65535"}
	}
	if d.DataHost != "" {
		host = d.DataHost
	}
	if host == "" {
		return "", &FieldError{Field: "tcp_data_host", Value: `""`, Want: "a host, since the segment's name has none"}
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.DataPort))), nil
}

// Covers says whether n bytes at addr, one at least, lie in one buffer.
func (d *Descriptor) Covers(addr, n uint64) bool {
	return n > 0 && slices.ContainsFunc(d.Buffers, func(b Buffer) bool {
		return addr >= b.Addr && n <= b.Len && addr-b.Addr <= b.Len-n
	})
}

// FieldError is a field of a descriptor that cannot be used. It matches CodeInvalid.
type FieldError struct {
	Field string // with its index, where it is in a list
	Value string // as it was read, cut to a bound
	Want  string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("segment descriptor: %s is %s, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns CodeInvalid.
func (e *FieldError) Unwrap() error { return wire.CodeInvalid }

// ProtocolError is a segment that is not to be had over TCP. It matches
// CodeUnsupported.
type ProtocolError struct{ Have []string }

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("segment descriptor: protocol is %s, this build speaks %q only", stranger.Text(fmt.Sprintf("%q", e.Have)), TCP)
}

// Unwrap returns CodeUnsupported.
func (e *ProtocolError) Unwrap() error { return wire.CodeUnsupported }
