package core

import (
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// laneRule says on which lanes a message may come.
type laneRule uint8

const (
	onControl laneRule = 1 << iota
	onData
	onAny = onControl | onData
)

var laneRules = map[proto.Type]laneRule{
	proto.TypeOpen: onControl, proto.TypeOpened: onControl, proto.TypeHas: onControl, proto.TypeStat: onControl,
	proto.TypeRenew: onControl, proto.TypeRelease: onControl, proto.TypeGoAway: onControl,
	proto.TypePull: onData, proto.TypePush: onData, proto.TypeGrant: onData, proto.TypeCommit: onData,
	proto.TypeTable: onAny, proto.TypeEnd: onAny, proto.TypePing: onAny, proto.TypeCancel: onAny,
	proto.TypeAbort: onAny, proto.TypeError: onAny, proto.TypeStanding: onAny, proto.TypeDeliver: onData,
}

// message handles one control frame. With an error nothing has changed.
func (l *Lane) message(now time.Duration, f proto.Frame, p []byte) error {
	notAgreed := !l.s.cfg.OneFlight && (f.Type == proto.TypeStanding || f.Type == proto.TypeDeliver)
	if notAgreed || f.Type.NeedsGroup() { // the latter are of engines' sockets with a feature that is not looked at here
		if f.Flags&proto.FlagCritical != 0 {
			return refuse(wire.CodeUnsupported, f.Type.String()+" is critical, and HELLO did not agree on it")
		}
		return l.unknown(f)
	}
	rule := onData
	if l.idx == 0 {
		rule = onControl
	}
	if laneRules[f.Type]&rule == 0 {
		return refuse(wire.CodeState, f.Type.String()+" may not come on this lane")
	}
	// A request carries the id of its sender, an answer that of its receiver.
	switch f.Type {
	case proto.TypeOpened, proto.TypeTable, proto.TypeGrant, proto.TypeEnd:
		return l.answer(now, f, p)
	case proto.TypeGoAway:
		return l.goAway(p)
	case proto.TypeStanding:
		return l.s.standing(p)
	case proto.TypeError:
		return l.peerError(now, p)
	}
	if theirs := f.Req&1 == 1 != l.s.cfg.Dialler; !theirs || f.Req == 0 {
		return refuse(wire.CodeState, "a request with an id that is not its sender's")
	}
	return l.request(now, f, p)
}

// goAway notes that the peer leaves. To say it again changes nothing.
func (l *Lane) goAway(p []byte) error {
	m, err := proto.Parse[proto.GoAway](p)
	if err != nil {
		return err
	}
	s := l.s
	if s.peerLeaves {
		return nil
	}
	s.peerLeaves = true
	s.events = append(s.events, Event{Kind: EventGoAway, Code: m.Code, Text: m.Text, Took: time.Duration(m.MS) * time.Millisecond})
	for c := range s.queue {
		for _, call := range s.queue[c] {
			s.finishCall(call, wire.CodeDraining, "the peer is leaving")
		}
		s.queue[c] = nil
	}
	return nil
}

func (l *Lane) peerError(now time.Duration, p []byte) error {
	m, err := proto.Parse[proto.Error](p)
	if err != nil {
		return err
	}
	l.s.events = append(l.s.events, Event{Kind: EventPeerError, Lane: l.idx, Code: m.Code, Text: m.Text})
	l.kill(now, wire.CodeLaneLost, "the peer closed the lane: "+m.Code.String()+": "+m.Text)
	return nil
}
