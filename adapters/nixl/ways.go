package nixl

import (
	"fmt"
	"strings"

	"meridian/fabric"
	"meridian/wire"
)

// Names of transports, as Via tells them: UCX's own names, several with "+" between them.
const (
	viaUnknown  = "unknown"
	viaNone     = "none"      // UCX has none that does it
	viaEmulated = "-emulated" // follows a name: in software, with the help of the peer's processor
)

// Transports implements fabric.Transporter: those of a host without RDMA, and that of what
// is not known.
func (n *Node) Transports() []string {
	return []string{"cma", "tcp", "tcp" + viaEmulated, viaUnknown}
}

// ways are the transports that UCX has chosen for the reads and the writes of a peer; "":
// not known.
type ways struct{ read, write string }

func (w ways) of(write bool) string {
	via := w.read
	if write {
		via = w.write
	}
	if via == "" {
		return viaUnknown
	}
	return via
}

// String has both where they differ and both are known.
func (w ways) String() string {
	switch {
	case w.read == w.write, w.write == "":
		return w.of(false)
	case w.read == "":
		return w.write
	}
	return w.write + "+" + w.read
}

// chosen takes what UCX chose.
func (p *peer) chosen(w ways) {
	p.mu.Lock()
	old := p.ways
	p.ways = w
	p.mu.Unlock()
	if old == w {
		return
	}
	log := p.node.cfg.Helper.Log
	log.Info("NIXL peer's transports", "peer", p.Name(), "write", w.of(true), "read", w.of(false))
	if strings.HasSuffix(w.read, viaEmulated) {
		log.Warn("reads of a NIXL peer are emulated by UCX in software: its processor takes part in each", "peer", p.Name(), "transport", w.read)
	}
	p.node.changed()
}

// way is the transport of one direction.
func (p *peer) way(write bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways.of(write)
}

// Via is the transport really used.
func (p *peer) Via() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways.String()
}

// unfit is why blocks cannot be kept in the peer's memory: UCX has no transport that reads
// it, or none that writes it. Under mu.
func (p *peer) unfit() *fabric.Error {
	for what, via := range map[string]string{"reads": p.ways.read, "writes": p.ways.write} {
		if via != viaNone {
			continue
		}
		text := fmt.Sprintf("UCX has no transport for %s of peer %s", what, p.Name())
		if p.node.cfg.Helper.RefuseEmulation {
			text += ` without emulation, which emulation = "refuse" forbids`
		}
		return p.error(wire.CodeUnsupported, text, nil)
	}
	return nil
}
