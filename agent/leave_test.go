package agent

import (
	"cmp"
	"context"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

// A holder from which a load comes is silent when the daemon drains. If it wakes, the
// load ends well; if the link gives it up, the engine is told, and the drain ends.
func TestADrainWaitsForASilentHolderUntilTheLinkGivesItUp(t *testing.T) {
	for name, verdict := range map[string]error{"it wakes": nil, "it does not": &fabric.Error{Code: wire.CodeNoProgress, Fabric: "far"}} {
		t.Run(name, func(t *testing.T) {
			h := waitingHolder(t)
			wait := h.pull
			h.pull = func(ctx context.Context, it []fabric.Item) {
				wait(ctx, it)
				for i := range it {
					it[i].Err = cmp.Or(verdict, it[i].Err)
				}
			}
			n, e, keys := h.holds(t, 2, 4<<10)
			got, ended := make(chan []error, 1), make(chan error, 1)
			go func() { got <- e.fetch(t, keys) }()
			<-h.pulling
			go func() { ended <- n.Drain(context.Background()) }()
			until(t, "the engine is told", func() bool { return e.Draining() })
			select {
			case err := <-ended:
				t.Fatalf("the drain has not waited: %v", err)
			default:
			}
			h.let()
			for i, err := range <-got {
				if wire.CodeOf(err) != wire.CodeOf(verdict) {
					t.Errorf("block %d: %v, want %v", i, err, verdict)
				}
			}
			if err := <-ended; err != nil {
				t.Errorf("drain: %v", err)
			}
		})
	}
}
