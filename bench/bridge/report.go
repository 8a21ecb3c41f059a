package bridge

import (
	"fmt"
	"slices"
	"strings"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Goal is the part of the bound that a bridge should reach. It is told, and fails nothing.
const Goal = 0.8

// Report is what a run measured. Rates are in GB/s (10^9 bytes of bodies), and medians of
// the rounds; so are the ratios, each of the figures of one round.
type Report struct {
	measure.Host
	Congestion string            `json:"congestion"`
	Namespace  bool              `json:"network_namespace"`
	UCX        string            `json:"ucx_tls"`
	Bytes      uint64            `json:"bytes"` // of a measurement
	Rounds     int               `json:"rounds"`
	Versions   map[string]string `json:"versions"`
	Bridges    []Row             `json:"bridges"`
	Skipped    []Skipped         `json:"skipped"`
	Seconds    float64           `json:"seconds"`
}

// Row is one bridge with blocks of one size.
type Row struct {
	Bridge     string  `json:"bridge"`
	BlockBytes uint32  `json:"block_bytes"`
	Blocks     int     `json:"blocks"`   // of each measurement
	Compared   int     `json:"compared"` // blocks whose header and body were compared at the sink
	Leg1       float64 `json:"leg1_gbs"`
	Leg2       float64 `json:"leg2_gbs"`
	Hash       float64 `json:"hash_gbs"` // H, one core
	Bound      float64 `json:"bound_gbs"`
	Rate       float64 `json:"bridge_gbs"`
	RateMin    float64 `json:"bridge_min_gbs"`
	RateMax    float64 `json:"bridge_max_gbs"`
	Ratio      float64 `json:"bridge_to_bound"`
	Batch      float64 `json:"blocks_a_push"` // that the gateway sent on in one call
	Pushing    float64 `json:"pushing"`       // part of the bridge's time in which the gateway pushed
	Met        bool    `json:"goal_met"`
	// Processor is what the gateway's daemon used, user and system, in seconds a GB of bodies.
	Processor float64 `json:"gateway_processor_s_a_gb"`
	// One is for one block alone, in milliseconds: from its first byte at the source until it
	// is at the sink. Of the link's bridges only.
	One float64 `json:"one_block_ms,omitempty"`
}

// Skipped is a bridge that was not measured.
type Skipped struct {
	Bridge string `json:"bridge"`
	Reason string `json:"reason"`
}

// bound is the rate of a bridge whose legs do nothing at the same time.
func bound(leg1, leg2, hash float64, cores int) float64 {
	if leg1 <= 0 || leg2 <= 0 || hash <= 0 {
		return 0
	}
	return 1 / (1/leg1 + 1/leg2 + 1/(float64(cores)*hash))
}

// Rows is the report for people.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"bridge", "block", "leg1", "leg2", "hash a core", "bound", "bridge", "least-most", "blocks a push", "pushing", "cpu s a GB", "of the bound", fmt.Sprintf("goal %.0f%%", 100*Goal), "one block, ms"}
	for _, b := range r.Bridges {
		goal, one := "missed", ""
		if b.One > 0 {
			one = fmt.Sprintf("%.2f", b.One)
		}
		if b.Met {
			goal = "met"
		}
		rows = append(rows, []string{
			b.Bridge, config.FormatBytes(uint64(b.BlockBytes)), rate(b.Leg1), rate(b.Leg2), rate(b.Hash), rate(b.Bound), rate(b.Rate),
			rate(b.RateMin) + "-" + rate(b.RateMax), fmt.Sprintf("%.1f", b.Batch), fmt.Sprintf("%.0f%%", 100*b.Pushing), fmt.Sprintf("%.2f", b.Processor), fmt.Sprintf("%.0f%%", 100*b.Ratio), goal, one,
		})
	}
	for _, s := range r.Skipped {
		rows = append(rows, []string{s.Bridge, "SKIPPED: " + s.Reason})
	}
	return head, rows
}

func rate(gbs float64) string { return fmt.Sprintf("%.2f", gbs) }

// Note says on what it was measured.
func (r Report) Note() string {
	var versions []string
	for _, v := range r.Versions {
		versions = append(versions, v)
	}
	slices.Sort(versions)
	network := "the host's network"
	if r.Namespace {
		network = "a network namespace of its own"
	}
	return fmt.Sprintf("%s; %s in %s, UCX_TLS=%s; %s; GB/s of bodies, %s a measurement, medians of %d rounds; every header and body compared at the sink; %.0f s",
		r.Text(), measure.CongestionName(r.Congestion), network, r.UCX, strings.Join(versions, "; "), config.FormatBytes(r.Bytes), r.Rounds, r.Seconds)
}
