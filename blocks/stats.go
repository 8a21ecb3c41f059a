package blocks

import "meridian/wire"

// Stats is a snapshot. Counters (the lower half) only rise; slots and blocks
// are counted one by one, bytes with the room that their size class gives them.
type Stats struct {
	Capacity, Used, Free uint64    // bytes; Free is Capacity - Used, idle blocks count as used
	SegmentBytes         uint64    // of all segments' memory, generation tables excluded
	StagingBytes         uint64    // of all staging rings
	Segments, Extents    int       // that have memory
	SegmentsRefused      uint64    // segments for which the kernel had no memory
	AheadBytes           uint64    // made by Prepare and in no segment yet
	AheadWaits           uint64    // segments that a reservation waited for, because none was ready
	AheadRefused         uint64    // pieces that Prepare could not make, because the kernel had no memory
	Blocks               [3]int    // published, by tier
	BlockBytes           [3]uint64 // likewise
	IdleBytes            [3]uint64 // likewise, of those that nobody references: what can be evicted
	Transient            int       // blocks that only their owner finds
	Reserved             int       // slots reserved or being written
	ReservedBytes        uint64
	Quarantined          int // slots out of use until their last reference or late writer lets go
	QuarantinedBytes     uint64
	Leases, Holds        int // live leases; those of them that hold
	HoldBytes            uint64
	AgedHolds            int // holds past their time
	Pins                 int // live hand-off pins
	PinBytes             uint64
	Owners, Orphans      int // live; dropped with holds whose process still runs
	Remote               int // copies outside that are remembered
	Leaked               int // slots or references that no account explains: must stay 0

	Lookups, Hits       uint64    // keys
	Evictions           [3]uint64 // by tier
	LiveEvictions       uint64    // OutputCritical blocks of running requests: alert on it
	Offloaded           uint64    // slots freed because a copy was acknowledged
	OffloadedBytes      uint64    // body bytes of those
	Copies, CopyFailed  uint64    // Moved reports
	MovedStale          uint64    // Moved reports of slots that hold something else by now
	Commits, Exists     uint64    // published or transient; refused because the key is there
	ReservedTotal       uint64    // slots
	ReservationsExpired uint64    // slots whose deadline passed
	ReservationsAborted uint64    // slots given back by Abort or Drop
	Full                uint64    // Reserve calls refused
	LeasesGranted       uint64
	LeasesLapsed        uint64
	HoldsAged           uint64
	PinsEnded           [PinEnds]uint64
	Followed            uint64 // evicted blocks that somebody followed, counted for each
	Verified            uint64 // payloads hashed again by Verify or VerifyAlways
	ChecksumFailures    uint64
}

// counters are the parts of Stats that the core counts as it goes.
type counters struct {
	lookups, hits                            uint64
	evictions                                [3]uint64
	liveEvictions, offloaded, offloadedBytes uint64
	copies, copiesFailed, movedStale         uint64
	commits, exists, reserved, full          uint64
	reservationsExpired, reservationsAborted uint64
	leasesGranted, leasesLapsed, holdsAged   uint64
	checksumFailures                         uint64
	holdBytes                                uint64
	agedHolds, orphans                       int
}

// Stats returns the core's numbers.
func (c *Core) Stats() Stats {
	n := &c.n
	st := Stats{
		Capacity: c.cfg.Capacity, Used: c.usedBytes(), Free: c.freeBytes(),
		SegmentBytes: uint64(c.extents) * c.geo.pitch, Extents: c.extents,
		Blocks: c.tierCount, BlockBytes: c.tierBytes, IdleBytes: c.idleBytes,
		Transient: c.count[transient], Reserved: c.count[reserved] + c.count[writing],
		ReservedBytes:    c.bytes[reserved] + c.bytes[writing],
		Quarantined:      c.count[doomed] + c.count[late],
		QuarantinedBytes: c.bytes[doomed] + c.bytes[late],
		Leases:           len(c.leases.of), Holds: c.leases.holds, HoldBytes: n.holdBytes, AgedHolds: n.agedHolds,
		Pins: c.pins.n, PinBytes: c.pins.bytes, PinsEnded: c.pins.ended, Followed: c.follows.told,
		Owners: c.owners.live, Orphans: n.orphans, Remote: c.remotes.n, Leaked: c.leaked(),
		Lookups: n.lookups, Hits: n.hits, Evictions: n.evictions, LiveEvictions: n.liveEvictions,
		Offloaded: n.offloaded, OffloadedBytes: n.offloadedBytes, Copies: n.copies, CopyFailed: n.copiesFailed, MovedStale: n.movedStale,
		Commits: n.commits, Exists: n.exists, ReservedTotal: n.reserved,
		ReservationsExpired: n.reservationsExpired, ReservationsAborted: n.reservationsAborted,
		Full: n.full, LeasesGranted: n.leasesGranted, LeasesLapsed: n.leasesLapsed, HoldsAged: n.holdsAged,
		ChecksumFailures: n.checksumFailures,
	}
	for i := range c.segs {
		if c.segs[i].id != 0 {
			st.Segments++
		}
	}
	return st
}

// leaked compares accounts that are kept apart: slots by state against slots
// cut, published slots against tiers, references against leases and pins.
func (c *Core) leaked() (n int) {
	total := 0
	for _, k := range c.count {
		total += k
	}
	n += distance(total, c.slots)
	n += distance(c.count[published], c.tierCount[wire.ThinkComplete]+c.tierCount[wire.ThinkActive]+c.tierCount[wire.OutputCritical])
	n += distance(c.refs, c.leasePins+c.otherPins)
	return n
}

func distance(a, b int) int { return max(a-b, b-a) }
