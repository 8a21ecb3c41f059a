package nixl

import (
	"context"
	"fmt"
	"time"

	"meridian/adapters/nixl/control"
)

// Who waits for an answer of the helper receives it by itself, where it comes soon: to wake
// another goroutine, and a processor for it, takes longer than many a transfer of a block.
//
//	1  wait takes the lead, where nobody else receives, and receive is not woken any more
//	2  it sleeps until shortly before the answer is due, as its pace says
//	3  it looks for it, without sleeping, for control.LookTime more at most
//	4  it gives the lead back, with the answer or without
//
// receive hears everything else, in the run-time's poller.
const (
	// soon is the time within which an answer is worth to be looked for: beside more, a
	// wake-up is little.
	soon = 500 * time.Microsecond
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
	for p.conn.Await() == nil {
		select {
		case <-p.lead:
		case <-p.quit:
			return
		}
		for {
			m, ok := p.hear(0)
			if !ok {
				return // nobody receives any more
			}
			if m == nil {
				break
			}
		}
		p.lead <- struct{}{}
	}
}

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

// due is when an answer is expected.
type due struct {
	at    time.Time // zero: nobody knows
	looks bool      // it is worth to be looked for
}

// wait waits for one of a caller's answers.
func (p *process) wait(ctx context.Context, got <-chan landing, d due) (landing, error) {
	if d.looks && time.Until(d.at) <= soon {
		select {
		case <-p.lead:
			p.look(got, d.at)
		default: // another one receives
		}
	}
	select {
	case l := <-got:
		return l, nil
	case <-ctx.Done():
		return landing{}, context.Cause(ctx)
	}
}

// look receives until one of the caller's answers has come, or LookTime after it is due. It
// has the lead, and gives it back.
func (p *process) look(got <-chan landing, due time.Time) {
	if !p.looks.May() {
		p.lead <- struct{}{}
		return
	}
	p.conn.Hear(false)
	now := time.Now()
	wake, until := due.Add(-early), now.Add(control.LookTime)
	if due.After(now) {
		until = due.Add(control.LookTime)
	}
	for ; len(got) == 0; now = time.Now() {
		if now.After(until) {
			p.looks.Miss()
			break
		}
		if _, ok := p.hear(max(0, wake.Sub(now))); !ok {
			return // nobody receives any more
		}
		if len(got) > 0 && now.After(wake) {
			p.looks.Hit()
		}
	}
	p.conn.Hear(true)
	p.lead <- struct{}{}
}

// ask makes a request and waits for the answer.
func ask[A control.Message](ctx context.Context, p *process, m control.Numbered, fd int) (answer A, err error) {
	got := make(chan landing, 1)
	if err := p.begin(m, fd, func(m control.Message) { got <- landing{m: m} }); err != nil {
		return answer, err
	}
	l, err := p.wait(ctx, got, due{looks: true})
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

// course is the transfers of one call, in the order in which they were begun.
type course struct {
	pace  *control.Pace
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

// due is when the next one should end. Only the last one is looked for: the helper has
// something to do while one that is not wakes its caller.
func (c *course) due() due {
	takes, known := c.pace.Takes(c.under[0].bytes)
	if !known {
		return due{}
	}
	return due{c.since().Add(takes), len(c.under) == 1 && takes <= soon}
}

// ended takes the end of one; well says whether its time says something.
func (c *course) ended(well bool) {
	now := time.Now()
	if well {
		c.pace.Took(c.under[0].bytes, now.Sub(c.since()))
	}
	c.under, c.last = c.under[1:], now
}
