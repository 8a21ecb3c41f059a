package relay

import (
	"testing"

	"meridian/adapters/mooncake/metadata"
)

// start opens a relay on the loopback that ends with the test.
func start(t *testing.T, cfg Config) *Relay {
	t.Helper()
	cfg.Label, cfg.Peer, cfg.Server = "relay", "far", metadata.P2P
	cfg.Listen, cfg.Data.Host = "127.0.0.1:0", "127.0.0.1"
	if cfg.Refused == nil {
		cfg.Refused = func(source string, _ bool, err error) { t.Logf("refused %s: %v", source, err) }
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}
