package blocks

import (
	"cmp"
	"crypto/rand"
	"io"
	"math"
	"time"

	"meridian/wire"
)

// Config is read once by Open. Zero values take the defaults named here.
type Config struct {
	Capacity      uint64   // bytes of all segments together; at least one extent
	ExtentBytes   uint64   // a power of two, and the largest body; default Capacity/8 within 256 KiB..64 MiB
	ThinkFraction float64  // share of Capacity up to which ThinkActive blocks may evict output; default 0.40
	Agent         [16]byte // of every Ref
	Incarnation   uint64   // of every Ref; a new one at each start
	HoldBytes     uint64   // a process's cap on hold leases; default Capacity/4
	StagingBytes  uint64   // cap on all staging rings together, which are part of Capacity; 0: they come on top of it, at most as much again or 256 MiB
	StagingAhead  uint64   // of Capacity, kept for rings from the start: the first ones then evict nothing; default 0
	Ahead         uint64   // of Capacity, kept ready by Prepare in whole segments that nobody has yet; default 0: none
	RemoteBlocks  int      // copies outside that are remembered; default 262144
	VerifyAlways  bool     // Acquire hashes what it grants
	Shares        Shares   // of holders; default a quarter, a minute and ten minutes for peers, none for others

	Clock    func() time.Duration // monotonic, never negative; default: time since Open
	Rand     io.Reader            // mints leases, must not fail; default crypto/rand
	HostFree func() uint64        // bytes of memory that this host, or the container around us, has left; default: without end

	stagingOnTop bool
}

const (
	defaultThinkFraction = 0.40 // kv_memory.think_phase_memory_fraction
	defaultRemoteBlocks  = 1 << 18
	minStagingBytes      = 256 << 20
	defaultPeerShare     = 0.25
	defaultPeersShare    = 0.5
	defaultReserveTime   = time.Minute
	defaultLeaseAge      = 10 * time.Minute
)

func (c Config) withDefaults() (Config, error) {
	if c.Capacity == 0 {
		return c, &LimitError{Code: wire.CodeConfig, What: "arena capacity (bytes, above zero)", Got: 0, Limit: 1}
	}
	if c.ThinkFraction == 0 {
		c.ThinkFraction = defaultThinkFraction
	}
	if c.HoldBytes == 0 {
		c.HoldBytes = c.Capacity / 4
	}
	if c.StagingBytes == 0 {
		c.StagingBytes, c.stagingOnTop = max(c.Capacity, minStagingBytes), true
	}
	if c.RemoteBlocks == 0 {
		c.RemoteBlocks = defaultRemoteBlocks
	}
	c.Shares.Peer = cmp.Or(c.Shares.Peer, defaultPeerShare)
	c.Shares.Peers = cmp.Or(c.Shares.Peers, defaultPeersShare)
	c.Shares.ReserveTime = cmp.Or(c.Shares.ReserveTime, defaultReserveTime)
	c.Shares.LeaseAge = cmp.Or(c.Shares.LeaseAge, defaultLeaseAge)
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.HostFree == nil {
		c.HostFree = func() uint64 { return math.MaxUint64 }
	}
	return c, nil
}

func (c Config) core() CoreConfig {
	return CoreConfig{
		Capacity: c.Capacity, ExtentBytes: c.ExtentBytes, ThinkFraction: c.ThinkFraction,
		Agent: c.Agent, Incarnation: c.Incarnation, HoldBytes: c.HoldBytes,
		RemoteBlocks: c.RemoteBlocks, Ahead: c.StagingAhead, Shares: c.Shares, Rand: c.Rand, Advise: hugePages,
	}
}
