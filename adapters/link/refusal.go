package link

import (
	"slices"
	"strings"
	"time"

	"meridian/wire"
)

// refusal is a connection that this agent, or the peer that made it, did not
// take.
type refusal struct {
	origin
	claimed string // the name that it gave; unproven
	entry   string // of the allow list, that it proved; empty: it proved nothing
	err     error
	at      time.Duration
}

// Refused is what Refusals tells of connections from one source that did not prove
// to be a listed peer.
type Refused struct {
	Source  string // a host, or a user
	Addr    string // of the last one
	Claimed string // the name that the last one gave; empty: none
	Code    wire.Code
	Text    string
	Seen    int
	last    time.Duration
}

// refused counts, logs and remembers a refusal, so that both sides can see it:
// the one that was refused is told by ERROR.
func (n *Node) refused(r refusal) {
	r.at = n.cfg.Clock()
	code := wire.CodeOf(r.err)
	n.cfg.Log.Warn("link connection refused", "peer", r.entry, "claims", r.claimed, "from", r.addr, "code", code.String(), "err", r.err)
	n.refusals.Add(1)
	n.cfg.Observer.Refusal(r.entry, code)
	if code == wire.CodeLaneLost {
		return // it went away by itself
	}
	if p := n.Peer(r.entry); p != nil {
		p.wasTurnedAway(r)
		n.state(r.entry)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.strangers, func(s Refused) bool { return s.Source == r.source })
	s := Refused{Source: r.source}
	if i >= 0 {
		s = n.strangers[i]
		n.strangers = slices.Delete(n.strangers, i, i+1)
	} else if len(n.strangers) == maxStrangers {
		n.strangers = slices.Delete(n.strangers, 0, 1)
	}
	s.Addr, s.Claimed, s.Code, s.Text, s.last = r.addr, r.claimed, code, reasonOf(r.err), r.at
	s.Seen++
	n.strangers = append(n.strangers, s)
}

// wasTurnedAway remembers that a connection of the peer was refused.
func (p *Peer) wasTurnedAway(r refusal) {
	p.mu.Lock()
	p.turnedAway = &r
	p.mu.Unlock()
}

// Refusals are the connections of the last minute that were refused and did not
// prove to be a listed peer, by source. Those of listed peers are in Peers.
func (n *Node) Refusals() []Refused {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Refused
	for _, s := range n.strangers {
		if n.cfg.Clock()-s.last < newsFor {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Refused) int { return strings.Compare(a.Source, b.Source) })
	return out
}
