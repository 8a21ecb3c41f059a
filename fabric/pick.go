package fabric

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"meridian/wire"
)

// RouteError is a block without a way. It matches CodeUnreachable, and
// whatever Cause matches.
type RouteError struct {
	Rule    int    // the rule that ended the search; -1: the table ran out
	Fabric  string // the fabric that the block should have taken; "" if no rule matched
	Require bool   // the rule forbids a fallback
	Cause   error  // why the fabric cannot take the block; nil if no rule matched
}

// Error names the rule and says whether a fallback was forbidden or lacking.
func (e *RouteError) Error() string {
	switch {
	case e.Require:
		return fmt.Sprintf("route %d requires fabric %s and forbids a fallback: %v", e.Rule, e.Fabric, e.Cause)
	case e.Fabric != "":
		return fmt.Sprintf("no route is left; fabric %s was wanted: %v", e.Fabric, e.Cause)
	default:
		return "no route matches the block"
	}
}

// Unwrap returns CodeUnreachable and the cause.
func (e *RouteError) Unwrap() []error { return codeAndCause(wire.CodeUnreachable, e.Cause) }

// errNotRegistered is the cause where the registry has no such name.
var errNotRegistered = errors.New("no fabric of this name is registered")

// walk is Pick. Where steps is not nil every rule, also those below the choice,
// leaves its reason there; without it a choice at the first try formats nothing.
func (t *Routes) walk(q *Query, steps *[]Step) (Choice, error) {
	var c Choice
	var failure *RouteError
	done := false
	rules := *t.rules.Load()
	for i := range rules {
		r := rules[i]
		reason, held := "", false
		switch why := r.mismatch(q); {
		case why != matches:
			if steps != nil {
				reason = why.text(&r.Route, q)
			}
		case done:
			reason = "matches, but a rule above decided"
		default:
			name, f, err := t.usable(r, q)
			switch {
			case err == nil:
				c.Name, c.Fabric, c.Peer, c.Rule = name, f, peerOf(&r.Route, q), i
				done, held = true, true
				r.note(&r.taken, steps)
				reason = "matches, and the fabric can take the block"
			case r.Require:
				r.note(&r.passed, steps)
				failure = &RouteError{Rule: i, Fabric: name, Require: true, Cause: err}
				done = true
				reason = "matches and is required: " + err.Error()
			default:
				r.note(&r.passed, steps)
				if !c.Fallback {
					c.Fallback, c.Wanted, c.Why = true, name, err
				}
				reason = "matches, but was passed over: " + err.Error()
			}
		}
		if steps != nil {
			*steps = append(*steps, Step{Rule: i, Route: r.Route, Chosen: held, Reason: reason})
		} else if done {
			break
		}
	}
	switch {
	case failure != nil:
		return Choice{}, failure
	case !done:
		return Choice{}, &RouteError{Rule: -1, Fabric: c.Wanted, Cause: c.Why}
	}
	return c, nil
}

// note counts a choice that is no question of an operator.
func (r *rule) note(n *atomic.Uint64, steps *[]Step) {
	if steps == nil {
		n.Add(1)
	}
}

// peerOf is the destination: the query's, or the rule's where the query is open.
func peerOf(r *Route, q *Query) string {
	if q.AnyPeer && r.Peer != "" {
		return r.Peer
	}
	return q.Peer
}

// usable finds the fabric of a rule, the peer's own entry first, and says why it
// cannot take the block.
func (t *Routes) usable(r *rule, q *Query) (string, Fabric, error) {
	peer := peerOf(&r.Route, q)
	family := t.reg.family(r.to.fabric)
	var e *entry
	if r.to.peer == "" {
		e = family.at(peer)
	}
	if e == nil {
		e = family.at(r.to.peer)
	}
	if e == nil {
		name := PeerName(r.Fabric, peer)
		return name, nil, &Error{Code: wire.CodeUnreachable, Fabric: name, Cause: errNotRegistered}
	}
	name, f := e.name, e.f
	if err := q.Failed[name]; err != nil {
		return name, nil, &Error{Code: wire.CodeUnreachable, Fabric: name, Text: "failed for this block before", Cause: err}
	}
	if limit := f.Caps().MaxItem; limit > 0 && q.Bytes+wire.HeaderLen > uint64(limit) {
		return name, nil, &Error{Code: wire.CodeTooLarge, Fabric: name, Have: uint64(limit), Need: q.Bytes + wire.HeaderLen}
	}
	if e.tenanted != nil && q.From.Fabric != "" {
		if err := e.tenanted.MayHave(q.NS); err != nil {
			return name, nil, err
		}
	}
	if e.gate != nil {
		if err := e.gate.Usable(q.NS); err != nil {
			return name, nil, &Error{Code: wire.CodeUnreachable, Fabric: name, Text: "not ready", Cause: err}
		}
	}
	return name, f, nil
}

// mismatch is the first condition of a rule that a query does not meet.
type mismatch uint8

const (
	matches mismatch = iota
	otherFrom
	sameAsFrom
	otherTier
	otherNS
	otherPeer
	tooSmall
	tooBig
)

func (r *rule) mismatch(q *Query) mismatch {
	switch {
	case r.from.fabric != q.From.Fabric, r.from.peer != "" && r.from.peer != q.From.Peer:
		return otherFrom
	case q.From.Peer != "" && r.to.fabric == q.From.Fabric && (r.to.peer == q.From.Peer || r.Peer == q.From.Peer):
		return sameAsFrom
	case len(r.Tiers) > 0 && !slices.Contains(r.Tiers, q.Tier):
		return otherTier
	case r.NS != (wire.Namespace{}) && r.NS != q.NS:
		return otherNS
	case r.Peer != "" && r.Peer != q.Peer && !(q.AnyPeer && q.Peer == ""):
		return otherPeer
	case q.Bytes < r.MinBytes:
		return tooSmall
	case r.MaxBytes != 0 && q.Bytes > r.MaxBytes:
		return tooBig
	}
	return matches
}

// text names the condition and both values.
func (m mismatch) text(r *Route, q *Query) string {
	switch m {
	case otherFrom:
		return fmt.Sprintf("it comes from %s, the rule is for what comes from %s", origin(q.From.Name()), origin(r.From))
	case sameAsFrom:
		return "the block came from there"
	case otherTier:
		return fmt.Sprintf("tier %s is not in the rule", q.Tier)
	case otherNS:
		ns := q.NS // a copy, so that queries stay off the heap
		return fmt.Sprintf("namespace is %x, the rule wants %x", ns[:8], r.NS[:8])
	case otherPeer:
		return fmt.Sprintf("peer is %q, the rule wants %q", q.Peer, r.Peer)
	case tooSmall:
		return fmt.Sprintf("%d bytes are below min_bytes %d", q.Bytes, r.MinBytes)
	default:
		return fmt.Sprintf("%d bytes are above max_bytes %d", q.Bytes, r.MaxBytes)
	}
}

// origin names who brings a block.
func origin(from string) string {
	if from == "" {
		return "an engine"
	}
	return from
}
