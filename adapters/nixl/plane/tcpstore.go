package plane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"meridian/wire"
)

// callTime bounds a call to a TCPStore, the connection included, as NIXL's client does.
const callTime = 5 * time.Second

// Alive is how connections are looked after that say by their end that somebody is gone.
var Alive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// TCPStore is a client of a TCPStore: of a hub of this program, or of torch. Its
// connection stays open, since a hub keeps what came by it for so long only. Calls take
// turns.
type TCPStore struct {
	addr string
	turn chan struct{} // has one value while nobody calls

	mu     sync.Mutex
	conn   net.Conn
	closed bool
	mine   string // the agent that was published last, and is there still as far as we know
	life   uint64
}

// NewTCPStore makes a client of the store at HOST:PORT. It connects when it is used.
func NewTCPStore(addr string) *TCPStore {
	s := &TCPStore{addr: addr, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// String implements Store.
func (s *TCPStore) String() string { return "tcpstore://" + s.addr }

// Close implements Store.
func (s *TCPStore) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop()
	return nil
}

// Life implements Mortal. It is looked at with each connection, before anything is put back.
func (s *TCPStore) Life() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

func (s *TCPStore) own(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mine = agent
}

func (s *TCPStore) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// call makes requests on the connection, and reads their answers. One that fails is closed,
// since nobody knows what comes next on it.
func (s *TCPStore) call(ctx context.Context, f func(rw io.ReadWriter) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%v: %w: %w", s, wire.CodeUnreachable, ctx.Err())
	}
	c, err := s.connect(ctx)
	if err == nil {
		defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
		err = f(struct {
			io.Reader
			io.Writer
		}{bufio.NewReader(c), c})
		if err == nil && ctx.Err() != nil {
			err = ctx.Err() // the deadline may be set still
		}
	}
	if err != nil {
		s.drop()
		if c := wire.CodeOf(err); c != wire.CodeInvalid && c != wire.CodeLength {
			err = fmt.Errorf("%w: %w", wire.CodeUnreachable, err)
		}
		return fmt.Errorf("%v: %w", s, err)
	}
	return nil
}

// connect is the connection, made and greeted if need be.
func (s *TCPStore) connect(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	c, closed, mine := s.conn, s.closed, s.mine
	s.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if c != nil {
		return c, nil
	}
	d := net.Dialer{KeepAliveConfig: Alive}
	c, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	nonce := uint32(os.Getpid())
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	_, err = c.Write(Request{Op: OpPing, Nonce: nonce}.Append(Request{Op: OpValidate}.Append(nil)))
	var echo [4]byte
	if err == nil {
		_, err = io.ReadFull(c, echo[:])
	}
	if got := binary.LittleEndian.Uint32(echo[:]); err == nil && got != nonce {
		err = fmt.Errorf("it answers PING with %d, want %d: %w", got, nonce, wire.CodeInvalid)
	}
	lost := false
	if err == nil && mine != "" {
		there, checked := check(c, Key{Whole, mine}.String())
		lost, err = !there, checked
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		err = net.ErrClosed
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if s.conn = c; lost {
		s.mine = ""
		s.life++
	}
	return c, nil
}

// check asks whether a key is there.
func check(rw io.ReadWriter, key string) (bool, error) {
	if _, err := rw.Write(Request{Op: OpCheck, Key: key}.Append(nil)); err != nil {
		return false, err
	}
	var there [1]byte
	if _, err := io.ReadFull(rw, there[:]); err != nil {
		return false, err
	}
	switch there[0] {
	case Ready:
		return true, nil
	case NotReady:
		return false, nil
	}
	return false, fmt.Errorf("it answers CHECK with %d: %w", there[0], wire.CodeInvalid)
}

// Get implements Store.
func (s *TCPStore) Get(ctx context.Context, agent string) (b []byte, err error) {
	key := Key{Whole, agent}.String()
	absent := false
	err = s.call(ctx, func(rw io.ReadWriter) error {
		if there, err := check(rw, key); err != nil || !there {
			absent = !there
			return err
		}
		if _, err := rw.Write(Request{Op: OpGet, Key: key}.Append(nil)); err != nil {
			return err
		}
		b, err = readText(rw, MaxBlob, nil)
		absent = len(b) == 0 // it was deleted meanwhile
		return err
	})
	if err == nil && absent {
		return nil, fmt.Errorf("%v: %w", s, ErrAbsent)
	}
	return b, err
}

// Publish implements Store. A SET has no answer, so it is looked at.
func (s *TCPStore) Publish(ctx context.Context, agent string, blob []byte) error {
	b, err := s.Get(ctx, agent)
	if err == nil && bytes.Equal(b, blob) {
		s.own(agent)
		return nil
	}
	if err == nil || errors.Is(err, ErrAbsent) {
		err = s.call(ctx, func(rw io.ReadWriter) error {
			_, err := rw.Write(Request{Op: OpSet, Key: Key{Whole, agent}.String(), Value: blob}.Append(nil))
			return err
		})
	}
	if err == nil {
		b, err = s.Get(ctx, agent)
	}
	if err == nil && !bytes.Equal(b, blob) {
		err = fmt.Errorf("%v: %w", s, ErrTaken)
	}
	if err == nil {
		s.own(agent)
	}
	return err
}

// Withdraw implements Store.
func (s *TCPStore) Withdraw(ctx context.Context, agent string) error {
	s.own("")
	return s.call(ctx, func(rw io.ReadWriter) error {
		if _, err := rw.Write(Request{Op: OpDelete, Key: Key{Whole, agent}.String()}.Append(nil)); err != nil {
			return err
		}
		_, err := readNumber(rw)
		return err
	})
}
