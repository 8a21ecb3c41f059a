package door

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/wire"
)

// A place that comes free goes to the waiting source that has the fewest; who is put out
// or waits too long has no turn, and loses nobody else's.
func TestPlacesAreGivenToTheSourceWithTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{})
		s := NewShares("places", 8)
		from := func(source string) *Conn {
			here, there := net.Pipe()
			_ = there.Close()
			return &Conn{Conn: here, door: d, source: netip.MustParseAddr(source), out: make(chan struct{})}
		}
		greedy, second := from("192.0.2.1"), from("192.0.2.2")
		for _, c := range []*Conn{greedy, greedy, greedy, greedy, second, second} {
			if err := s.Wait(c, 0); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var order []string
		errs := map[string]error{}
		wait := func(name string, c *Conn, within time.Duration) {
			go func() {
				err := s.Wait(c, within)
				mu.Lock()
				defer mu.Unlock()
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
		for range 2 {
			s.Give(greedy.source, 1)
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
		s.Give(second.source, 3)
		s.Give(greedy.source, 3)
		if s.Used() != 0 || len(s.of) != 0 || s.waiting != 0 {
			t.Errorf("%d are used by nobody, %d sources, %d wait", s.Used(), len(s.of), s.waiting)
		}
	})
}
