package metaserver

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"meridian/adapters/mooncake/metadata"
)

// Whoever may publish must not have this server connect to what listens on this host for
// itself, nor learn whether something does.
func TestNobodyElsewhereHasThisHostAskItself(t *testing.T) {
	r := newServer(t)
	r.SetAllow([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("127.0.0.0/8")})
	const stranger = "10.0.0.9"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	port := ln.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		at := net.JoinHostPort(host, strconv.Itoa(port))
		if is := r.ask(t.Context(), &Question{Addr: at, from: stranger}); is != metadata.Unreachable {
			t.Errorf("asked %s for somebody elsewhere: it %v", at, is)
		}
		if is := r.ask(t.Context(), &Question{Addr: at, from: thisHost}); is != metadata.Answers {
			t.Errorf("asked %s for this host: it %v", at, is)
		}
	}
	for _, c := range []struct {
		source, host string
		says         string
	}{
		{stranger, "10.0.0.7", ""},
		{stranger, "127.0.0.1", "of this host"},
		{stranger, "::1", "of this host"},
		{stranger, "192.0.2.77", "not in fabric.mooncake.allow"},
		{thisHost, "127.0.0.1", ""},
		{thisHost, "10.0.0.7", ""},
	} {
		ch := change{source: c.source, key: endpointOf("n")}
		if err := ch.says([]byte(rpc(c.host, 80))); err != nil {
			t.Fatal(err)
		}
		err := r.checkHost(ch)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s publishes %s: %v, want %q", c.source, c.host, err, c.says)
		}
	}
}

// Words that nobody can be asked about give no right to a name, whatever epoch they say.
func TestASegmentWithoutAnEndpointKeepsNobodyOut(t *testing.T) {
	for name, first := range map[string]func(b *bench){
		"a segment alone": func(b *bench) {
			_ = b.says("x", metadata.Key{Name: "n"}, `{"name":"n"}`, 1<<64-1, metadata.Answers)
		},
		"a segment whose endpoint was taken back": func(b *bench) {
			_ = b.says("x", metadata.Key{Name: "n"}, `{"name":"n"}`, 0, metadata.Answers)
			_ = b.says("x", endpointOf("n"), rpc("10.0.0.9", 1), 1<<64-1, metadata.Answers)
			if _, err := b.remove(change{source: "x", key: endpointOf("n"), epoch: 1<<64 - 1}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		b := newBench(t)
		first(b)
		if err := b.says("a", endpointOf("n"), rpc("10.0.0.1", 1), 5, metadata.Answers); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.says("a", metadata.Key{Name: "n"}, `{"name":"n","x":1}`, 5, metadata.Answers); err != nil {
			t.Errorf("%s: then its segment: %v", name, err)
		}
	}
}

// Nodes are asked in the second in which they came, so that one whose host is gone has
// mostly a round for itself.
func TestANodeWhoseHostIsGoneEndsThoughItIsAskedAlone(t *testing.T) {
	for name, others := range map[string]bool{"others live": true, "this host has no network": false} {
		b := newBench(t)
		_ = b.says("a", endpointOf("gone"), rpc("10.0.0.1", 1), 0, metadata.Answers)
		b.now += AskEvery / 2
		_ = b.says("b", endpointOf("other"), rpc("10.0.0.2", 1), 0, metadata.Answers)
		for range 30 * int(AskEvery/roundEvery) {
			due := b.due(b.now)
			answers := make([]metadata.Outcome, len(due))
			for i, q := range due {
				if answers[i] = metadata.Unreachable; others && q.node.name == "other" {
					answers[i] = metadata.Answers
				}
			}
			alone := b.alone(b.now, answers)
			for i, q := range due {
				b.heard(b.now, q, answers[i], alone)
			}
			b.now += roundEvery
		}
		_, there := b.get(endpointOf("gone"))
		if there == others {
			t.Errorf("%s: the entry is there: %v", name, there)
		}
	}
}
