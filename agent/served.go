package agent

import (
	"log/slog"
	"time"

	"meridian/agent/openers"
	"meridian/agent/transfer"
	"meridian/wire"
)

// fabricObserver counts what happens on fabrics without a call of this daemon. What
// the daemon asked for is counted by agent/transfer.
type fabricObserver struct{ a *Agent }

var _ openers.Observer = fabricObserver{}

// PeerChanged wakes the self-test, which also counts incarnations: a peer that
// comes back at once may never have been seen as not ready.
func (o fabricObserver) PeerChanged() { o.a.selftest.poke() }

func (o fabricObserver) Served(s openers.Served) {
	r := transfer.Record{
		Fabric: s.Fabric, Peer: s.Peer, In: s.In, Op: transfer.OpPull, Class: s.Class, Via: s.Via,
		Bytes: s.Bytes, Items: s.Items + len(s.Refused), Failed: len(s.Refused), Began: time.Now().Add(-s.Took), Took: s.Took, Code: s.Code,
	}
	if s.In {
		r.Op = transfer.OpPush
	}
	r.ID = o.a.mover.Log.Begin(r)
	o.a.mover.Log.End(r)
	moveObserver(o).Transferred(r)
	moveObserver(o).Moved(s.Fabric, s.Via, s.In, s.Bytes)
	for _, c := range s.Refused {
		o.a.metrics.refusals.WithLabelValues(reasonOf(c)).Inc()
	}
	if s.Code != wire.CodeOK {
		o.a.metrics.failures.WithLabelValues(reasonOf(s.Code)).Inc()
	}
}

// Refused counts; the fabric logs it.
func (o fabricObserver) Refused(code wire.Code) {
	o.a.metrics.refusals.WithLabelValues(reasonOf(code)).Inc()
}

func (o fabricObserver) ArrivedWrong(fabric, peer string) {
	o.a.checksumFailed(fabric)
	o.a.logLimited(slog.LevelError, "checksum.arrived."+o.a.metrics.peer(peer), "checksum failure: the block that a peer pushed was not stored",
		"code", wire.CodeChecksum.String(), "number", uint16(wire.CodeChecksum), "where", fabric, "peer", peer)
}
