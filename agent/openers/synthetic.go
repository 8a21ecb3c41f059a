package openers

import (
	"context"

	"meridian/agent/config"
	"meridian/fabric"
	"meridian/fabric/synthetic"
)

// syntheticSettings is the table of a fabric in this process's memory.
type syntheticSettings struct{ capacity uint64 }

var openSynthetic = New(
	config.NewFabricKind(synthetic.Label, "A store in the daemon's own memory, to try routes and off-loading without a network. Its blocks are lost at a restart.", nil,
		config.Key("capacity_bytes", func(s *syntheticSettings) *uint64 { return &s.capacity }, config.Sizes, synthetic.DefaultCapacity,
			config.BytesWithin(1<<20, 1<<46), "How much it holds, besides the arena."),
	),
	func(_ context.Context, _ Site, s *syntheticSettings) (fabric.Fabric, error) {
		return synthetic.New(synthetic.Options{Capacity: s.capacity}), nil
	},
)
