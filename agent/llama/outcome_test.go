package llama

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"meridian/agent/openai"
)

// A request counts once, when it has ended: what was counted is never taken back.
func TestARequestCountsWhenItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, stop := context.WithCancel(t.Context())
		defer stop()
		n := down(run)
		ask, cancel := context.WithCancel(run)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := n.Generate(ask, &openai.Request{}, nil); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := n.Stats(); s.Answered+s.Failed+s.Cancelled != 0 {
			t.Errorf("while they run: %d answered, %d failed, %d cancelled", s.Answered, s.Failed, s.Cancelled)
		}
		cancel()
		all.Wait()
		if _, err := n.Generate(run, &openai.Request{}, nil); err == nil { // the time for a server is over
			t.Error("a node without a server answers")
		}
		if s := n.Stats(); s.Answered != 0 || s.Failed != 1 || s.Cancelled != 10 {
			t.Errorf("afterwards: %d answered, %d failed, %d cancelled", s.Answered, s.Failed, s.Cancelled)
		}
	})
}
