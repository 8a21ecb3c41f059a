package hub

import (
	"context"
	"fmt"

	"meridian/fabric"
	"meridian/wire"
)

var (
	_ fabric.Fabric         = (*Hub)(nil)
	_ fabric.Gate           = (*Hub)(nil)
	_ fabric.Server         = (*Hub)(nil)
	_ fabric.Counter        = (*Hub)(nil)
	_ fabric.Advisor        = (*Hub)(nil)
	_ fabric.Keeper         = (*Hub)(nil)
	_ fabric.MetadataServer = (*Hub)(nil)
)

// Label is the name of the fabric's table.
func (h *Hub) Label() string { return h.cfg.Label }

// Caps says nothing: no block can be handed to a hub.
func (h *Hub) Caps() fabric.Caps { return fabric.Caps{} }

func (h *Hub) noBlocks() error {
	return &fabric.Error{Code: wire.CodeUnsupported, Fabric: h.cfg.Label, Text: "a hub has metadata of NIXL agents, and no blocks"}
}

// Push refuses each block.
func (h *Hub) Push(_ context.Context, it []fabric.Item) { h.refuseAll(it) }

// Pull refuses each block.
func (h *Hub) Pull(_ context.Context, it []fabric.Item) { h.refuseAll(it) }

func (h *Hub) refuseAll(it []fabric.Item) {
	for i := range it {
		it[i].Err = h.noBlocks()
	}
}

// Usable implements fabric.Gate: routes pass over it.
func (h *Hub) Usable(wire.Namespace) error { return h.noBlocks() }

// Keeps implements fabric.Keeper: no copy is here.
func (h *Hub) Keeps(fabric.Handle) bool { return false }

// Quiesce has nothing to wait for.
func (h *Hub) Quiesce(context.Context) error { return nil }

// Addresses implements fabric.Server.
func (h *Hub) Addresses() []string { return []string{"tcpstore://" + h.at} }

// Drain does nothing: agents find each other until the hub closes.
func (h *Hub) Drain(context.Context) {}

// Stats implements fabric.Counter.
func (h *Hub) Stats() fabric.Stats {
	return fabric.Stats{Sessions: h.door.Len(), RequestsIn: h.requests.Load(), Refusals: h.refusals.Load()}
}

// Findings implements fabric.Advisor.
func (h *Hub) Findings() []fabric.Finding {
	all := h.Entries()
	gone := 0
	for _, e := range all {
		if !e.Alive {
			gone++
		}
	}
	f := fabric.Finding{ID: "gone", Bad: gone > 0, Subject: fmt.Sprintf("entries whose agent has no connection: %d of %d", gone, len(all))}
	if f.Bad {
		f.Reason, f.Fix = "the agent has ended, or its host cannot be reached", fmt.Sprintf("none is needed: the entries end after %v", Grace)
	}
	return []fabric.Finding{f}
}
