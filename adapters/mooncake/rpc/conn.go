package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// reply is what a call gets.
type reply struct {
	code uint8
	body []byte
}

// conn is one connection. Callers write in turn; one goroutine reads, and hands each
// answer to its caller by the sequence number. A caller that gave up leaves its
// number behind with a nil channel, so that a late answer is known as one.
type conn struct {
	nc        net.Conn
	address   string
	maxAnswer uint32
	writing   chan struct{} // held by who writes

	mu       sync.Mutex
	seq      uint32
	waiting  map[uint32]chan reply
	received uint64 // answers that began so far
	err      error  // why the connection is of no use any more
	gone     chan struct{}
}

// maxOwed bounds the answers that a server may owe on one connection, most of them to
// calls that gave up.
const maxOwed = 1024

func newConn(nc net.Conn, address string, maxAnswer uint32) *conn {
	return &conn{
		nc: nc, address: address, maxAnswer: maxAnswer, writing: make(chan struct{}, 1),
		waiting: make(map[uint32]chan reply), gone: make(chan struct{}),
	}
}

// fail gives the connection up; the first reason counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.gone)
	_ = c.nc.Close()
}

func (c *conn) dead() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// exchange sends a request and waits for its answer. Sent is whether a byte of it
// may have left.
func (c *conn) exchange(ctx context.Context, id uint32, body []byte) (r reply, sent bool, err error) {
	select {
	case c.writing <- struct{}{}:
	case <-c.gone:
		return r, false, c.err
	case <-ctx.Done():
		return r, false, fmt.Errorf("waiting to send: %w", ctx.Err())
	}
	seq, answer, before, err := c.enter()
	if err != nil {
		<-c.writing
		return r, false, err
	}
	err = c.write(ctx, seq, id, body)
	<-c.writing
	if err != nil {
		c.fail(err)
		return r, true, err
	}
	select {
	case r = <-answer:
		return r, true, nil
	case <-c.gone:
	case <-ctx.Done():
		c.abandon(ctx, seq, before)
	}
	select {
	case r = <-answer: // it came in the same moment
		return r, true, nil
	default:
	}
	if c.dead() {
		return r, true, c.err
	}
	return r, true, ctx.Err()
}

// enter makes a call known to the reader.
func (c *conn) enter() (seq uint32, answer chan reply, before uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, 0, c.err
	}
	if len(c.waiting) >= maxOwed {
		return 0, nil, 0, fmt.Errorf("the server owes %d answers on one connection", len(c.waiting))
	}
	for {
		c.seq++
		if _, taken := c.waiting[c.seq]; !taken {
			break
		}
	}
	answer = make(chan reply, 1)
	c.waiting[c.seq] = answer
	return c.seq, answer, c.received, nil
}

// abandon forgets a call whose context has ended. If its time was up and no answer
// at all has come since it was sent, the server is taken for dead.
func (c *conn) abandon(ctx context.Context, seq uint32, before uint64) {
	c.mu.Lock()
	if _, ok := c.waiting[seq]; ok {
		c.waiting[seq] = nil
	}
	silent := c.received == before
	c.mu.Unlock()
	if silent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.fail(ErrSilent)
	}
}

func (c *conn) write(ctx context.Context, seq, id uint32, body []byte) error {
	deadline, _ := ctx.Deadline()
	if err := c.nc.SetWriteDeadline(deadline); err != nil {
		return err
	}
	head := request{seq: seq, function: id, body: uint32(len(body))}.append(make([]byte, 0, requestHeader))
	buffers := net.Buffers{head, body}
	_, err := buffers.WriteTo(c.nc)
	return err
}

// read hands out answers until the connection ends.
func (c *conn) read() {
	r := bufio.NewReaderSize(c.nc, 64<<10)
	for {
		if err := c.readOne(r); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the server closed the connection: %w", err)
			}
			c.fail(err)
			return
		}
	}
}

func (c *conn) readOne(r *bufio.Reader) error {
	var b [answerHeader]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	a, err := parseAnswer(b)
	if err != nil {
		return err
	}
	if size := uint64(a.body) + uint64(a.attachment); size > uint64(c.maxAnswer) {
		return fmt.Errorf("an answer of %d bytes, the limit is %d", size, c.maxAnswer)
	}
	c.mu.Lock()
	answer, known := c.waiting[a.seq]
	c.received++
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("an answer to call %d, which was not made", a.seq)
	}
	body := make([]byte, a.body)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, r, int64(a.attachment)); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.waiting, a.seq)
	c.mu.Unlock()
	if answer != nil {
		answer <- reply{code: a.code, body: body}
	}
	return nil
}
