package real

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// part is what one arm did in one round.
type part struct {
	samples [2][]*sample // the counted ones, by class, in the order of clients and requests
	took    time.Duration
	before  series // nil: not known
	after   series

	alone, storm *sample // the stream without and with long prompts
	prompts      []*sample
}

// load has the clients of both classes ask in a closed loop.
func (o *Options) load(ctx context.Context, n *node, round int) *part {
	p := &part{}
	filling, full := context.WithCancel(ctx) // ends what is not counted
	defer full()
	var left atomic.Int64
	left.Store(int64(o.Interactive + o.Background))
	var clients sync.WaitGroup
	began := time.Now()
	for c, count := range []int{o.Interactive, o.Background} {
		p.samples[c] = make([]*sample, count*o.Requests)
		for client := range count {
			clients.Go(func() {
				for i := range o.Requests {
					p.samples[c][client*o.Requests+i] = n.ask(ctx, o.draw(class(c), round, client, i))
				}
				if left.Add(-1) == 0 {
					full()
				}
				for i := o.Requests; filling.Err() == nil && i < maxFill; i++ {
					if n.ask(filling, o.draw(class(c), round, client, i)).err != nil {
						return
					}
				}
			})
		}
	}
	clients.Wait()
	p.took = time.Since(began)
	return p
}

// maxFill bounds a client's requests; draw knows no more of them.
const maxFill = 1 << 16

// blow streams an answer alone, and then another into which long prompts come.
func (o *Options) blow(ctx context.Context, n *node, p *part, round int) {
	if o.Storm.Answer == 0 {
		return
	}
	p.alone = n.ask(ctx, o.draw(stream, round, 0, 0))
	p.prompts = make([]*sample, o.Storm.Clients*o.Storm.Prompts)
	var clients sync.WaitGroup
	var begin sync.Once
	prompts := func() {
		for client := range o.Storm.Clients {
			clients.Go(func() {
				for i := range o.Storm.Prompts {
					p.prompts[client*o.Storm.Prompts+i] = n.ask(ctx, o.draw(storm, round, client, i))
				}
			})
		}
	}
	q := o.draw(stream, round, 0, 1)
	q.begun = func() { begin.Do(prompts) }
	p.storm = n.ask(ctx, q)
	q.begun() // it may have had no token
	clients.Wait()
}

// order is in which order the arms have their turn in a round: each is first as often as
// the others.
func order(arms, round int) []int {
	all := make([]int, arms)
	for i := range all {
		all[i] = (i + round) % arms
	}
	return all
}

// failures counts the samples that have no answer: refused or broken off, and not yet
// answered when the time was over. first is the first error of those that failed.
func failures(all []*sample) (failed, unfinished int, first error) {
	for _, s := range all {
		switch {
		case s.err == nil:
		case errors.Is(s.err, context.Canceled), errors.Is(s.err, context.DeadlineExceeded):
			unfinished++
		default:
			failed++
			if first == nil {
				first = s.err
			}
		}
	}
	return failed, unfinished, first
}
