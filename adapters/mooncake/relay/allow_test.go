package relay

import (
	"io"
	"net/netip"
	"testing"
	"testing/synctest"

	"meridian/wire"
)

// Who is not allowed any more loses its connections, also one that is in the middle of a
// request; all others keep theirs, and their counts go on.
func TestSourcesThatAreNotAllowedAnyMoreArePutOut(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		b.r.SetSources([]Source{{"old", netip.MustParsePrefix("10.0.0.0/24")}, {"stays", netip.MustParsePrefix("10.0.1.0/24")}})
		gone, stays := b.source(t, "10.0.0.1"), b.source(t, "10.0.1.1")
		send(t, gone, head(1, base, 1000)[:5])
		send(t, stays, head(1, base, 1000)[:5])
		synctest.Wait()
		b.r.of("stays").n.Requests = 7
		b.r.SetSources([]Source{{"new", netip.MustParsePrefix("10.0.2.0/24")}, {"stays", netip.MustParsePrefix("10.0.1.0/24")}})
		if _, err := io.ReadAll(gone); err != nil {
			t.Error("the connection of the one that is gone:", err)
		}
		synctest.Wait()
		var names []string
		for _, n := range b.r.Relayed() {
			names = append(names, n.Source)
			if open := map[string]int{"stays": 1}[n.Source]; n.Connections != open || n.Source == "stays" && n.Requests != 7 {
				t.Errorf("%+v", n)
			}
		}
		if len(names) != 3 || names[0] != "new" || names[1] != "stays" || names[2] != Others {
			t.Errorf("counted are %v", names)
		}
		for from, may := range map[string]bool{"10.0.0.1": false, "10.0.2.1": true, "10.0.1.1": true} {
			if _, err := b.r.admit(netip.MustParseAddr(from)); (err == nil) != may || err != nil && wire.CodeOf(err) != wire.CodeAuth {
				t.Errorf("%s: %v", from, err)
			}
		}
		_ = stays.Close()
	})
}
