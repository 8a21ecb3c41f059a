package nixl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/wire"
)

const (
	// exchangeTime bounds a connection, and each question to a listener and its answer. A
	// listener is one thread, which looks every 100 ms.
	exchangeTime = 5 * time.Second
	load         = "NIXLCOMM:LOAD"
	send         = "NIXLCOMM:SEND"
	maxFrame     = control.MaxMetadata + len(load)
)

// listener is a connection to the listener of a NIXL agent, which tells its metadata and
// takes ours. While it stands the agent lives.
type listener struct {
	c net.Conn
	r *bufio.Reader
}

func dialListener(ctx context.Context, addr string) (*listener, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	var d net.Dialer
	d.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
	c, err := d.DialContext(ctx, "tcp4", addr) // NIXL listens at IPv4 only
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	}
	return &listener{c, bufio.NewReader(c)}, nil
}

func (l *listener) close() { _ = l.c.Close() }

// write sends a frame: a u64 of its length, and the bytes.
func (l *listener) write(b []byte) error {
	if err := l.c.SetDeadline(time.Now().Add(exchangeTime)); err != nil {
		return err
	}
	_, err := l.c.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...))
	return err
}

// metadata asks for the agent's.
func (l *listener) metadata() ([]byte, error) {
	if err := l.write([]byte(send)); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
	}
	var head [8]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: the listener did not answer: %w", wire.CodeUnreachable, err)
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > uint64(maxFrame) || n < uint64(len(load)) {
		return nil, fmt.Errorf("nixl: the listener answered %d bytes, want %d to %d: %w", n, len(load), maxFrame, wire.CodeInvalid)
	}
	var b bytes.Buffer // grows with what comes, not with what was said
	if _, err := io.CopyN(&b, l.r, int64(n)); err != nil {
		return nil, fmt.Errorf("%w: the listener's answer was cut: %w", wire.CodeUnreachable, err)
	}
	blob, ok := bytes.CutPrefix(b.Bytes(), []byte(load))
	if !ok {
		return nil, fmt.Errorf("nixl: the listener answered no metadata: %w", wire.CodeInvalid)
	}
	return blob, nil
}

// give hands ours over.
func (l *listener) give(blob []byte) error {
	return l.write(append([]byte(load), blob...))
}
