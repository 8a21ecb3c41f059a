package blocks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks/quota"
	"meridian/wire"
)

func (r *rig) ring(o Owner, n, least int, who ...quota.Holder) (int, error) {
	b, err := r.Staging(o, least, n, who...)
	return len(b), err
}

// total is all that the store has allocated.
func (r *rig) total() uint64 {
	st := r.Stats()
	return st.SegmentBytes + st.StagingBytes
}

// Rings and segments together stay within the capacity, no matter which comes first.
func TestRingsArePartOfTheCapacity(t *testing.T) {
	const capacity = 4 << 20
	r := newRig(t, func(c *Config) { c.StagingBytes = capacity / 2 })
	for i := range 40 { // fills the arena with idle blocks
		r.put(string('a'+rune(i)), bodyOf(keyOf("x"), 100_000))
	}
	limit := uint64(capacity) * 65 / 64 // the room for heads in front of power-of-two bodies is not counted
	var owners []Owner
	var sizes []int
	for {
		o := r.NewOwner(0)
		n, err := r.ring(o, 1<<20, 128<<10)
		if err != nil {
			var q *quota.Error
			if !errors.As(err, &q) || !errors.Is(err, wire.CodeBusy) || q.Rule != (quota.Rule{Resource: quota.StagingBytes, Kind: quota.All}) || q.Limit != capacity/2 {
				t.Fatalf("the refusal: %v", err)
			}
			break
		}
		owners, sizes = append(owners, o), append(sizes, n)
		if got := r.total(); got > limit {
			t.Fatalf("with %d rings the store has %d bytes, the capacity is %d", len(owners), got, capacity)
		}
	}
	// Half of what is left each time, down to the least.
	for i, want := range []int{1 << 20, 512 << 10, 256 << 10, 128 << 10, 128 << 10} {
		if i >= len(sizes) || sizes[i] != want {
			t.Fatalf("rings of %v bytes", sizes)
		}
	}
	for i := range 40 {
		r.put(string('A'+rune(i)), bodyOf(keyOf("x"), 100_000))
		if got := r.total(); got > limit {
			t.Fatalf("the arena grew to %d bytes beside the rings", got)
		}
	}
	for _, o := range owners {
		r.Drop(o)
	}
	if n, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil || n != 1<<20 {
		t.Errorf("after the engines left: %d, %v", n, err)
	}
	r.check()
}

// A ring evicts nothing that somebody holds, and a refusal evicts nothing at all.
func TestARingEvictsNoBlockThatIsHeld(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StagingBytes = 2 << 20 })
	var held []Lease
	for i := range 30 {
		name := string('a' + rune(i))
		r.put(name, bodyOf(keyOf("x"), 100_000))
		_, l := r.acquire(name, time.Hour, false)
		held = append(held, l)
	}
	before := r.Stats()
	if _, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); !errors.Is(err, wire.CodeBusy) {
		t.Errorf("a ring in a full arena of held blocks: %v", err)
	}
	if st := r.Stats(); st.Evictions != before.Evictions || st.Blocks != before.Blocks || st.SegmentBytes != before.SegmentBytes {
		t.Errorf("the refusal changed the arena: %+v", st)
	}
	for _, l := range held {
		r.Release(r.o, l)
	}
	if _, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil {
		t.Errorf("with idle blocks: %v", err)
	}
	r.check()
}

// What is kept ahead is there for the first ring: it evicts nothing.
func TestTheFirstRingEvictsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StagingBytes, c.StagingAhead = 2<<20, 1<<20 })
	for i := range 40 {
		r.put(string('a'+rune(i)), bodyOf(keyOf("x"), 100_000))
	}
	before := r.Stats().Evictions
	if n, err := r.ring(r.NewOwner(0), 1<<20, 1<<20); err != nil || n != 1<<20 {
		t.Fatalf("%d, %v", n, err)
	}
	if st := r.Stats(); st.Evictions != before {
		t.Errorf("evictions %v, before %v", st.Evictions, before)
	}
}

// A ring grows where it is: what lies in it stays, readable by the daemon under the
// same addresses and by the engine through a new map.
func TestARingGrowsInPlace(t *testing.T) {
	r := newRig(t, nil)
	o := r.NewOwner(0)
	if _, err := r.Staging(o, 4096, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Staging(o, 8192, 8192); err == nil || r.Stats().StagingBytes != 4096 {
		t.Errorf("growth beyond what the first call named: %v, %d bytes are counted", err, r.Stats().StagingBytes)
	}
	r.Drop(o)

	o = r.NewOwner(0)
	small, err := r.Staging(o, 5000, 1<<20, quota.Holder{Kind: quota.Engine, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	copy(small, "what was there")
	fd, size, err := r.StagingFD(o)
	if err != nil || size != uint64(len(small)) {
		t.Fatalf("a descriptor of %d bytes, the ring has %d, %v", size, len(small), err)
	}
	unix.Close(fd)
	large, err := r.Staging(o, 1<<20, 1<<20)
	if err != nil || len(large) != 1<<20 {
		t.Fatalf("%d bytes, %v", len(large), err)
	}
	if &large[0] != &small[0] {
		t.Error("the ring moved")
	}
	if fd, size, err = r.StagingFD(o); err != nil || size != 1<<20 {
		t.Fatalf("a descriptor of %d bytes, %v", size, err)
	}
	defer unix.Close(fd)
	engine := peerMap(t, fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if string(engine[:14]) != "what was there" {
		t.Errorf("the engine reads %q", engine[:14])
	}
	engine[size-1] = 7
	if large[size-1] != 7 {
		t.Error("daemon and engine have different memory")
	}
	again, err := r.Staging(o, 10, 1<<20)
	if err != nil || len(again) != 1<<20 || r.Stats().StagingBytes != 1<<20 {
		t.Errorf("a ring that suffices: %d bytes, %d counted, %v", len(again), r.Stats().StagingBytes, err)
	}
	r.Drop(o)
	if n := r.Stats().StagingBytes; n != 0 {
		t.Errorf("%d bytes are counted after Drop", n)
	}
	if _, _, err := r.StagingFD(o); err == nil {
		t.Error("a descriptor of a ring that is gone")
	}
}

// Each process and each tenant has a share of the rings, whatever the number of its
// connections, and a refusal names it. A refused growth leaves the ring as it is.
func TestRingsHaveShares(t *testing.T) {
	const rings = 1 << 20
	r := newRig(t, func(c *Config) {
		c.StagingBytes, c.Shares.EngineStaging, c.Shares.TenantStaging = rings, 0.5, 0.75
	})
	one, other := quota.Holder{Kind: quota.Engine, Name: "process 1"}, quota.Holder{Kind: quota.Engine, Name: "process 2"}
	acme, rest := quota.Holder{Kind: quota.Tenant, Name: "acme"}, quota.Holder{Kind: quota.Tenant, Name: "rest"}
	first := r.NewOwner(0)
	for o := first; ; o = r.NewOwner(0) {
		if _, err := r.ring(o, 256<<10, 64<<10, one, acme); err != nil {
			refusedShare(t, err, one, rings/2, "quota.engine_staging_share")
			break
		}
	}
	if n := r.Stats().StagingBytes; n > rings/2 || n < rings/2-64<<10 {
		t.Errorf("one process has %d of %d bytes", n, rings)
	}
	before := r.Stats()
	had, err := r.Staging(first, 1, 256<<10, one, acme)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Staging(first, 256<<10, 256<<10, one, acme)
	if len(had) < 256<<10 {
		refusedShare(t, err, one, rings/2, "quota.engine_staging_share")
	}
	if r.Stats() != before {
		t.Errorf("a refused growth changed %+v to %+v", before, r.Stats())
	}
	_, err = r.ring(r.NewOwner(0), 512<<10, 512<<10, other, acme)
	refusedShare(t, err, acme, rings/4*3, "quota.tenant_staging_share")
	if _, err := r.ring(r.NewOwner(0), 512<<10, 512<<10, other, rest); err != nil {
		t.Errorf("another process and tenant: %v", err)
	}
	_, err = r.ring(r.NewOwner(0), 64<<10, 64<<10, quota.Holder{Kind: quota.Engine, Name: "process 3"}, rest)
	refusedShare(t, err, quota.Total, rings, "quota.staging_share")
}

func refusedShare(t *testing.T, err error, who quota.Holder, limit uint64, key string) {
	t.Helper()
	var q *quota.Error
	if !errors.As(err, &q) || !errors.Is(err, wire.CodeBusy) || q.Rule.Resource != quota.StagingBytes || q.Holder != who || q.Limit != limit || q.Rule.Key() != key {
		t.Errorf("got %v, want a refusal of %s with limit %d (%s)", err, who, limit, key)
	}
}

// A ring that has what is asked for stays; one that has less gets what is missing,
// and no more than the limit leaves.
func TestARingGrowsByWhatIsMissing(t *testing.T) {
	const kib = 1 << 10
	r := newRig(t, func(c *Config) { c.StagingBytes = 64 * kib })
	for _, step := range []struct{ least, want int }{{4 * kib, 32 * kib}, {32 * kib, 32 * kib}, {32*kib + 1, 48 * kib}, {64 * kib, 64 * kib}} {
		b, err := r.Staging(r.o, step.least, 64*kib)
		if err != nil {
			t.Fatalf("%+v: %v", step, err)
		}
		if len(b) != step.want || r.Stats().StagingBytes != uint64(step.want) {
			t.Errorf("%+v: %d bytes, %d counted", step, len(b), r.Stats().StagingBytes)
		}
	}
	o := r.NewOwner(0)
	r.SetShares(Shares{}, 96*kib)
	if b, err := r.Staging(o, 4*kib, 64*kib); err != nil || len(b) != 16*kib {
		t.Fatalf("half of what is left: %d bytes, %v", len(b), err)
	}
	r.SetShares(Shares{}, 1<<20)
	if b, err := r.Staging(o, 20*kib, 64*kib); err != nil || len(b) != 64*kib {
		t.Errorf("with more left than it may have: %d bytes, %v", len(b), err)
	}
}

// A ring takes nothing that other engines are guaranteed and do not use; they, which are
// below their parts, get theirs.
func TestARingLeavesWhatOthersAreGuaranteed(t *testing.T) {
	const capacity = 4 << 20
	r := newRig(t, func(c *Config) {
		c.StagingBytes = capacity
		c.Shares.EngineGuaranteed = 0.5
	})
	engine := func(name string) Owner { return r.NewOwnerFor(quota.Holder{Kind: quota.Engine, Name: name}, 0) }
	greedy, idle := engine("greedy"), engine("idle")
	// Of what rings leave idle is guaranteed a quarter.
	if _, err := r.ring(greedy, 4<<20, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ring(greedy, 4<<20, 3<<20); err != nil {
		t.Fatalf("what is left beside idle's part: %v", err)
	}
	_, err := r.ring(greedy, 4<<20, 4<<20)
	wantCode(t, "a ring of idle's part", err, wire.CodeBusy)
	for _, part := range []string{"engine greedy", "quota.engine_guaranteed_share"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
	if _, err := r.ring(idle, 512<<10, 512<<10); err != nil {
		t.Errorf("idle's own part: %v", err)
	}
	// Of the daemon itself nothing is kept.
	if _, err := r.ring(r.NewOwner(0), 256<<10, 256<<10); err != nil {
		t.Errorf("the daemon's own: %v", err)
	}
}
