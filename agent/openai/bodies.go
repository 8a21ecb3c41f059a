package openai

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"meridian/internal/halfopen"
)

// Bounds of Bodies.
const (
	// MaxBodies is what bodies that are read at the same time take of the memory, in bytes.
	MaxBodies = 64 << 20
	// freeBody is what each body may have that is not counted: how many bodies there may
	// be is a matter of connections. A short request never meets a node full of long ones.
	freeBody = 16 << 10

	// parsesAtATime bounds how many bodies that count are parsed at the same time: the
	// members of one need up to twenty times its bytes while that lasts.
	parsesAtATime = 4

	firstBuffer = 1 << 10
)

// Bodies bounds the memory of bodies that are read at the same time. Where there is
// none left, a body that has taken no more memory for halfopen.Patience makes room,
// of the source that has most of them; else the one that needs more is refused. So a
// body whose end never comes keeps out nobody, however its bytes trickle. The zero
// value is ready.
type Bodies struct {
	most int // 0: MaxBodies

	once    sync.Once
	start   time.Time
	parsing chan struct{}  // an entry for each that is being parsed
	under   halfopen.Table // bodies of more than freeBody that are being read

	mu   sync.Mutex
	held int
}

// Body is one that was read. Its memory counts until Free.
type Body struct {
	Bytes []byte

	of    *Bodies
	wake  *http.ResponseController
	place *halfopen.Conn // nil: it is short

	// with of.mu:
	held  int
	ended error // it has made room
	whole bool  // nobody may end it any more
}

// Read reads a request's body, of at most limit bytes; a longer one is an
// *http.MaxBytesError. An *Error says that there is no memory for it. Server bounds its
// time. The caller owes a Free, which need not wait until the bytes are of no use.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, limit int) (*Body, error) {
	b.once.Do(func() { b.start, b.parsing = time.Now(), make(chan struct{}, parsesAtATime) })
	p := &Body{of: b, wake: http.NewResponseController(w)}
	err := p.read(http.MaxBytesReader(w, r.Body, int64(limit)), r, limit)
	if err = p.end(err); err != nil {
		p.Free()
		var said *Error
		if errors.As(err, &said) { // else net/http would read the rest before it answers
			w.Header().Set("Connection", "close")
		}
		return nil, err
	}
	return p, nil
}

func (p *Body) read(from io.Reader, r *http.Request, limit int) error {
	for {
		if len(p.Bytes) == cap(p.Bytes) {
			size := min(max(2*cap(p.Bytes), firstBuffer), limit+1) // the last byte is for the end
			if n := r.ContentLength; n >= int64(cap(p.Bytes)) {
				size = int(min(int64(size), n+1))
			}
			if err := p.take(size-freeBody, r.RemoteAddr); err != nil {
				return err
			}
			p.Bytes = append(make([]byte, 0, size), p.Bytes...)
		}
		n, err := from.Read(p.Bytes[len(p.Bytes):cap(p.Bytes)])
		p.Bytes = p.Bytes[:len(p.Bytes)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take has the body hold so many bytes in all, if need be those of others.
func (p *Body) take(bytes int, from string) error {
	if bytes <= 0 {
		return nil
	}
	b := p.of
	now := time.Since(b.start)
	if p.place == nil {
		source, _, err := net.SplitHostPort(from)
		if err != nil { // of a Unix socket, whose users are one
			source = from
		}
		p.place = b.under.Enter(now, source, p.makeRoom)
	}
	p.place.Spoke(now)
	most := cmp.Or(b.most, MaxBodies)
	full := &Error{Status: http.StatusTooManyRequests, Type: typeRate, Code: "too_many_bytes",
		Message: fmt.Sprintf("there is no memory for this body, of which %d bytes have come: bodies that are being read may have %d bytes together", len(p.Bytes), most)}
	for {
		if done, err := p.hold(bytes, most); done {
			return err
		}
		if !b.under.MakeRoom(now, "", full) {
			return full
		}
	}
}

// hold takes bytes that are free; done: they were, or the body has made room itself.
func (p *Body) hold(bytes, most int) (done bool, err error) {
	b := p.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.ended != nil {
		return true, p.ended
	}
	if b.held+bytes-p.held > most {
		return false, nil
	}
	b.held += bytes - p.held
	p.held = bytes
	return true, nil
}

// makeRoom ends the reading. What the body held is the other's at once: its goroutine
// lets go of it as soon as it runs.
func (p *Body) makeRoom(error) {
	b := p.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.whole {
		return
	}
	b.held -= p.held
	p.held = 0
	p.ended = &Error{Status: http.StatusTooManyRequests, Type: typeRate, Code: "too_many_bytes",
		Message: fmt.Sprintf("the rest of this body did not come for %s, and another one needed the memory: bodies that are being read may have %d bytes together", halfopen.Patience, cmp.Or(b.most, MaxBodies))}
	_ = p.wake.SetReadDeadline(time.Unix(1, 0)) // a recorder in a test has none
}

// end is err of the reading, or why the body had to make room.
func (p *Body) end(err error) error {
	b := p.of
	b.mu.Lock()
	p.whole = true
	if p.ended != nil {
		err = p.ended
	}
	b.mu.Unlock()
	if p.place != nil {
		p.place.Leave()
	}
	return err
}

// Parse calls parse, which must wait for nobody, when it is the body's turn.
func (p *Body) Parse(parse func()) {
	if len(p.Bytes) > freeBody {
		p.of.parsing <- struct{}{}
		defer func() { <-p.of.parsing }()
	}
	parse()
}

// Keep says how many bytes are held for the request from now on, of what was read or
// made of it.
func (p *Body) Keep(bytes int) {
	b := p.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += bytes - p.held
	p.held = bytes
}

// Free says that what was read is of no use any more.
func (p *Body) Free() { p.Keep(0) }
