package chaos

import (
	"io"
	"net"
	"time"

	"meridian/wire/link"
)

// pump is one direction of one connection.
type pump struct {
	p        *Proxy
	c        *pair
	src, dst net.Conn
	s        *stream
	rate     int64 // bytes a second; 0: no limit
	rec      *recorder
}

// recorder keeps what a Duplicate sends a second time.
type recorder struct {
	end  uint64
	kept []byte
}

// run hands bytes on until the source ends, an action ends the direction, or the
// connection is closed.
func (w *pump) run() {
	buf := make([]byte, chunkBytes)
	for {
		n, err := w.src.Read(buf)
		if n > 0 && !w.forward(buf[:n]) {
			return
		}
		if err == io.EOF {
			closeWrite(w.dst)
			return
		}
		if err != nil {
			w.c.close()
			return
		}
	}
}

// forward hands b on and does what the plan says on the way; false ends the
// direction.
func (w *pump) forward(b []byte) bool {
	w.follow(b)
	for len(b) > 0 {
		i := w.s.next(w.s.off + uint64(len(b)))
		if i < 0 {
			return w.write(b)
		}
		t := w.s.take(i)
		upto := uint64(0)
		if t.at > w.s.off {
			upto = t.at - w.s.off
		}
		if t.Kind == Flip {
			if w.p.claim(t) {
				b[upto] ^= 1 << t.Bit
			}
			continue
		}
		if !w.write(b[:upto]) {
			return false
		}
		b = b[upto:]
		if !w.act(t, len(b)) {
			return false
		}
	}
	return true
}

// follow arms the actions that speak of frames.
func (w *pump) follow(b []byte) {
	f := w.s.frames
	if f == nil || f.lost {
		return
	}
	f.follow(b, w.s.off, func(h link.Frame, nth int, at uint64) { w.s.arm(h, nth, at) })
	if f.lost {
		w.p.mu.Lock()
		w.p.count.Unframed++
		w.p.mu.Unlock()
	}
}

// act does what a trigger other than Flip says; rest bytes are read and not yet
// handed on.
func (w *pump) act(t trigger, rest int) bool {
	if t.Kind == Duplicate && w.rec != nil {
		return true // the bytes are being repeated already
	}
	w.p.mu.Lock()
	w.p.done[t.Kind]++
	w.p.mu.Unlock()
	switch t.Kind {
	case Delay:
		w.p.opt.Wait(w.c.ctx, t.For)
	case Throttle:
		w.rate = t.Rate
	case Duplicate:
		w.rec = &recorder{end: t.end, kept: t.lead}
	case HalfClose:
		closeWrite(w.dst)
		w.discard(rest)
		return false
	case Reset:
		for _, c := range []net.Conn{w.src, w.dst} {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}
		w.c.close()
		return false
	case Cut:
		w.c.close()
		return false
	}
	return w.c.ctx.Err() == nil
}

// discard reads to the end of the source.
func (w *pump) discard(rest int) {
	n, _ := io.Copy(io.Discard, w.src)
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.count.Discarded += uint64(n) + uint64(rest)
}

// write hands b on, in pieces where a rate or a recorder asks for them.
func (w *pump) write(b []byte) bool {
	for len(b) > 0 {
		n := len(b)
		if w.rate > 0 {
			n = min(n, max(int(w.rate/20), 1)) // a twentieth of a second at a time
		}
		if w.rec != nil && w.rec.end > w.s.off {
			n = min(n, int(w.rec.end-w.s.off))
		}
		if !w.send(b[:n]) {
			return false
		}
		w.s.off += uint64(n)
		if w.rec != nil {
			w.rec.kept = append(w.rec.kept, b[:n]...)
			if w.s.off >= w.rec.end {
				again := w.rec.kept
				w.rec = nil
				if !w.send(again) {
					return false
				}
			}
		}
		b = b[n:]
	}
	return true
}

// send writes b once the proxy is not stalled, and takes the time that the rate
// asks for.
func (w *pump) send(b []byte) bool {
	w.p.mu.Lock()
	gate := w.p.stalled
	w.p.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-w.c.ctx.Done():
			return false
		}
	}
	n, err := w.dst.Write(b)
	w.p.mu.Lock()
	if w.s.dir == ToBack {
		w.p.count.ToBack += uint64(n)
	} else {
		w.p.count.ToFront += uint64(n)
	}
	w.p.mu.Unlock()
	if err != nil {
		w.c.close()
		return false
	}
	if w.rate > 0 {
		w.p.opt.Wait(w.c.ctx, time.Duration(n)*time.Second/time.Duration(w.rate))
	}
	return true
}

// claim decides whether a flip is done: once, unless it repeats.
func (p *Proxy) claim(t trigger) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spent[t.Action] && !t.Repeat {
		return false
	}
	p.spent[t.Action] = true
	p.done[Flip]++
	if len(p.flips) < maxFlips {
		p.flips = append(p.flips, t.place)
	}
	return true
}

// closeWrite ends one direction, where the transport can.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}
