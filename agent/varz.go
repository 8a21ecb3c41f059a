package agent

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/agent/engine"
	"meridian/agent/transfer"
	"meridian/blocks"
	"meridian/fabric"
)

// Varz is what /varz shows: the rooms' own numbers, as JSON.
type Varz struct {
	Name             string                  `json:"name"`
	Agent            string                  `json:"agent"`
	Incarnation      uint64                  `json:"incarnation"`
	Version          string                  `json:"version"`
	UptimeSeconds    float64                 `json:"uptime_seconds"`
	Ready            bool                    `json:"ready"`
	Reasons          []string                `json:"reasons"`
	Ports            map[string][]string     `json:"ports"`
	Moved            []MovedBytes            `json:"moved"`
	ChecksumFailures uint64                  `json:"checksum_failures"`
	TransfersIn      int                     `json:"transfers_in_flight_in"`
	TransfersOut     int                     `json:"transfers_in_flight_out"`
	Offload          OffloadVarz             `json:"offload"`
	Gateway          transfer.BridgeStats    `json:"gateway"`
	Blocks           blocks.Stats            `json:"blocks"`
	Fabrics          map[string]fabric.Stats `json:"fabrics"`
	Metadata         map[string]MetadataVarz `json:"metadata,omitempty"` // of fabrics at which others keep theirs
	Engine           engine.Stats            `json:"engine"`
}

// MetadataVarz is what others keep at a fabric.
type MetadataVarz struct {
	Count   int            `json:"count"`
	Entries []fabric.Entry `json:"entries"` // maxEntries at most
}

// MovedBytes are the body bytes of one path since the start.
type MovedBytes struct {
	Fabric    string `json:"fabric"`
	Transport string `json:"transport"`
	Direction string `json:"direction"`
	Bytes     uint64 `json:"bytes"`
}

// OffloadVarz is what was offloaded because requests stopped thinking.
type OffloadVarz struct {
	Blocks         uint64 `json:"blocks"`
	Bytes          uint64 `json:"bytes"`
	ReclaimedBytes uint64 `json:"reclaimed_bytes"`
	Rerouted       uint64 `json:"rerouted"` // blocks whose destination was removed before it took them
	Waiting        int    `json:"waiting"`
}

// movedBytes sums body bytes by path; paths are fabrics and transports, so
// there are few.
type movedBytes struct {
	mu   sync.Mutex
	rows []MovedBytes
}

func (m *movedBytes) add(fabric, transport, direction string, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.rows {
		r := &m.rows[i]
		if r.Fabric == fabric && r.Transport == transport && r.Direction == direction {
			r.Bytes += n
			return
		}
	}
	m.rows = append(m.rows, MovedBytes{fabric, transport, direction, n})
}

// all has a row for each path that is known; list only those that were used.
func (m *movedBytes) all() []MovedBytes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]MovedBytes{}, m.rows...)
}

func (m *movedBytes) list() []MovedBytes {
	return slices.DeleteFunc(m.all(), func(r MovedBytes) bool { return r.Bytes == 0 })
}

func (a *Agent) varz() Varz {
	v := Varz{
		Name: a.id.name, Agent: fmt.Sprintf("%x", a.id.agent), Incarnation: a.id.incarnation, Version: a.opt.Version,
		UptimeSeconds: time.Since(a.started).Seconds(), Reasons: []string{}, Ports: a.Ports(),
		Moved: a.moved.list(), ChecksumFailures: a.checksums.Load(),
		TransfersIn: a.mover.Log.InFlight(true), TransfersOut: a.mover.Log.InFlight(false),
		Offload: a.offloadVarz(), Gateway: a.mover.BridgeStats(), Blocks: a.store.Stats(), Fabrics: map[string]fabric.Stats{}, Engine: a.engines.Stats(),
	}
	for name, f := range a.whole {
		if c, ok := f.(fabric.Counter); ok {
			v.Fabrics[name] = c.Stats()
		}
		if m, ok := f.(fabric.MetadataServer); ok {
			all := m.Entries()
			if v.Metadata == nil {
				v.Metadata = map[string]MetadataVarz{}
			}
			v.Metadata[name] = MetadataVarz{len(all), all[:min(len(all), maxEntries)]}
		}
	}
	for _, r := range a.unready() {
		v.Reasons = append(v.Reasons, r.id+": "+r.text)
	}
	v.Ready = len(v.Reasons) == 0
	return v
}

func (a *Agent) offloadVarz() OffloadVarz {
	st := a.mover.OffloadStats()
	return OffloadVarz{Blocks: st.Blocks, Bytes: st.Bytes, ReclaimedBytes: a.store.Stats().OffloadedBytes, Rerouted: st.Rerouted, Waiting: st.Waiting}
}
