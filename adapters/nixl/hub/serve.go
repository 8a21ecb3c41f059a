package hub

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/internal/door"
	"meridian/internal/stranger"
	"meridian/wire"
)

const (
	// requestTime bounds a request from its first byte on, the answer to it, and the time
	// before the first one.
	requestTime = 5 * time.Second
	// takeoverTime is how long a SET waits for the end of who has the name. A client gives
	// its next request 5 s.
	takeoverTime = 2 * time.Second
)

// Allows reports whether a source address may use the hub: loopback, and what is listed.
func (h *Hub) Allows(source netip.Addr) bool { return source.IsLoopback() || h.allow.Has(source) }

func (h *Hub) admit(source netip.Addr) (string, error) {
	if h.Allows(source) {
		return source.String(), nil
	}
	return source.String(), fmt.Errorf("nixl hub: source address %v is in none of the ranges of allow: %w", source, wire.CodeDenied)
}

func (h *Hub) refused(from string, err error) {
	h.refusals.Add(1)
	h.cfg.Refused(err)
	h.cfg.Log.Warn("nixl hub: a request was refused", "from", from, "err", err)
}

// serve has a connection until it ends.
func (h *Hub) serve(c *door.Conn) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(plane.Alive)
	}
	who := &client{source: c.Source(), from: c.RemoteAddr().String()}
	err := h.talk(c, who)
	h.mu.Lock()
	h.table.went(h.cfg.Clock(), who)
	close(h.ended)
	h.ended = make(chan struct{})
	h.mu.Unlock()
	if why := c.Why(); why != nil {
		err = why
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errEnded) {
		h.refused(who.from, err)
	}
}

// errEnded is a connection that has ended between two requests.
var errEnded = errors.New("the connection has ended")

func (h *Hub) talk(c *door.Conn, who *client) error {
	r := bufio.NewReader(c)
	greeted := false
	_ = c.SetReadDeadline(time.Now().Add(h.patience))
	for {
		switch _, err := r.Peek(1); { // a client may be silent between requests, and not before the first one
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("nixl hub: no request for %v: %w", h.patience, wire.CodeDeadline)
		case err != nil:
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(h.patience))
		var held door.Part
		q, err := plane.ReadRequest(r, func(n int) (err error) {
			held, err = h.held.Take(c.Source(), uint64(n))
			return err
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("nixl hub: half of %v, and nothing for %v: %w", q.Op, h.patience, wire.CodeDeadline)
		case err == nil && !greeted && q.Op != plane.OpValidate:
			err = fmt.Errorf("nixl hub: %v before VALIDATE: %w", q.Op, wire.CodeState)
		case err == nil:
			greeted = true
			_ = c.SetReadDeadline(time.Time{})
			c.Spoke()
			err = h.answer(c, who, q)
		}
		held.Give()
		if err != nil {
			return err
		}
	}
}

// answer does what a request asks for. A SET has no answer: one that is refused ends its
// connection, which is all that a client can be told.
func (h *Hub) answer(c *door.Conn, who *client, q plane.Request) error {
	h.requests.Add(1)
	var out, value []byte
	switch q.Op {
	case plane.OpValidate:
		return nil
	case plane.OpPing:
		if !who.known {
			h.mu.Lock()
			who.known, who.pid = true, q.Nonce
			again := h.table.came(who)
			h.mu.Unlock()
			if again {
				c.Proved() // it is an agent's, as with a SET
			}
		}
		out = binary.LittleEndian.AppendUint32(nil, q.Nonce)
	case plane.OpSet:
		return h.set(c, who, q)
	case plane.OpDelete:
		n, err := h.remove(who, q.Key)
		if err != nil { // it gets an answer, so that it need not connect again
			h.refused(who.from, err)
		}
		out = binary.LittleEndian.AppendUint64(nil, n)
	default:
		k, err := plane.ParseKey(q.Key)
		if err != nil {
			return err
		}
		h.mu.Lock()
		b := h.table.get(k)
		h.mu.Unlock()
		if q.Op == plane.OpCheck {
			out = []byte{plane.NotReady}
			if b != nil {
				out[0] = plane.Ready
			}
			break
		}
		h.cfg.Log.Debug("nixl hub: metadata are read", "nixl_agent", stranger.Text(k.Agent), "label", stranger.Text(k.Label), "by", who.from, "pid", who.pid)
		out, value = binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b
	}
	_ = c.SetWriteDeadline(time.Now().Add(h.patience))
	_, err := c.Write(out)
	if err == nil && len(value) > 0 { // no copy of it waits for a slow reader
		_, err = c.Write(value)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nixl hub: the answer to %v was not taken for %v: %w", q.Op, h.patience, wire.CodeDeadline)
	}
	return err
}

func (h *Hub) set(c *door.Conn, who *client, q plane.Request) error {
	k, err := plane.ParseKey(q.Key)
	if err == nil {
		err = check(k, q.Value) // not under the table's lock, and once
	}
	if err != nil {
		return err
	}
	changed, err := h.put(who, k, q.Value)
	if err != nil {
		return err
	}
	c.Proved()
	if changed {
		h.cfg.Log.Info("nixl hub: metadata are put", "nixl_agent", stranger.Text(k.Agent), "label", stranger.Text(k.Label), "bytes", len(q.Value), "from", who.from, "pid", who.pid)
	}
	return nil
}

// put waits a while for the end of a connection that has the name: the agent that comes
// back may be faster than it.
func (h *Hub) put(who *client, k plane.Key, b []byte) (bool, error) {
	late := time.NewTimer(h.takeover)
	defer late.Stop()
	for {
		h.mu.Lock()
		changed, err := h.table.put(time.Now(), who, k, b)
		ended := h.ended
		h.mu.Unlock()
		if !errors.Is(err, wire.CodeExists) {
			return changed, err
		}
		select {
		case <-ended:
		case <-late.C:
			return false, err
		}
	}
}

func (h *Hub) remove(who *client, key string) (uint64, error) {
	k, err := plane.ParseKey(key)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	there, err := h.table.remove(who, k)
	h.mu.Unlock()
	if !there || err != nil {
		return 0, err
	}
	h.cfg.Log.Info("nixl hub: metadata are withdrawn", "nixl_agent", stranger.Text(k.Agent), "label", stranger.Text(k.Label), "from", who.from, "pid", who.pid)
	return 1, nil
}
