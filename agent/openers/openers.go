package openers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"meridian/agent/config"
	"meridian/agent/finding"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/internal/door"
	"meridian/wire"
)

// peerName is what the name of a peer in NAME=ADDRESS may be: it stands in metrics and in
// NAME/PEER.
var peerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Opener opens one kind of fabric. New makes it.
type Opener struct {
	Kind config.FabricKind
	open func(ctx context.Context, s Site, settings any) (fabric.Fabric, error)
}

// Site is what a daemon tells and lends to the fabric that is opened in it.
type Site struct {
	Name        string // of the fabric in the registry: [fabric.NAME]
	Agent       string // the daemon's name
	ID          [16]byte
	Incarnation uint64 // new at each start
	Config      *config.Config
	Log         *slog.Logger

	// What a fabric needs that serves its peers by itself.
	Store    *blocks.Store
	Windows  *window.Table // what its peers reach one-sidedly; the fabric opens, and at its Close drops, its own
	Spaces   *spaces.Registry
	Quota    *quota.Book
	Doors    *door.Common // of all listeners for peers that prove nothing; nil: there are no limits
	Observer Observer
	Gateway  fabric.Gateway // what its peers bring goes on by it, and what they ask for is looked for
}

// Reloader is a fabric some of whose settings can change in a running daemon.
type Reloader interface {
	// Prepare checks what the fabric takes of a configuration, and changes nothing.
	Prepare(c *config.Config) (Prepared, error)
}

// Prepared is what a fabric would change.
type Prepared struct {
	Peers    int // that are listed then
	Warnings []config.Warning
	Changed  []config.Change // what the file's own text does not tell, such as the content of another file
	// Apply changes all of it, or nothing and says why.
	Apply func() error
	// Cancel, where it is set, is called instead of Apply where nothing is to change: it gives
	// back what Prepare took.
	Cancel func()
}

// Observer hears what happens on a fabric without a call of the daemon. Calls may be
// concurrent and must not block. None comes after Close of the fabric.
type Observer interface {
	// PeerChanged is for a peer that came, went or restarted.
	PeerChanged()
	// Served is a peer's call that has ended.
	Served(s Served)
	// Refused is a connection or call that was turned away.
	Refused(code wire.Code)
	// ArrivedWrong is a body that a peer pushed and that did not match its checksum.
	ArrivedWrong(fabric, peer string)
}

// Served is a pull or push that a peer asked for.
type Served struct {
	Fabric  string
	Peer    string
	In      bool // a push: body bytes came to this agent
	Class   fabric.Class
	Via     string
	Items   int    // that succeeded
	Bytes   uint64 // body bytes of those
	Took    time.Duration
	Code    wire.Code
	Refused []wire.Code // a code for each block that the peer did not get, or may not give
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

// shipped are the kinds of every daemon.
var shipped = []Opener{openSynthetic, openNIXL, openNIXLHub, openMooncake, openMooncakeStore, openMooncakeRelay, openLink}

// Kinds are the kinds of every daemon, and those of others that it is given, for
// config.Options.
func Kinds(others ...Opener) []config.FabricKind {
	var out []config.FabricKind
	for _, o := range slices.Concat(shipped, others) {
		out = append(out, o.Kind)
	}
	return out
}

// Load is config.Load in a build with these openers besides.
func Load(o config.Options, others ...Opener) (*config.Config, []config.Warning, error) {
	o.Kinds = Kinds(others...)
	return config.Load(o)
}

// Check says what the start would refuse of a configuration that config.Load took, and
// what else is worth a warning: what is in the files that it names. Load itself does not
// read them: who asks a daemon for its state need not be able to, and needs no valid
// certificate.
func Check(c *config.Config) (warnings []config.Warning, err error) {
	warnings, problems := checkLinkFiles(c)
	if problem := checkTopologyFile(c); problem != nil {
		problems = append(problems, *problem)
	}
	if len(problems) > 0 {
		err = &config.Error{Problems: problems}
	}
	return warnings, err
}

// Checks are those of every host, and those that fabrics need.
func Checks() []finding.Check { return slices.Concat(finding.Checks(), linkChecks, topologyChecks) }

// Findings makes all checks of a host, in a daemon with these openers besides.
func Findings(h *finding.Host, others ...Opener) []finding.Finding {
	h.Kinds = Kinds(others...)
	return finding.Run(h, Checks())
}

// Open opens a fabric, by an opener of every daemon or one of others.
func Open(ctx context.Context, f config.Fabric, s Site, others ...Opener) (fabric.Fabric, error) {
	var found []Opener
	for _, o := range slices.Concat(shipped, others) {
		if o.Kind.Name == f.Kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("fabric %s: %d openers of kind %q, want 1: %w", f.Name, len(found), f.Kind, wire.CodeConfig)
	}
	s.Name = f.Name
	opened, err := found[0].open(ctx, s, f.Settings)
	if _, ok := opened.(Reloader); err == nil && opened != nil && found[0].Kind.Reloads() && !ok {
		err = errors.Join(fmt.Errorf("the kind %q has keys that a reload changes, and the fabric is no Reloader: %w", f.Kind, wire.CodeInternal), opened.Close())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("fabric %s: %w", f.Name, err)
	case opened == nil:
		return nil, fmt.Errorf("fabric %s: the opener of kind %q returned no fabric: %w", f.Name, f.Kind, wire.CodeConfig)
	}
	return opened, nil
}
