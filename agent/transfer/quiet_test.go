package transfer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// noisyFabric fails each pull with memory that it may still touch, and cannot say
// that it is quiet until it is.
type noisyFabric struct {
	*synthetic.Fabric
	quiet atomic.Bool
	asked atomic.Int32
}

func (f *noisyFabric) Pull(_ context.Context, it []fabric.Item) {
	for i := range it {
		it[i].Err, it[i].Loose = wire.CodeNoProgress, true
	}
}

func (f *noisyFabric) Quiesce(context.Context) error {
	f.asked.Add(1)
	if !f.quiet.Load() {
		return wire.CodeBusy
	}
	return nil
}

// A fabric whose Quiesce fails is not quiet: what it may still touch stays out of
// use, and it is asked again until it answers.
func TestASlotStaysOutOfUseUntilQuiesceSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &noisyFabric{Fabric: synthetic.New(synthetic.Options{})}
		defer f.Close()
		r := newRig(t, nil, map[string]fabric.Fabric{"noisy": f})
		keys := r.keys("k", 2)
		r.give(f, keys, 4096)
		for i, err := range r.fetch(t.Context(), keys) {
			if err == nil {
				t.Errorf("block %d came from a fabric that gives none", i)
			}
		}
		sleep(t.Context(), 10*quietRetry)
		synctest.Wait()
		if n := f.asked.Load(); n < 5 {
			t.Errorf("in ten pauses it was asked %d times", n)
		}
		if err := r.settleQuarantine(t.Context()); !errors.Is(err, wire.CodeBusy) {
			t.Errorf("an end with a fabric that is not quiet: %v", err)
		}
		if st := r.store.Stats(); st.Quarantined == 0 {
			t.Errorf("no slot is out of use though Quiesce failed %d times", f.asked.Load())
		}
		f.quiet.Store(true)
		sleep(t.Context(), 2*quietRetry)
		synctest.Wait()
		if st := r.store.Stats(); st.Quarantined != 0 || st.Reserved != 0 {
			t.Errorf("%d slots are out of use and %d reserved after the fabric was quiet", st.Quarantined, st.Reserved)
		}
	})
}
