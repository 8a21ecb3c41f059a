package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"meridian/adapters/mooncake/internal/reach"
)

// askWait bounds how long an owner may take to answer. A PUT that waits for an answer
// comes from an engine that gives up after 3 s.
const askWait = time.Second

// Outcome is what became of the question whether an owner lives.
type Outcome uint8

// The outcomes.
const (
	Answers     Outcome = iota // it said something
	Silent                     // the connection stands, and nothing comes
	Refused                    // nobody listens at that port
	Unreachable                // no connection and no refusal; or the name is not known
	Outcomes
)

var outcomeNames = [Outcomes]string{"answers", "is silent", "refuses the connection", "cannot be reached"}

// String completes "the owner …".
func (o Outcome) String() string { return outcomeNames[o] }

// Gone says whether another one may take the entry of an owner at once.
func (o Outcome) Gone() bool { return o == Refused || o == Unreachable }

// Dialer connects to where a node says that it answers.
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

// DialAllowed connects to addresses that are allowed only, whatever a name resolves
// to: an entry must not make this host connect to hosts that are none of its business.
func DialAllowed(allowed func(netip.Addr) bool) Dialer {
	d := reach.Dialer(func(a netip.Addr) error {
		if !allowed(a) {
			return errNotAllowed
		}
		return nil
	})
	return func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
}

var errNotAllowed = errors.New("an address that is not allowed")

// probe is a handshake message of type 3 with an empty object: length, type, JSON.
var probe = append(binary.LittleEndian.AppendUint64(nil, 3), 3, '{', '}')

// Ask asks whether who is at addr lives. Whatever comes is an answer, the end of the
// connection too: engines before 0.3.10 do not know the message and close.
func Ask(ctx context.Context, dial Dialer, addr string) Outcome {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	c, err := dial(ctx, addr)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case err != nil:
		return Unreachable
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err = c.Write(probe); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return Silent
	}
	return Answers
}
