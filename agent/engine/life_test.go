package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks"
	"meridian/scheduler"
)

// A request that falls silent is given up in its time, however old the daemon is, and
// not before: each sign of life counts.
func TestASilentRequestIsGivenUpInItsTimeWhateverTheDaemonsAge(t *testing.T) {
	for _, age := range []time.Duration{0, time.Second, 1000 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store, err := blocks.Open(blocks.Config{Capacity: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			srv := &Server{start: time.Now(), cfg: Config{Store: store, Scheduler: scheduler.Config{ReapAfter: scheduler.Time(time.Minute)}}}
			g := newGroup(srv, accountOf(0))
			defer g.life.close()
			given := func() uint64 {
				synctest.Wait()
				return g.life.stats().Events[scheduler.Reaped]
			}
			time.Sleep(age)
			for id := range uint32(2) {
				if err := g.life.begin(id+1, scheduler.Input{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
			}
			time.Sleep(20*time.Second - time.Nanosecond)
			if n := given(); n != 0 {
				t.Errorf("age %v: %d requests were given up after less than a minute", age, n)
			}
			for want := range uint64(2) {
				time.Sleep(time.Nanosecond)
				if n := given(); n != want+1 {
					t.Errorf("age %v: %d requests were given up in their minute, want %d", age, n, want+1)
				}
				time.Sleep(20*time.Second - time.Nanosecond)
			}
		})
	}
}
