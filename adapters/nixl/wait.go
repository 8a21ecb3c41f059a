package nixl

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"meridian/adapters/nixl/control"
)

// Who waits for an answer of the helper receives it by itself, where it comes soon: to wake
// another goroutine, and a processor for it, takes longer than many a transfer of a block.
//
//	1  wait takes the lead, where nobody else receives
//	2  it sleeps until shortly before the answer is due, as pace guesses
//	3  it looks for it, without sleeping, for control.LookTime at most
//	4  it sleeps, and gives the lead back with the answer, or after leadTime
//
// receive has the lead while nobody waits.
const (
	// leadTime is how long a caller receives. Its context is looked at before and after.
	leadTime = 2 * time.Millisecond
	// callersTime is how long callers are left the lead after an answer.
	callersTime = time.Millisecond
	// early is how long before an answer is due a caller wakes: the kernel's timers are up
	// to 50 µs late, and an idle processor wakes in tens of µs.
	early = 100 * time.Microsecond
)

// landing is an answer to one of the requests that a caller waits for.
type landing struct {
	of int // the caller's number for it
	m  control.Message
}

// receive takes what the helper says while no caller does, until its end.
func (p *process) receive() {
	for {
		select {
		case <-p.lead:
		case <-p.quit:
			return
		}
		answers := false
		for wait := forever; ; wait = 0 {
			m, ok := p.hear(wait)
			if !ok {
				return // nobody receives any more
			}
			if m == nil && wait == 0 {
				break
			}
			answers = answers || answer(m)
		}
		p.lead <- struct{}{}
		if !answers {
			continue
		}
		select {
		case <-p.quit:
			return
		case <-p.alone:
		case <-time.After(callersTime):
		}
	}
}

// forever is a wait that ends with what comes.
const forever time.Duration = -1

// hear receives a message, where one comes within a time. false: there are no more, and
// whoever waits hears why.
func (p *process) hear(wait time.Duration) (control.Message, bool) {
	m, _, err := p.conn.ReceiveWithin(wait)
	if err == nil && m != nil {
		err = p.take(m)
	}
	if err != nil {
		go p.end(err)
	}
	return m, err == nil
}

// answer says that a message is one.
func answer(m control.Message) bool {
	switch m.(type) {
	case nil, *control.Notified, *control.Uses:
		return false
	}
	return true
}

// wait waits for one of a caller's answers, which is due at a time; zero: nobody knows.
func (p *process) wait(ctx context.Context, got <-chan landing, due time.Time) (landing, error) {
	lead := p.lead
	if time.Until(due) > leadTime { // a wake-up is nothing beside that
		lead = nil
		p.leave()
	}
	for {
		select {
		case l := <-got:
			return l, nil
		case <-ctx.Done():
			return landing{}, context.Cause(ctx)
		case <-lead:
		}
		l, ok := p.receiveFor(got, due)
		if ok {
			return l, nil
		}
		lead = nil // the helper has ended, or takes its time
	}
}

// leave says that no caller receives.
func (p *process) leave() {
	select {
	case p.alone <- struct{}{}:
	default:
	}
}

// receiveFor receives until one of the caller's answers has come, for leadTime. It has the
// lead, and gives it back.
func (p *process) receiveFor(got <-chan landing, due time.Time) (landing, bool) {
	now := time.Now()
	until, wake, look := now.Add(leadTime), due.Add(-early), now.Add(control.LookTime)
	if due.After(now) {
		look = due.Add(control.LookTime)
	}
	looks, looking := p.looks.May(), false
	for {
		var wait time.Duration
		switch {
		case looks && now.Before(wake):
			wait = wake.Sub(now)
		case looks && now.Before(look):
			looking = true
		case looks:
			p.looks.Miss()
			looks, looking = false, false
			fallthrough
		default:
			wait = until.Sub(now)
		}
		if _, ok := p.hear(wait); !ok {
			return landing{}, false // the lead is nobody's any more
		}
		select {
		case l := <-got:
			if looking {
				p.looks.Hit()
			}
			p.lead <- struct{}{}
			return l, true
		default:
		}
		if now = time.Now(); now.After(until) {
			p.lead <- struct{}{}
			p.leave()
			return landing{}, false
		}
	}
}

// ask makes a request and waits for the answer.
func ask[A control.Message](ctx context.Context, p *process, m control.Numbered, fd int) (answer A, err error) {
	got := make(chan landing, 1)
	if err := p.begin(m, fd, func(m control.Message) { got <- landing{m: m} }); err != nil {
		return answer, err
	}
	l, err := p.wait(ctx, got, time.Time{})
	if err != nil {
		return answer, err
	}
	switch m := l.m.(type) {
	case A:
		return m, nil
	case *control.Failed:
		return answer, p.refused(m)
	default:
		err := fmt.Errorf("%s answered %T", program, m)
		go p.end(err)
		return answer, err
	}
}

// pace is how fast the transfers of one direction go, to guess when one is due.
type pace struct {
	mib atomic.Int64 // nanoseconds of a MiB, a mean of the last transfers; 0: none was made
}

// paceWeight is that of the mean, to 1 of the last transfer.
const paceWeight = 7

// took takes what a transfer has taken; one that was held up counts for no more than twice
// the mean.
func (p *pace) took(bytes uint64, d time.Duration) {
	now := int64(float64(d) / float64(bytes) * (1 << 20))
	if was := p.mib.Load(); was > 0 {
		now = (was*paceWeight + min(now, 2*was)) / (paceWeight + 1)
	}
	p.mib.Store(max(now, 1))
}

// course is the transfers of one call, in the order in which they were begun.
type course struct {
	pace  *pace
	under []leg
	last  time.Time // when one has ended
}

type leg struct {
	bytes uint64
	began time.Time
}

// begun takes a transfer that is under way now.
func (c *course) begun(bytes uint64) { c.under = append(c.under, leg{bytes, time.Now()}) }

// since is when the helper can have begun with the first one.
func (c *course) since() time.Time {
	if began := c.under[0].began; began.After(c.last) {
		return began
	}
	return c.last
}

// due is when the next one should end; zero: nobody knows.
func (c *course) due() time.Time {
	mib := c.pace.mib.Load()
	if mib == 0 {
		return time.Time{}
	}
	return c.since().Add(time.Duration(float64(mib) * float64(c.under[0].bytes) / (1 << 20)))
}

// ended takes the end of one; well says whether its time says something.
func (c *course) ended(well bool) {
	now := time.Now()
	if well {
		c.pace.took(c.under[0].bytes, now.Sub(c.since()))
	}
	c.under, c.last = c.under[1:], now
}
