package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"meridian/internal/door"
	"meridian/internal/evloop"
	"meridian/wire"
)

// Bounds of what is taken from a connection at a time.
const (
	aheadLen    = 512  // bytes behind a request that are read with it
	maxAcks     = 64   // statuses of writes that leave by one call
	gatherReads = 16   // reads that are answered by one call of the system
	gatherBytes = part // of their bodies
)

// guest is a connection that a target serves.
type guest struct {
	*door.Conn
	in    *scatter
	ahead [aheadLen]byte
	have  int // bytes of ahead: the next requests, or the beginning of a body
	acks  int // statuses of writes that are to be sent before anything is waited for

	// Reads that are answered together.
	out   [][]byte
	enter []entered
}

// entered is an access that is under way.
type entered struct {
	header
	b     []byte
	leave func(wrote uint64)
}

// okStatus is what each request is answered by that is served. Nobody writes to it.
var okStatus = func() (b [statusLen]byte) {
	putStatus(&b, statusOK)
	return b
}()

// wrap has a connection served by a loop, where it is a socket.
func (t *Target) wrap(nc net.Conn) net.Conn {
	if c, err := t.loops.Take(nc); err == nil {
		return c
	}
	return nc // such as one in memory, or no descriptor is left
}

func (t *Target) run(c *door.Conn, serve func()) bool {
	lc, ok := c.Conn.(*evloop.Conn)
	return ok && lc.Go(serve)
}

func (t *Target) serve(c *door.Conn) {
	g := &guest{Conn: c, in: newScatter(c.Conn)}
	g.in.wait = g.ack
	defer c.DropUnsent()
	for proved := false; ; proved = true {
		err := t.request(g, proved)
		if err == nil {
			continue
		}
		if why := c.Why(); why != nil {
			err = why
		}
		if !errors.Is(err, errEnded) && !errors.Is(err, net.ErrClosed) { // closed: by Close
			t.cfg.Refused(c.Peer, err)
		}
		return
	}
}

// errEnded is the end of a connection of which nothing is left to say.
var errEnded = errors.New("mooncake: the connection has ended")

// request serves one request, or several reads that have come together.
func (t *Target) request(g *guest, proved bool) error {
	h, err := g.next()
	if err != nil && h == (header{}) {
		return err
	}
	began := time.Now()
	t.active.Add(1)
	defer t.active.Add(-1)
	e := entered{header: h}
	if err == nil && !h.write {
		if err := g.ack(); err != nil { // of writes before a read, which do not wait with it
			return err
		}
	}
	if err == nil {
		e.b, e.leave, err = t.enter(g, h)
	}
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	if err != nil {
		t.cfg.Refused(g.Peer, err)
		if g.ack() == nil {
			refuse(g.Conn, h)
		}
		return errEnded
	}
	if !proved {
		g.Proved()
	}
	g.enter = append(g.enter[:0], e)
	if h.write {
		err = g.write(e)
	} else {
		t.gather(g)
		err = g.read()
	}
	for i := range g.enter {
		if e := &g.enter[i]; err == nil && t.cfg.Served != nil {
			t.cfg.Served(Done{Peer: g.Peer, Write: e.write, Bytes: e.size, Took: time.Since(began)})
		}
	}
	clear(g.enter)
	return err
}

// enter lets a request in. A read waits for its place among what is being sent, and has
// it until it leaves.
func (t *Target) enter(g *guest, h header) (b []byte, leave func(wrote uint64), err error) {
	if t.drains.Load() {
		return nil, nil, fmt.Errorf("mooncake: %v: %w", h, wire.CodeDraining)
	}
	if err := h.check(); err != nil {
		return nil, nil, err
	}
	var share door.Part
	if !h.write {
		if share, err = t.place(g.Conn); err != nil {
			return nil, nil, fmt.Errorf("mooncake: %v: %w", h, err)
		}
	}
	b, left, err := t.cfg.Memory.Enter(g.Peer, h.addr, h.size, h.write)
	if err != nil {
		share.Give()
		return nil, nil, fmt.Errorf("mooncake: %v refused: %w", h, err)
	}
	return b, func(wrote uint64) {
		left(wrote)
		share.Give()
	}, nil
}

// place waits for a place among what is being sent.
func (t *Target) place(c *door.Conn) (p door.Part, err error) {
	lc, ok := c.Conn.(*evloop.Conn)
	if p, now := t.sends.Try(c, 1); now || !ok {
		if now {
			return p, nil
		}
		return t.sends.Wait(c, 1, StatusTime)
	}
	lc.Outside(func() { p, err = t.sends.Wait(c, 1, StatusTime) })
	return p, err
}

// gather enters the reads that have come behind a read, as far as they are short. One
// that is refused stays where it is, and is the next request.
func (t *Target) gather(g *guest) {
	for all := g.enter[0].size; g.have >= headerLen && len(g.enter) < gatherReads; {
		h, err := parseHeader((*[headerLen]byte)(g.ahead[:]))
		if err != nil || h.write || !h.acked || !g.enter[0].acked || h.check() != nil || h.size > gatherBytes-min(all, gatherBytes) || t.drains.Load() {
			return
		}
		b, leave, err := t.cfg.Memory.Enter(g.Peer, h.addr, h.size, false)
		if err != nil {
			return
		}
		g.drop(headerLen)
		all += h.size
		g.enter = append(g.enter, entered{h, b, leave})
	}
}

// drop takes the first n bytes of ahead away.
func (g *guest) drop(n int) { g.have = copy(g.ahead[:], g.ahead[n:g.have]) }

// next waits for a request.
func (g *guest) next() (header, error) {
	if g.have < headerLen {
		if err := g.ack(); err != nil {
			return header{}, err
		}
	}
	n, err := fillHeader(g.Conn.Conn, g.ahead[:], g.have)
	if err != nil {
		return header{}, err
	}
	g.have = n
	h, err := parseHeader((*[headerLen]byte)(g.ahead[:]))
	g.drop(headerLen)
	return h, err
}

// readHeader reads one request and nothing behind it.
func readHeader(c net.Conn) (header, error) {
	var b [headerLen]byte
	if _, err := fillHeader(c, b[:], 0); err != nil {
		return header{}, err
	}
	return parseHeader(&b)
}

// fillHeader waits for a request for as long as it takes, and then not long for its
// rest. b has n bytes already; it returns how many it has then.
func fillHeader(c net.Conn, b []byte, n int) (int, error) {
	if n == 0 {
		_ = c.SetReadDeadline(time.Time{})
		var err error
		if n, err = c.Read(b); n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return 0, errEnded
			}
			return 0, &progressError{"waiting for a request", 0, headerLen, err}
		}
	}
	if n >= headerLen {
		return n, nil
	}
	_ = c.SetReadDeadline(time.Now().Add(HeaderTime))
	m, err := io.ReadAtLeast(c, b[n:], headerLen-n)
	if n += m; err != nil {
		return n, &progressError{"the header of a request", uint64(n), headerLen, err}
	}
	return n, nil
}

// write takes a body to its place. What came of it with the header is copied there.
func (g *guest) write(e entered) error {
	n := copy(e.b, g.ahead[:g.have])
	g.drop(n)
	wrote, err := uint64(n), error(nil)
	if n < len(e.b) {
		wrote, g.have, err = readBody(g.in, e.b, wrote, g.ahead[:], ProgressTime)
	}
	e.leave(wrote)
	if err != nil || !e.acked {
		return err
	}
	if g.acks++; g.acks == maxAcks {
		return g.ack()
	}
	return nil
}

// ack sends the statuses of writes that are in place.
func (g *guest) ack() error {
	if g.acks == 0 {
		return nil
	}
	b := bytes.Repeat(okStatus[:], g.acks)
	g.acks = 0
	_ = g.SetWriteDeadline(time.Now().Add(ProgressTime))
	if _, err := g.Conn.Write(b); err != nil {
		return &progressError{"sending a status", 0, statusLen, err}
	}
	return nil
}

// read answers the reads that were entered.
func (g *guest) read() error {
	defer func() {
		for i := range g.enter {
			g.enter[i].leave(0)
		}
	}()
	if len(g.enter) == 1 {
		head := okStatus[:]
		if !g.enter[0].acked {
			head = nil
		}
		return writeBody(g.in, head, g.enter[0].b, ProgressTime)
	}
	out, all := g.out[:0], uint64(0)
	for i := range g.enter {
		out, all = append(out, okStatus[:], g.enter[i].b), all+g.enter[i].size
	}
	_ = g.SetWriteDeadline(time.Now().Add(ProgressTime))
	err := g.in.write(out)
	clear(out)
	if g.out = out; err != nil {
		return &progressError{"sending bodies", 0, all, err}
	}
	return nil
}
