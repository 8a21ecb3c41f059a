package measure

import (
	"errors"
	"sync"
	"time"
)

// During runs f in n goroutines for d. It returns how long each call took, and
// how long all of it: each goroutine calls f at least once, however late a busy
// machine lets it begin, and a call that has begun is finished.
func During(n int, d time.Duration, f func(worker int) error) (took []time.Duration, elapsed time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	began := time.Now()
	end := began.Add(d)
	for w := range n {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for t := time.Now(); ; {
				if err = f(w); err != nil {
					break
				}
				now := time.Now()
				mine = append(mine, now.Sub(t))
				if t = now; !t.Before(end) {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took, errs = append(took, mine...), append(errs, err)
		})
	}
	wg.Wait()
	return took, time.Since(began), errors.Join(errs...)
}
