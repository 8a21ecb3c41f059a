package openers

import (
	"fmt"
	"net/netip"
	"testing"

	"meridian/adapters/mooncake/objects"
	"meridian/adapters/mooncake/store"
	"meridian/agent/config"
)

// Where the nodes of a Store may be follows its table; without a list it is this host.
func TestWhereNodesOfAStoreMayBeIsReloaded(t *testing.T) {
	masters, err := store.ParseMasters("127.0.0.1:1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &liveStore{Store: objects.New(objects.Config{Label: "attic", Masters: masters, Prefix: "mrdn"})}
	defer func() { _ = l.Close() }()
	for allow, want := range map[string]string{"": "[127.0.0.1 ::1]", "10.0.0.0/8": "[10.1.2.3]", "::1/128": "[::1]"} {
		s := &storeSettings{}
		if allow != "" {
			s.allow = []string{allow}
		}
		p, err := l.Prepare(&config.Config{Fabrics: []config.Fabric{{Name: "attic", Kind: mooncakeStoreKind, Settings: s}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(); err != nil {
			t.Fatal(err)
		}
		var may []netip.Addr
		for _, a := range []string{"127.0.0.1", "::1", "10.1.2.3", "192.0.2.1"} {
			if at := netip.MustParseAddr(a); l.reach.Has(at) {
				may = append(may, at)
			}
		}
		if got := fmt.Sprint(may); got != want {
			t.Errorf("allow %q: %s, want %s", allow, got, want)
		}
	}
}
