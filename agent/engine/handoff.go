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
	if k.pinned > 0 {
		l.remember(handed{id, r.pins, l.g.srv.now() + scheduler.Time(d)})
	}
	l.step(scheduler.Input{Kind: scheduler.Done, ID: scheduler.ID(id)})
	_ = l.events() // nothing of an end can be refused
	l.forget(id)
	l.flushLower()
	return k.text(d)
}

// handed is a request that was handed off, and of which blocks may still be pinned.
type handed struct {
	id    uint32
	pins  uint64         // number of its set of pins
	until scheduler.Time // they have ended by then
}

// mostHanded is how many requests that were handed off a group can still end early. The
// pins of older ones end by themselves.
const mostHanded = 4096

// remember keeps what is needed to end a hand-off early. The caller holds mu.
func (l *life) remember(h handed) {
	now := l.g.srv.now()
	l.handed = slices.DeleteFunc(l.handed, func(o handed) bool { return o.until <= now || o.id == h.id })
	if len(l.handed) >= mostHanded {
		l.handed = slices.Delete(l.handed, 0, 1)
	}
	l.handed = append(l.handed, h)
}

// unkeep ends the pins of a request that was handed off. The caller holds mu.
func (l *life) unkeep(id uint32) {
	if i := slices.IndexFunc(l.handed, func(h handed) bool { return h.id == id }); i >= 0 {
		l.g.srv.cfg.Store.UnpinDetached(l.g.owner, l.handed[i].pins)
		l.handed = slices.Delete(l.handed, i, i+1)
	}
}

// reused forgets a hand-off whose request's number is given to another one: what is
// pinned stays. The caller holds mu.
func (l *life) reused(id uint32) {
	l.handed = slices.DeleteFunc(l.handed, func(h handed) bool { return h.id == id })
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
