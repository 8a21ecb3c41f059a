package agent

import (
	"errors"
	"fmt"

	"meridian/agent/finding"
	"meridian/fabric"
)

// errNoPeer is why no block of a partner can be had: nobody is there to have it
// from.
var errNoPeer = errors.New("no peer is connected and none is configured, so the partner's blocks cannot be pulled: list its daemon as a peer")

// partnerBlocked says why blocks of the partner's daemon cannot be had, as far as the
// fabrics know; nil: they can. While its name is not known, any peer that is ready
// may be it.
func partnerBlocked(peers []fabric.Peer, name string) error {
	if len(peers) == 0 {
		return errNoPeer
	}
	var why error
	for _, p := range peers {
		if p.State == fabric.PeerReady && (name == "" || p.Name == name) {
			return nil
		}
		if why == nil || p.Name == name {
			why = fmt.Errorf("peer %s is not ready: %s %s", p.Name, p.State, p.Text)
		}
	}
	if name != "" && !named(peers, name) {
		return fmt.Errorf("there is no peer %q, which the partner's daemon is called: its blocks cannot be pulled", name)
	}
	return why
}

func named(peers []fabric.Peer, name string) bool {
	for _, p := range peers {
		if p.Name == name {
			return true
		}
	}
	return false
}

// partnerFindings are about the other node of a prefill/decode split.
func (a *Agent) partnerFindings() []finding.Finding {
	f := a.llama.Load()
	if f == nil {
		return nil
	}
	p, ok := f.node.Partner()
	if !ok {
		return nil
	}
	out := finding.Finding{ID: "llama.partner", Severity: finding.OK, Subject: "partner " + p.URL, Reason: "it is asked, and its blocks can be pulled"}
	if p.Why != nil {
		out.Severity, out.Reason = finding.Err, "it is not asked, and this node does all by itself: "+p.Why.Error()
		out.Fix = "look at the partner's daemon and at mrdn peer list; each node of a split needs the other as a listed peer"
	}
	return []finding.Finding{out}
}
