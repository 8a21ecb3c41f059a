package agent

import (
	"net"
	"testing"

	"meridian/agent/client"
	proto "meridian/wire/link"
)

// driveAdvice has a session that does not read in a group with one that works, until
// advice to it is dropped.
func driveAdvice(t *testing.T, n *testNode) {
	t.Helper()
	g := &client.Group{Agent: [16]byte{7}, Inc: 1}
	c, err := net.Dial("unix", n.cfg.Engine.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	hello := proto.Hello{Min: proto.Version, Max: proto.Version, Agent: g.Agent, Inc: g.Inc, Features: proto.FeatureLocal | proto.FeatureGroup}
	if _, err := c.Write(proto.AppendMessage(nil, proto.Frame{Type: proto.TypeHello, Flags: proto.FlagCritical}, hello)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // HELLO has come, and with it the session
		t.Fatal(err)
	}
	e, err := client.DialEngine(t.Context(), n.cfg.Engine.Socket, client.Options{Group: g})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for n.engines.Stats().Dropped.PhaseAt == 0 {
		req, err := e.Begin(t.Context(), client.Begin{ID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Finish(t.Context(), req, false); err != nil {
			t.Fatal(err)
		}
	}
}
