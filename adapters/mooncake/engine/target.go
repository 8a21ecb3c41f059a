package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/internal/door"
	"meridian/wire"
)

// Memory is what a target serves: it is asked before each access, and knows who may
// do what where. b is the memory until leave, which is told how many bytes were
// written from its beginning on. fabric.Target is one.
type Memory interface {
	Enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error)
}

// Bounds and defaults of a target.
const (
	HeaderTime   = 5 * time.Second  // for the rest of a header whose first byte came
	ProgressTime = 10 * time.Second // for each MiB of a body, in either direction
	BodyTime     = 5 * time.Minute  // for a whole body; engines give up long before
	DrainTime    = 2 * time.Second  // for what a refused peer still sends

	DefaultConns     = 4096
	DefaultPerSource = 2048
)

// Done is a request that a target has served.
type Done struct {
	Peer  string
	Write bool
	Bytes uint64
	Took  time.Duration
}

// TargetConfig is what a Target needs.
type TargetConfig struct {
	Memory Memory
	// Admit says who a source address is, or why it is turned away.
	Admit func(source netip.Addr) (peer string, err error)
	// Served hears of each request that went well, and Refused of each connection
	// that was turned away or ended by an error. They must not block.
	Served  func(Done)
	Refused func(peer string, err error)

	Conns, PerSource int // connections at a time; 0: the defaults
}

// Target serves reads and writes of memory to peers.
type Target struct {
	cfg    TargetConfig
	door   *door.Door
	active atomic.Int64 // requests under way
	drains atomic.Bool
}

// NewTarget makes one without listeners.
func NewTarget(cfg TargetConfig) *Target {
	if cfg.Conns == 0 {
		cfg.Conns = DefaultConns
	}
	if cfg.PerSource == 0 {
		cfg.PerSource = DefaultPerSource
	}
	t := &Target{cfg: cfg}
	t.door = door.New(door.Config{Conns: cfg.Conns, PerSource: cfg.PerSource, Admit: cfg.Admit, Refused: cfg.Refused, Serve: t.serve})
	return t
}

// Listen opens a port: HOST:PORT, an IPv6 address in brackets; [::] is both families.
func (t *Target) Listen(ctx context.Context, addr string) (netip.AddrPort, error) {
	return t.door.Listen(ctx, addr)
}

// Open serves a listener until Close.
func (t *Target) Open(l net.Listener) bool { return t.door.Open(l) }

// Conns is how many connections are open.
func (t *Target) Conns() int { return t.door.Len() }

// Active is how many requests are served now.
func (t *Target) Active() int { return int(t.active.Load()) }

// Drain refuses new requests and connections; what runs goes on.
func (t *Target) Drain() {
	t.drains.Store(true)
	t.door.Shut()
}

// Close ends all, and returns when no memory is touched any more.
func (t *Target) Close() { t.door.Close() }

func (t *Target) serve(c *door.Conn) {
	for proved := false; ; proved = true {
		err := t.request(c, proved)
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

// request serves one request.
func (t *Target) request(c *door.Conn, proved bool) error {
	h, err := readHeader(c)
	if err != nil && h == (header{}) {
		return err
	}
	began := time.Now()
	t.active.Add(1)
	defer t.active.Add(-1)
	if err == nil && t.drains.Load() {
		err = fmt.Errorf("mooncake: %v: %w", h, wire.CodeDraining)
	}
	var b []byte
	var leave func(uint64)
	if err == nil {
		err = h.check()
	}
	if err == nil {
		if b, leave, err = t.cfg.Memory.Enter(c.Peer, h.addr, h.size, h.write); err != nil {
			err = fmt.Errorf("mooncake: %v refused: %w", h, err)
		}
	}
	if err != nil {
		t.cfg.Refused(c.Peer, err)
		refuse(c, h)
		return errEnded
	}
	if !proved {
		c.Proved()
	}
	if h.write {
		err = t.write(c, h, b, leave)
	} else {
		err = t.read(c, h, b, leave)
	}
	if err == nil && t.cfg.Served != nil {
		t.cfg.Served(Done{Peer: c.Peer, Write: h.write, Bytes: h.size, Took: time.Since(began)})
	}
	return err
}

// readHeader waits for a request for as long as it takes, and then not long for its
// rest.
func readHeader(c net.Conn) (header, error) {
	var b [headerLen]byte
	_ = c.SetReadDeadline(time.Time{})
	n, err := c.Read(b[:])
	if n == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			return header{}, errEnded
		}
		return header{}, &progressError{"waiting for a request", 0, headerLen, err}
	}
	if n < headerLen {
		_ = c.SetReadDeadline(time.Now().Add(HeaderTime))
		m, err := io.ReadFull(c, b[n:])
		if err != nil {
			return header{}, &progressError{"the header of a request", uint64(n + m), headerLen, err}
		}
	}
	return parseHeader(&b)
}

func (t *Target) write(c *door.Conn, h header, b []byte, leave func(uint64)) error {
	wrote, err := readBody(c, b, ProgressTime)
	leave(wrote)
	if err != nil || !h.acked {
		return err
	}
	return sendStatus(c, statusOK)
}

func (t *Target) read(c *door.Conn, h header, b []byte, leave func(uint64)) error {
	defer leave(0)
	var status [statusLen]byte
	putStatus(&status, statusOK)
	head := status[:]
	if !h.acked {
		head = nil
	}
	return writeBody(c, head, b, ProgressTime, nil)
}

func sendStatus(c net.Conn, status uint32) error {
	var b [statusLen]byte
	putStatus(&b, status)
	_ = c.SetWriteDeadline(time.Now().Add(ProgressTime))
	if _, err := c.Write(b[:]); err != nil {
		return &progressError{"sending a status", 0, statusLen, err}
	}
	return nil
}

// refuse answers a request that is not served; the connection ends with it. Without
// acknowledgements the connection's end is the answer, and a reset says it sooner.
//
// With them the status must survive: what the peer has sent and nobody read would make
// the kernel reset the connection, and the peer lose the status. So this half is
// ended, and the rest of the body thrown away, for a time.
func refuse(c *door.Conn, h header) {
	if !h.acked || sendStatus(c, statusRejected) != nil {
		return
	}
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(DrainTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}
