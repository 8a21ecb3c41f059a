package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// handoffBatch is how many blocks are pinned under the store's lock at a time.
const handoffBatch = 1024

// handoff answers HANDOFF: a request is done, and its prompt and output blocks wait for
// a peer. Its text says how many do.
func (s *session) handoff(f link.Frame, p []byte) error {
	var x link.Handoff
	if err := s.parse(&x, p); err != nil {
		return err
	}
	if x.KeepMS == 0 {
		s.answerEnd(f.Req, refusal(fmt.Errorf("blocks that are kept for no time, keep_ms is 0: %w", wire.CodeInvalid)))
		return nil
	}
	d := min(time.Duration(x.KeepMS)*time.Millisecond, s.srv.cfg.Limits.MaxPin)
	s.answerEnd(f.Req, link.End{Text: s.group.life.handoff(x.Req, d)})
	return nil
}

// handoff ends request id. It is idempotent, for an id that never was as well.
func (l *life) handoff(id uint32, d time.Duration) (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reqs[id]
	if r == nil {
		return fmt.Sprintf("request %d does not run: no blocks are kept", id)
	}
	var k kept
	seen := make(map[blockID]struct{}, len(r.rest))
	ids := l.cold[:0]
	for _, b := range r.rest {
		if _, again := seen[b]; !again {
			seen[b] = struct{}{}
			ids = append(ids, b)
		}
	}
	l.cold = ids
	pin := blocks.Pin{Owner: l.g.owner, Set: r.pins, For: d}
	l.runs(ids, func(ns wire.Namespace, keys []wire.Key) {
		for part := range slices.Chunk(keys, handoffBatch) {
			errs := make([]error, len(part))
			_, err := l.g.srv.cfg.Store.PinKeys(pin, ns, part, true, errs)
			k.add(errs, err)
		}
	})
	l.g.srv.cfg.Store.Detach(l.g.owner, r.pins)
	l.step(scheduler.Input{Kind: scheduler.Done, ID: scheduler.ID(id)})
	_ = l.events() // nothing of an end can be refused
	l.forget(id)
	l.flushLower()
	return k.text(d)
}

// kept is what became of a request's blocks at its hand-off.
type kept struct {
	pinned, pulled, absent, refused int
	why                             error // the first refusal
}

func (k *kept) add(errs []error, all error) {
	for _, err := range errs {
		if all != nil {
			err = all
		}
		switch {
		case err == nil:
			k.pinned++
		case errors.Is(err, blocks.ErrPulled):
			k.pulled++
		case errors.Is(err, wire.CodeAbsent):
			k.absent++
		default:
			if k.refused++; k.why == nil {
				k.why = err
			}
		}
	}
}

func (k *kept) text(d time.Duration) string {
	out := []string{fmt.Sprintf("%d blocks are kept for %s", k.pinned, d)}
	if k.pulled > 0 {
		out = append(out, fmt.Sprintf("%d were pulled already", k.pulled))
	}
	if k.absent > 0 {
		out = append(out, fmt.Sprintf("%d are not here any more", k.absent))
	}
	if k.refused > 0 {
		out = append(out, fmt.Sprintf("%d are not kept: %v", k.refused, k.why))
	}
	return strings.Join(out, ", ")
}
