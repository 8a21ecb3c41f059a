package engine

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/blocks/quota"
	"meridian/wire"
)

// A peer that always makes some progress must not hold memory for as long as it likes:
// its length is the peer's word, and memory cannot be freed while somebody is in it.
func TestABodyThatIsAlwaysSlowEnds(t *testing.T) {
	const parts = 40
	synctest.Test(t, func(t *testing.T) {
		f := newFar(TargetConfig{}, parts*part)
		c := f.dial(t)
		began := time.Now()
		send(t, c, head(0x81, base, parts*part))
		sent, err := 0, error(nil)
		for b := make([]byte, part); err == nil && sent < parts; sent++ {
			time.Sleep(ProgressTime - time.Second)
			_, err = c.Write(b)
		}
		if took := time.Since(began); err == nil || took > BodyTime+ProgressTime {
			t.Errorf("%d of %d parts were taken in %v: %v", sent, parts, took, err)
		}
		f.only(t, wire.CodeNoProgress, "receiving a body")
		_ = c.Close()
		f.target.Close()
		if f.in != 0 {
			t.Errorf("%d accesses were never left", f.in)
		}
	})
}

// Sources that read nothing, each on many connections, leave places for one more; who
// finds none in time is refused.
func TestPeersThatNeverReadLeaveRoomForOthers(t *testing.T) {
	const many = 40
	bubble(t, TargetConfig{Doors: limited(quota.DataReads, 8, 8)}, func(t *testing.T, f *far) {
		for _, source := range []string{"192.0.2.8:1", "192.0.2.9:1"} {
			for range many {
				c, err := f.From(t.Context(), source)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				send(t, c, head(0x80, base, 4096))
			}
		}
		synctest.Wait()
		if n := f.target.sends.Used(); n != 6 || f.in != int(n) { // 4 of the first, 2 of the second
			t.Errorf("%d places are used, %d accesses are in", n, f.in)
		}
		other, began := f.dial(t), time.Now()
		for range 100 {
			send(t, other, head(0x80, base, 4096))
			receive(t, other, statusLen+4096)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("another source waited for %v", took)
		}
		_ = other.Close()
		time.Sleep(StatusTime + 2*ProgressTime)
		synctest.Wait()
		codes := map[wire.Code]int{}
		f.mu.Lock()
		for _, err := range f.refused {
			codes[wire.CodeOf(err)]++
		}
		f.mu.Unlock()
		if slow, busy := codes[wire.CodeNoProgress], codes[wire.CodeBusy]; slow < 6 || busy == 0 || slow+busy != 2*many {
			t.Errorf("refused: %v", codes)
		}
		if n := f.target.sends.Used(); n != 0 || f.target.Conns() != 0 {
			t.Errorf("%d places, %d connections are left", n, f.target.Conns())
		}
	})
}

// An engine without its pool opens a connection for each request of a batch: they are
// served in turn, however few the places are.
func TestConnectionsOfABatchAreServedInTurn(t *testing.T) {
	bubble(t, TargetConfig{Doors: limited(quota.DataReads, 2, 2)}, func(t *testing.T, f *far) {
		var all sync.WaitGroup
		for i := range 200 {
			c := f.dial(t)
			all.Go(func() {
				defer func() { _ = c.Close() }()
				_, err := c.Write(head(0x80, base+uint64(i), 1))
				b := make([]byte, statusLen+1)
				if err == nil {
					time.Sleep(100 * time.Millisecond) // of the way
					_, err = io.ReadFull(c, b)
				}
				if err != nil || b[statusLen] != byte(i) {
					t.Errorf("connection %d: % x, %v", i, b, err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if len(f.refused) != 0 || len(f.served) != 200 {
			t.Errorf("%d served, refused: %v", len(f.served), f.refused)
		}
	})
}

// What waits for a place ends with its target.
func TestATargetThatClosesWaitsForNoPlace(t *testing.T) {
	bubble(t, TargetConfig{Doors: limited(quota.DataReads, 2, 2)}, func(t *testing.T, f *far) {
		var conns []net.Conn
		for i := range 4 {
			c := f.dial(t)
			conns = append(conns, c)
			send(t, c, head(0x80, base+uint64(i), 1))
		}
		synctest.Wait()
		began := time.Now()
		f.target.Close()
		if took := time.Since(began); took != 0 || f.target.sends.Used() != 0 {
			t.Errorf("closed after %v, %d places are used", took, f.target.sends.Used())
		}
		for _, c := range conns {
			_ = c.Close()
		}
	})
}
