package openers

import (
	"context"

	"meridian/adapters/nixl/hub"
	"meridian/agent/config"
	"meridian/fabric"
	"meridian/wire"
)

// hubSettings is the table of a hub for NIXL agents.
type hubSettings struct {
	listen   string
	allow    []string
	insecure bool
}

var openNIXLHub = New(
	config.CarriesNoBlocks(config.NewFabricKind("nixl-hub", "A TCPStore on which unmodified NIXL agents (NIXL_TCPSTORE_ENDPOINT) find each other by name, and this daemon. It has their metadata, and no blocks: no route can name it. docs/nixl.md tells how.", checkHub,
		config.Key("listen", func(s *hubSettings) *string { return &s.listen }, config.Words, "127.0.0.1:29500", config.Free[string](), "HOST:PORT of the store. Beyond loopback it takes insecure and allow."),
		config.Key("allow", func(s *hubSettings) *[]string { return &s.allow }, config.Lists, nil, config.Free[[]string](), "Source addresses that may connect besides loopback, ADDRESS/BITS. Who may connect can read the metadata of all agents, which give access to their memory. A reload closes the connections of those that are not allowed any more.").Live(),
		config.Key("insecure", func(s *hubSettings) *bool { return &s.insecure }, config.Booleans, false, config.Free[bool](), "Allow agents beyond loopback: NIXL has no TLS, and a source address is all that it proves."),
	)),
	func(ctx context.Context, at Site, s *hubSettings) (fabric.Fabric, error) {
		h := hub.New(hub.Config{
			Label: at.Name, Listen: s.listen, Allow: prefixes(s.allow), Quota: at.Quota, Doors: at.Doors, Log: at.Log.With("fabric", at.Name),
			Refused: func(err error) { at.Observer.Refused(wire.CodeOf(err)) },
		})
		if err := h.Listen(ctx); err != nil {
			return nil, err // not a nil *Hub in an interface
		}
		return &liveHub{h}, nil
	},
)

// liveHub is a hub whose allow a reload can change.
type liveHub struct{ *hub.Hub }

var (
	_ Reloader              = (*liveHub)(nil)
	_ fabric.MetadataServer = (*liveHub)(nil)
)

// Prepare implements Reloader.
func (l *liveHub) Prepare(c *config.Config) (Prepared, error) {
	allow := prefixes(c.Settings(l.Label()).(*hubSettings).allow)
	return Prepared{Apply: func() error {
		l.SetAllow(allow)
		return nil
	}}, nil
}

func checkHub(s *hubSettings, bad config.Bad) {
	checkNIXLListen(bad, s.listen, s.allow, s.insecure)
	checkAllow(bad, s.allow, s.insecure)
}
