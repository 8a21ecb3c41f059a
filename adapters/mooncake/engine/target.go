package engine

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/evloop"
)

// Memory is what a target serves: it is asked before each access, and knows who may
// do what where. b is the memory until leave, which is told how many bytes were
// written from its beginning on. fabric.Target is one.
type Memory interface {
	Enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error)
}

// Bounds of a target.
const (
	HeaderTime   = 5 * time.Second  // for the rest of a header whose first byte came
	ProgressTime = 10 * time.Second // for each MiB of a body, in either direction
	BodyTime     = 5 * time.Minute  // for a whole body; engines give up long before
	DrainTime    = 2 * time.Second  // for what a refused peer still sends
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
	// Doors has the shares of connections, and of those to which bodies of reads are being
	// sent. nil: there are no limits.
	Doors *door.Common
}

// Target serves reads and writes of memory to peers.
type Target struct {
	cfg    TargetConfig
	door   *door.Door
	loops  evloop.Loops
	sends  *door.Shares
	active atomic.Int64 // connections with a request under way
	drains atomic.Bool
}

// NewTarget makes one without listeners.
func NewTarget(cfg TargetConfig) *Target {
	t := &Target{cfg: cfg, sends: cfg.Doors.Of(quota.DataReads)}
	t.door = door.New(door.Config{Places: cfg.Doors.Of(quota.DataConns), Admit: cfg.Admit, Refused: cfg.Refused, Wrap: t.wrap, Run: t.run, Serve: t.serve})
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

// Active is how many connections have a request that is served now.
func (t *Target) Active() int { return int(t.active.Load()) }

// Drain refuses new requests and connections; what runs goes on.
func (t *Target) Drain() {
	t.drains.Store(true)
	t.door.Shut()
}

// Recheck closes the connections that Admit would turn away now.
func (t *Target) Recheck() { t.door.Recheck() }

// Identify closes those too that Admit would take for somebody else now.
func (t *Target) Identify() { t.door.Identify() }

// Close ends all, and returns when no memory is touched any more.
func (t *Target) Close() {
	t.door.Close()
	t.loops.Close()
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
