package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"meridian/internal/testlog"
	"meridian/wire"
	proto "meridian/wire/link"
)

// What a stranger can do, that has proved nothing: collect, take places, fill the
// log, and be taken for somebody.

// knock opens a connection, sends HELLOs, and returns the answer to the last: a
// HELLO, or an ERROR as error.
func knock(t *testing.T, s *side, hellos ...proto.Hello) (answer proto.Hello, err error) {
	t.Helper()
	c, err := net.Dial("tcp", hostOf(s))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	h := hello{conn: c, base: c, via: viaTCP}
	for i := range hellos {
		if err := h.send(&hellos[i]); err != nil {
			t.Fatal(err)
		}
		if answer, err = h.receive(); err != nil {
			break
		}
	}
	return answer, err
}

func greeting(name string, method uint16) proto.Hello {
	return proto.Hello{
		Min: 1, Max: 1, Agent: agentID(7), Inc: 1,
		Auth: []proto.TLV{{Type: method}, {Type: proto.AuthName, Value: []byte(name)}},
	}
}

// A stranger that dials under any name gets nothing that was made with a key.
func TestAStrangerCollectsNoProof(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.PSK, c.Name = false, keyOne, "b"
		c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}, {Name: "own", PSK: keyTwo, Tenants: []string{"t"}}}
	})
	for name, listed := range map[string]bool{"a": true, "own": true, "stranger": false, "": false} {
		answer, err := knock(t, b, greeting(name, proto.AuthPSK))
		for _, e := range answer.Auth {
			if e.Type != proto.AuthName && len(e.Value) != 0 {
				t.Errorf("%q gets a proof: element %d with %x", name, e.Type, e.Value)
			}
		}
		var re *RemoteError
		if !listed && (!errors.As(err, &re) || re.Code != wire.CodeAuth || !strings.Contains(re.Text, fmt.Sprintf("%q", name))) {
			t.Errorf("%q is answered %v, want AUTH and its name", name, err)
		}
	}
}

// Silent connections of one host take places of that host only, and one of them
// makes room for the next one; it is told why.
func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) { c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}} })
	var silent []net.Conn
	for range 64 {
		c, err := net.Dial("tcp", hostOf(b))
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	defer func() {
		for _, c := range silent {
			_ = c.Close()
		}
	}()
	if _, err := knock(t, b, greeting("a", proto.AuthNone)); err != nil {
		t.Errorf("who comes next: %v", err)
	}
	h := hello{conn: silent[0], base: silent[0], via: viaTCP}
	_ = silent[0].SetDeadline(time.Now().Add(20 * time.Second))
	_, err := h.receive()
	var re *RemoteError
	if !errors.As(err, &re) || re.Code != wire.CodeTooMany {
		t.Errorf("the oldest silent one is told %v, want TOO_MANY", err)
	}
}

// TCP probes of the port, as load balancers make them, are told at level DEBUG, and are
// no refusals. One comes after the other: more at once have to make room for each other.
func TestProbesOfThePortAreNoWarning(t *testing.T) {
	const times = 200
	noLeaks(t)
	log, seen := &testlog.Buffer{}, &news{}
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Log, c.Observer = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), seen
	})
	told := func(what string) (n int) {
		for _, line := range log.Lines() {
			if strings.Contains(line, what) {
				n++
			}
		}
		return n
	}
	for i := range times {
		c, err := net.Dial("tcp", hostOf(b))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = c.(*net.TCPConn).SetLinger(0) // some end with RST
		}
		_ = c.Close()
		until(t, func() bool { return told("before it said anything") > i || told("level=WARN") > 0 })
	}
	if n := told("level=WARN"); n != 0 || len(seen.refused) != 0 || told("before it said anything") != times {
		t.Errorf("%d warnings, refusals %v, the log:\n%.1000s", n, seen.refused, log)
	}
	if n := seen.refusals(wire.CodeLaneLost); n != 0 { // one that had to make room first is another matter
		t.Errorf("%d refusals of connections that asked for nothing", n)
	}
}

// Each kind of line that a peer or a stranger can cause, ten thousand times.
func TestNobodyFillsTheLog(t *testing.T) {
	const times = 10_000
	frame := func(ty proto.Type, m proto.Message) []byte {
		return proto.AppendMessage(nil, proto.Frame{Type: ty}, m)
	}
	for name, cause := range map[string]func(t *testing.T, b *side, a *Peer){
		"GOAWAY": func(t *testing.T, _ *side, a *Peer) {
			h, _, _, err := a.dialLane([16]byte{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer a.node.endOpening(h.base)
			all := bytes.Repeat(frame(proto.TypeGoAway, proto.GoAway{MS: 600_000, Code: wire.CodeDraining, Text: "bye"}), times)
			if _, err := h.conn.Write(all); err != nil {
				t.Fatal(err)
			}
			halfClose(h.conn)
			_, _ = io.Copy(io.Discard, h.conn)
			_ = h.base.Close()
		},
		"sessions that end": func(t *testing.T, b *side, a *Peer) {
			for range times / 50 { // a handshake takes its time
				h, _, _, err := a.dialLane([16]byte{}, 0)
				if err == nil {
					a.node.endOpening(h.base)
					_ = h.base.Close()
				}
			}
		},
		"wrong names": func(t *testing.T, b *side, _ *Peer) {
			for range times / 20 {
				_, _ = knock(t, b, greeting("stranger", proto.AuthNone))
			}
		},
		"another protocol": func(t *testing.T, b *side, _ *Peer) {
			for range times / 20 {
				c, err := net.Dial("tcp", hostOf(b))
				if err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: example.invalid\r\n\r\n"))
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			log := &testlog.Buffer{}
			b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
				c.Log = slog.New(slog.NewTextHandler(log, nil))
				c.Peers = []PeerConfig{{Name: "a", Tenants: []string{"t"}}}
			})
			a := start(t, 1, 10, "", func(c *Config) {
				c.Name = "a"
				c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
			})
			ready(t, a.Peer("b"))
			cause(t, b, a.Peer("b"))
			if n := len(log.Lines()); n > 60 {
				t.Errorf("%d log lines, the first:\n%.2000s", n, log)
			}
		})
	}
}

// A peer that proved itself and was refused for something else is told of under its
// name.
func TestAProvenPeerThatIsRefusedIsSeenUnderItsName(t *testing.T) {
	noLeaks(t)
	b := start(t, 2, 20, "tcp://127.0.0.1:0", func(c *Config) {
		c.Insecure, c.PSK, c.Name = false, keyOne, "b"
		c.Peers = []PeerConfig{{Name: "a", Agent: agentID(9), Tenants: []string{"t"}}}
	})
	a := start(t, 1, 10, "", func(c *Config) {
		c.Insecure, c.PSK, c.Name = false, keyOne, "a"
		c.Peers = []PeerConfig{{Name: "b", Addr: b.addr, Tenants: []string{"t"}}}
	})
	refusedAs(t, a.Peer("b"), wire.CodeAuth, "is agent")
	until(t, func() bool { return b.Peers()[0].State == StateRefused })
	if i := b.Peers()[0]; i.Code != wire.CodeAuth || !strings.Contains(i.Text, "is agent") || !strings.HasPrefix(i.Addr, "127.0.0.1:") {
		t.Errorf("the acceptor says %v, %q at %q", i.Code, i.Text, i.Addr)
	}
}
