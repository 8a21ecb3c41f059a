package door

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
)

// A place that comes free goes to the waiting source that has the fewest; who is put out
// or waits too long has no turn, and loses nobody else's.
func TestPlacesAreGivenToTheSourceWithTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{})
		s := limited(quota.DataReads, 8, 8).Of(quota.DataReads)
		from := func(source string) *Conn {
			here, there := net.Pipe()
			_ = there.Close()
			return &Conn{Conn: here, door: d, source: quota.SourceOf(netip.MustParseAddr(source)), out: make(chan struct{})}
		}
		greedy, second := from("192.0.2.1"), from("192.0.2.2")
		var parts []Part
		for _, c := range []*Conn{greedy, greedy, greedy, greedy, second, second} {
			p, err := s.Wait(c, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
		held := slices.Clone(parts)
		var mu sync.Mutex
		var order []string
		errs := map[string]error{}
		wait := func(name string, c *Conn, within time.Duration) {
			go func() {
				p, err := s.Wait(c, 1, within)
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, p)
				errs[name] = err
				order = append(order, name)
			}()
			synctest.Wait()
		}
		evicted := from("192.0.2.1")
		wait("evicted", evicted, time.Hour)
		wait("late", greedy, time.Second)
		wait("greedy", greedy, time.Hour)
		wait("second", second, time.Hour)
		evicted.putOut(wire.CodeTooMany)
		time.Sleep(time.Second)
		synctest.Wait()
		for _, p := range held[:2] {
			p.Give()
			p.Give() // counts once
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{"evicted", "late", "second", "greedy"}
		for i, name := range want {
			if len(order) != len(want) || order[i] != name {
				t.Fatalf("in the order %v, want %v", order, want)
			}
		}
		if !errors.Is(errs["evicted"], net.ErrClosed) || wire.CodeOf(errs["late"]) != wire.CodeBusy || errs["second"] != nil || errs["greedy"] != nil {
			t.Errorf("%v", errs)
		}
		for _, p := range parts {
			p.Give()
		}
		if s.Used() != 0 || len(s.queues) != 0 || s.waiting.Load() != 0 {
			t.Errorf("%d are used by nobody, %d sources, %d wait", s.Used(), len(s.queues), s.waiting.Load())
		}
	})
}

// What a reload lets a source have comes to who waits already.
func TestARaisedLimitComesToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book quota.Book
		book.SetLimit(quota.DataReads, quota.All, 1)
		s := NewCommon(&book).Of(quota.DataReads)
		here, there := net.Pipe()
		defer func() { _, _ = here.Close(), there.Close() }()
		c := &Conn{Conn: here, door: New(Config{}), source: quota.SourceOf(netip.MustParseAddr("192.0.2.1")), out: make(chan struct{})}
		first, err := s.Wait(c, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(c, 1, time.Second); err == nil || err.Error() != "none came free for 1s: all holders together may have 1 reads under way at data planes and has 1; 1 more would exceed that (quota.data_reads)" {
			t.Error(err)
		}
		done := make(chan Part)
		go func() {
			p, err := s.Wait(c, 1, time.Minute)
			if err != nil {
				t.Error(err)
			}
			done <- p
		}()
		synctest.Wait()
		book.SetLimit(quota.DataReads, quota.All, 4)
		(<-done).Give()
		first.Give()
		if s.Used() != 0 {
			t.Errorf("%d are used by nobody", s.Used())
		}
		if refused := book.Stats()[0].Refused; refused != 1 {
			t.Errorf("%d refusals are counted, want that of the one who waited in vain", refused)
		}
	})
}
