package openers

import (
	"context"
	"fmt"
	"log/slog"

	"meridian/agent/config"
	"meridian/fabric"
	"meridian/wire"
)

// Opener opens one kind of fabric. New makes it.
type Opener struct {
	Kind config.FabricKind
	open func(ctx context.Context, s Site, settings any) (fabric.Fabric, error)
}

// Site is what a daemon tells the fabric that is opened in it.
type Site struct {
	Name        string // of the fabric in the registry: [fabric.NAME]
	Agent       string // the daemon's name
	ID          [16]byte
	Incarnation uint64 // new at each start
	StateDir    string // what survives a restart
	Log         *slog.Logger
}

// New makes the opener of a kind, the settings of which are in an S. open returns
// within ctx, and leaves nothing behind when it fails.
func New[S any](kind config.FabricKind, open func(ctx context.Context, s Site, settings *S) (fabric.Fabric, error)) Opener {
	return Opener{Kind: kind, open: func(ctx context.Context, s Site, settings any) (fabric.Fabric, error) {
		own, ok := settings.(*S)
		if !ok {
			return nil, fmt.Errorf("the settings are a %T, the opener of kind %q takes a %T", settings, kind.Name, own)
		}
		return open(ctx, s, own)
	}}
}

// shipped are the kinds that every daemon has. The link is none of them: it serves
// peers whether a route names it or not.
var shipped = []Opener{openSynthetic}

// Kinds are the kinds of every daemon, and those of others that it is given, for
// config.Options.
func Kinds(others ...Opener) []config.FabricKind {
	var out []config.FabricKind
	for _, o := range append(shipped[:len(shipped):len(shipped)], others...) {
		out = append(out, o.Kind)
	}
	return out
}

// Open opens the fabric of one table, by an opener of every daemon or one of others.
func Open(ctx context.Context, f config.Fabric, s Site, others ...Opener) (fabric.Fabric, error) {
	var found []Opener
	for _, o := range append(shipped[:len(shipped):len(shipped)], others...) {
		if o.Kind.Name == f.Kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("fabric %s: %d openers of kind %q, want 1: %w", f.Name, len(found), f.Kind, wire.CodeConfig)
	}
	s.Name = f.Name
	opened, err := found[0].open(ctx, s, f.Settings)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fabric %s: %w", f.Name, err)
	case opened == nil:
		return nil, fmt.Errorf("fabric %s: the opener of kind %q returned no fabric: %w", f.Name, f.Kind, wire.CodeConfig)
	}
	return opened, nil
}
