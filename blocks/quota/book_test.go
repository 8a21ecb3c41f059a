package quota_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"meridian/blocks/quota"
	"meridian/wire"
)

func peer(name string) quota.Holder { return quota.Holder{Kind: quota.Peer, Name: name} }

func TestARefusalNamesHolderAmountLimitAndKey(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.ArenaBytes, quota.Peer, 1<<30)
	if _, err := b.Take(quota.ArenaBytes, 1<<29, peer("b")); err != nil {
		t.Fatal(err)
	}
	h, err := b.Take(quota.ArenaBytes, 1<<30, peer("b"))
	var e *quota.Error
	if h != nil || !errors.As(err, &e) || !errors.Is(err, wire.CodeFull) {
		t.Fatalf("got hold %v and error %v", h, err)
	}
	want := quota.Error{Rule: quota.Rule{Resource: quota.ArenaBytes, Kind: quota.Peer}, Holder: peer("b"), InUse: 1 << 29, Want: 1 << 30, Limit: 1 << 30}
	if *e != want {
		t.Errorf("got %+v, want %+v", *e, want)
	}
	for _, part := range []string{"peer b", "1 GiB of the arena", "has 512 MiB", "quota.peer_arena_share"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestOneHoldersUseIsNotAnothers(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.Sessions, quota.Peer, 2)
	for name, want := range map[string]int{"a": 2, "b": 2} {
		got := 0
		for {
			if _, err := b.Take(quota.Sessions, 1, peer(name)); err != nil {
				break
			}
			got++
		}
		if got != want {
			t.Errorf("%s got %d, want %d", name, got, want)
		}
	}
}

func TestTakeIsAllOrNothing(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.StagingBytes, quota.Engine, 100)
	b.SetLimit(quota.StagingBytes, quota.All, 150)
	engine := func(name string) quota.Holder { return quota.Holder{Kind: quota.Engine, Name: name} }
	if _, err := b.Take(quota.StagingBytes, 100, engine("1"), quota.Total); err != nil {
		t.Fatal(err)
	}
	_, err := b.Take(quota.StagingBytes, 51, engine("2"), quota.Total)
	var e *quota.Error
	if !errors.As(err, &e) || e.Holder != quota.Total {
		t.Fatalf("got %v, want a refusal of the total", err)
	}
	if n := b.Used(quota.StagingBytes, engine("2")); n != 0 {
		t.Errorf("a refused holder has %d", n)
	}
	if _, err := b.Take(quota.StagingBytes, 50, engine("2"), quota.Total); err != nil {
		t.Error(err)
	}
}

// What is given in exchange counts for the new amount, and is kept where that is refused.
func TestAnExchangeIsAllOrNothing(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.Sessions, quota.Peer, 2)
	b.SetLimit(quota.Sessions, quota.All, 3)
	var old []*quota.Hold
	for range 2 {
		h, err := b.Take(quota.Sessions, 1, peer("a"), quota.Total)
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, h)
	}
	if _, err := b.Take(quota.Sessions, 1, peer("b"), quota.Total); err != nil {
		t.Fatal(err)
	}
	used := func(want uint64) {
		t.Helper()
		if a, all := b.Used(quota.Sessions, peer("a")), b.Used(quota.Sessions, quota.Total); a != want || all != want+1 {
			t.Errorf("a has %d and all have %d, want %d and %d", a, all, want, want+1)
		}
	}
	var e *quota.Error
	if h, err := b.Exchange(old[:1], quota.Sessions, 2, peer("a"), quota.Total); h != nil || !errors.As(err, &e) || e.InUse != 1 {
		t.Errorf("2 for 1: %v, %v", h, err)
	}
	used(2)
	h, err := b.Exchange(append(old[:1], nil), quota.Sessions, 1, peer("a"), quota.Total)
	if err != nil {
		t.Fatal(err)
	}
	used(2)
	old[0].Give() // has nothing any more
	used(2)
	h.Give()
	used(1)
}

func TestAHoldIsGivenBackOnce(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.HalfOpen, quota.Source, 2)
	src := quota.SourceOf(netip.MustParseAddr("192.0.2.1"))
	first, _ := b.Take(quota.HalfOpen, 1, src)
	if _, err := b.Take(quota.HalfOpen, 1, src); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(first.Give)
	}
	wg.Wait()
	if n := b.Used(quota.HalfOpen, src); n != 1 {
		t.Errorf("after eight Gives of one hold %d are used, want 1", n)
	}
	(*quota.Hold)(nil).Give()
}

func TestAHolderNamedTwiceCountsOnce(t *testing.T) {
	var b quota.Book
	h, err := b.Take(quota.Namespaces, 5, peer("a"), peer("a"))
	if err != nil || b.Used(quota.Namespaces, peer("a")) != 5 {
		t.Fatalf("used %d, error %v", b.Used(quota.Namespaces, peer("a")), err)
	}
	h.Give()
	if n := b.Used(quota.Namespaces, peer("a")); n != 0 {
		t.Errorf("%d left", n)
	}
}

func TestAmountsNearTheLargestDoNotWrap(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.ArenaBytes, quota.Peer, math.MaxUint64)
	if _, err := b.Take(quota.ArenaBytes, math.MaxUint64-1, peer("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take(quota.ArenaBytes, 2, peer("a")); err == nil {
		t.Error("a sum above 2^64 was taken")
	}
	b.SetLimit(quota.ArenaBytes, quota.Peer, 10)
	if _, err := b.Take(quota.ArenaBytes, 1, peer("a")); err == nil {
		t.Error("a holder above a lowered limit got more")
	}
}

func TestAnIPv6HostIsItsPrefix(t *testing.T) {
	a := quota.SourceOf(netip.MustParseAddr("2001:db8:1:2:3::1"))
	if b := quota.SourceOf(netip.MustParseAddr("2001:db8:1:2:ffff::9")); a != b || a.Name != "2001:db8:1:2::/64" {
		t.Errorf("got %v and %v", a, b)
	}
	if m := quota.SourceOf(netip.MustParseAddr("::ffff:192.0.2.7")); m.Name != "192.0.2.7" {
		t.Errorf("a mapped address is %v", m)
	}
}

func TestShareStaysWithinTheTotal(t *testing.T) {
	for _, c := range []struct {
		total    uint64
		fraction float64
		want     uint64
	}{{100, 0.25, 25}, {100, 0, 0}, {100, -1, 0}, {100, math.NaN(), 0}, {100, 2, 100}, {math.MaxUint64, 1, math.MaxUint64}, {7, 0.5, 3}} {
		if got := quota.Share(c.total, c.fraction); got != c.want {
			t.Errorf("Share(%d, %v) = %d, want %d", c.total, c.fraction, got, c.want)
		}
	}
}

// Against a model: sums of what is held, checked after each step.
func TestBookAgreesWithAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b quota.Book
	b.SetLimit(quota.Namespaces, quota.Peer, 7)
	b.SetLimit(quota.Namespaces, quota.Tenant, 12)
	type held struct {
		h            *quota.Hold
		peer, tenant string
		n            uint64
	}
	var holds []held
	used := map[string]uint64{}
	for range 20000 {
		if len(holds) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(holds))
			x := holds[i]
			x.h.Give()
			used["p"+x.peer] -= x.n
			used["t"+x.tenant] -= x.n
			holds = append(holds[:i], holds[i+1:]...)
		} else {
			x := held{peer: string('a' + rune(rng.IntN(4))), tenant: string('x' + rune(rng.IntN(2))), n: uint64(rng.IntN(4))}
			fits := used["p"+x.peer]+x.n <= 7 && used["t"+x.tenant]+x.n <= 12
			h, err := b.Take(quota.Namespaces, x.n, peer(x.peer), quota.Holder{Kind: quota.Tenant, Name: x.tenant})
			if fits != (err == nil) {
				t.Fatalf("take %+v of %v: %v", x, used, err)
			}
			if x.h = h; err == nil {
				holds = append(holds, x)
				used["p"+x.peer] += x.n
				used["t"+x.tenant] += x.n
			}
		}
		for _, r := range b.Stats() {
			if r.Used > r.Limit {
				t.Fatalf("%s of %s: %d used, limit %d", r.Resource, r.Kind, r.Used, r.Limit)
			}
		}
	}
	for _, x := range holds {
		x.h.Give()
	}
	for _, r := range b.Stats() {
		if r.Used != 0 || r.Holders != 0 {
			t.Errorf("%s of %s: %d used by %d holders at the end", r.Resource, r.Kind, r.Used, r.Holders)
		}
		if r.Refused == 0 {
			t.Errorf("%s of %s: no refusal in the whole run", r.Resource, r.Kind)
		}
	}
}

// Each refusal is counted, of the account that refused; what takes nothing makes
// nobody a holder.
func TestTheBookCountsRefusalsAndHolders(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.Sessions, quota.Peer, 2)
	b.NoLimit(quota.Sessions, quota.All)
	row := func(k quota.Kind) quota.Row {
		t.Helper()
		for _, r := range b.Stats() {
			if r.Kind == k {
				return r
			}
		}
		t.Fatalf("no row of %s", k)
		return quota.Row{}
	}
	none, err := b.Take(quota.Sessions, 0, peer("a"), quota.Total)
	if r := row(quota.Peer); err != nil || r.Holders != 0 || r.Used != 0 {
		t.Errorf("after nothing was taken: %+v, %v", r, err)
	}
	one, err := b.Take(quota.Sessions, 2, peer("a"), quota.Total)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := b.Take(quota.Sessions, 1, peer("a"), quota.Total); err == nil {
			t.Fatal("beyond the limit")
		}
	}
	want := quota.Row{Rule: quota.Rule{Resource: quota.Sessions, Kind: quota.Peer}, Used: 2, Holders: 1, Limit: 2, Limited: true, Refused: 3}
	if r := row(quota.Peer); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if r := row(quota.All); r.Refused != 0 || r.Used != 2 || r.Holders != 1 || r.Limited {
		t.Errorf("the account without a limit: %+v", r)
	}
	one.Give()
	none.Give()
	if r := row(quota.Peer); r.Used != 0 || r.Holders != 0 || r.Refused != 3 {
		t.Errorf("at the end: %+v", r)
	}
}

// What is left of a resource that is parted is for a source what it leaves for others.
func TestASourceIsToldWhatItWouldBeGiven(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.StagingBytes, quota.All, 64)
	user := quota.Holder{Kind: quota.Source, Name: "user 7"}
	for _, want := range []uint64{64, 34, 4, 0} { // of 64, 49, 34, 32 that are free
		left := b.Left(quota.StagingBytes, user, quota.Total)
		if left != want {
			t.Errorf("%d are left, want %d", left, want)
		}
		n := min(left, 15)
		if n == 0 {
			_, err := b.Take(quota.StagingBytes, 1, user, quota.Total)
			if e, ok := errors.AsType[*quota.Error](err); !ok || !e.Free || e.Holder != user {
				t.Errorf("one byte more: %v", err)
			}
			break
		}
		if _, err := b.Take(quota.StagingBytes, n, user, quota.Total); err != nil {
			t.Errorf("%d of %d that are left: %v", n, left, err)
		}
	}
	if left := b.Left(quota.StagingBytes, quota.Total); left != 30 {
		t.Errorf("%d are left for others, want 30", left)
	}
}

// Of a resource that is parted a source has no more than is free then, whatever its limit:
// k sources that take all they can leave the part of one more. The refusal says whose
// limit it is. One that tries and waits is no refusal.
func TestSourcesThatTakeAllTheyCanLeaveAPartForOneMore(t *testing.T) {
	var b quota.Book
	b.SetLimit(quota.DataConns, quota.All, 64)
	b.SetLimit(quota.DataConns, quota.Source, 24)
	take := func(name string, n uint64) (*quota.Hold, error) {
		return b.Take(quota.DataConns, n, quota.Holder{Kind: quota.Source, Name: name}, quota.Total)
	}
	var got []uint64
	var refusals []string
	for _, name := range []string{"a", "b", "c"} {
		for {
			_, err := take(name, 1)
			if e, ok := errors.AsType[*quota.Error](err); ok {
				got, refusals = append(got, b.Used(quota.DataConns, e.Holder)), append(refusals, err.Error())
				break
			}
		}
	}
	if !slices.Equal(got, []uint64{24, 20, 10}) {
		t.Errorf("they have %d", got)
	}
	for i, want := range []string{
		"source a may have 24 connections to data planes and has 24; 1 more would exceed that (quota.source_data_connections)",
		"source b may have 20 connections to data planes, as many as are free, and has 20; 1 more would exceed that (quota.data_connections)",
		"source c may have 10 connections to data planes, as many as are free, and has 10; 1 more would exceed that (quota.data_connections)",
	} {
		if refusals[i] != want {
			t.Errorf("got %q, want %q", refusals[i], want)
		}
	}
	if _, err := take("d", 11); err == nil || !strings.Contains(err.Error(), "all holders together may have 64 connections") {
		t.Errorf("more than is left of the total: %v", err)
	}
	if _, err := b.Try(quota.DataConns, 100, quota.Total); err == nil {
		t.Error("more than there is")
	}
	for _, r := range b.Stats() {
		if want := map[quota.Kind]uint64{quota.All: 1, quota.Source: 3}[r.Kind]; r.Refused != want {
			t.Errorf("%s: %d refusals are counted, want %d", r.Kind, r.Refused, want)
		}
	}
}
