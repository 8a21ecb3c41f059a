package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// smallEngine is just enough of the transfer engine, version 2, for these tests: the
// exchange of descriptors, and one request per connection as initiator.
type smallEngine struct {
	handshake, data net.Listener

	mu      sync.RWMutex // held for reading while an access is under way
	base    uint64
	memory  []byte
	refused int
	conns   map[net.Conn]bool
}

const (
	teRead, teWrite = 0x80, 0x81
	teOK            = 0x4D435456_00000000
	teRejected      = teOK + 1
)

func newSmallEngine() (*smallEngine, error) {
	e := &smallEngine{conns: map[net.Conn]bool{}}
	var err error
	if e.handshake, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if e.data, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go e.accept(e.handshake, e.shake)
	go e.accept(e.data, e.serve)
	return e, nil
}

func (e *smallEngine) Close() {
	e.handshake.Close()
	e.data.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		c.Close()
	}
}

func (e *smallEngine) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns[c] = true
		e.mu.Unlock()
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func (e *smallEngine) Serve(base uint64, memory []byte) (string, func(context.Context) error, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.base, e.memory = base, memory
	stop := func(context.Context) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.base, e.memory = 0, nil
		return nil
	}
	return e.handshake.Addr().String(), stop, nil
}

type smallDescriptor struct {
	Name     string           `json:"name"`
	Protocol string           `json:"protocol"`
	Port     int              `json:"tcp_data_port"`
	Host     string           `json:"tcp_data_host"`
	Version  int              `json:"tcp_proto_version"`
	Buffers  []map[string]any `json:"buffers"`
}

// shake answers with the descriptor; every message is taken for the one of metadata.
func (e *smallEngine) shake(c net.Conn) {
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint64(head[:]))-1); err != nil {
		return
	}
	e.mu.RLock()
	name := e.handshake.Addr().String()
	text, _ := json.Marshal(smallDescriptor{
		Name: name, Protocol: "tcp", Port: e.data.Addr().(*net.TCPAddr).Port, Host: "127.0.0.1", Version: 2,
		Buffers: []map[string]any{{"name": name, "addr": max(e.base, 1), "length": max(len(e.memory), 1)}},
	})
	e.mu.RUnlock()
	c.Write(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text)+1)), head[8]), text...))
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
}

func (e *smallEngine) serve(c net.Conn) {
	for e.serveOne(c) == nil {
	}
}

func (e *smallEngine) serveOne(c net.Conn) error {
	var head [24]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	size, address := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
	e.mu.RLock()
	defer e.mu.RUnlock()
	if n := uint64(len(e.memory)); size == 0 || address < e.base || size > n || address-e.base > n-size {
		c.Write(binary.LittleEndian.AppendUint64(nil, teRejected))
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		return errors.New("rejected")
	}
	place := e.memory[address-e.base:][:size]
	if head[16] == teWrite {
		if _, err := io.ReadFull(c, place); err != nil {
			return err
		}
	}
	_, err := c.Write(binary.LittleEndian.AppendUint64(nil, teOK))
	if err == nil && head[16] == teRead {
		_, err = c.Write(place)
	}
	return err
}

func (e *smallEngine) Read(ctx context.Context, segment string, address uint64, to []byte) error {
	return e.request(ctx, segment, teRead, address, to)
}

func (e *smallEngine) Write(ctx context.Context, segment string, address uint64, from []byte) error {
	return e.request(ctx, segment, teWrite, address, from)
}

func (e *smallEngine) request(ctx context.Context, segment string, op byte, address uint64, body []byte) error {
	d, err := openSmall(ctx, segment)
	if err != nil {
		return err
	}
	c, err := dialSmall(ctx, net.JoinHostPort(d.Host, strconv.Itoa(d.Port)))
	if err != nil {
		return err
	}
	defer c.Close()
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(body)))
	head = append(binary.LittleEndian.AppendUint64(head, address), op, 0, 0, 0, 0, 0, 0, 0)
	if op == teWrite {
		head = append(head, body...)
	}
	if _, err := c.Write(head); err != nil {
		return err
	}
	var status [8]byte
	if _, err := io.ReadFull(c, status[:]); err != nil {
		return err
	}
	if s := binary.LittleEndian.Uint64(status[:]); s != teOK {
		return fmt.Errorf("%w: %x", errRefused, s)
	}
	if op == teRead {
		_, err = io.ReadFull(c, body)
	}
	return err
}

var errRefused = errors.New("the peer refused the address")

func openSmall(ctx context.Context, segment string) (d smallDescriptor, err error) {
	c, err := dialSmall(ctx, segment)
	if err != nil {
		return d, err
	}
	defer c.Close()
	c.Write([]byte{3, 0, 0, 0, 0, 0, 0, 0, 1, '{', '}'})
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return d, err
	}
	return d, json.NewDecoder(c).Decode(&d)
}

func dialSmall(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if t, ok := ctx.Deadline(); ok && err == nil {
		err = c.SetDeadline(t)
	}
	return c, err
}
