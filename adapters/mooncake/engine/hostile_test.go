package engine

import (
	"testing"
	"testing/synctest"
	"time"

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
