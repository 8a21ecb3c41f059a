package dirfabric

import (
	"context"

	"meridian/agent/config"
	"meridian/agent/openers"
	"meridian/fabric"
)

// settings is the table [fabric.NAME] of kind "dir".
type settings struct {
	path  string
	quota uint64
}

// Opener is what a program hands to the daemon.
func Opener() openers.Opener {
	kind := config.NewFabricKind("dir", "Blocks as files of a directory.", func(s *settings, bad config.Bad) {
		if s.path == "" {
			bad("path", "missing: the directory of the blocks")
		}
	},
		config.Key("path", func(s *settings) *string { return &s.path }, config.Paths, "", config.Free[string](), "The directory. Made if there is none."),
		config.Key("quota_bytes", func(s *settings) *uint64 { return &s.quota }, config.Sizes, 1<<30, config.BytesWithin(1<<16, 1<<46), "Bytes that its files may have together."),
	)
	return openers.New(kind, func(ctx context.Context, at openers.Site, s *settings) (fabric.Fabric, error) {
		return Open(ctx, at.Name, s.path, s.quota)
	})
}
