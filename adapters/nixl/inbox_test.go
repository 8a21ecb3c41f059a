package nixl

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/testbed"
	"meridian/wire"
)

// inboxConns are the connections that one source may have.
const inboxConns = 64

// inboxRig is a listener without a helper, at which agentA is listed, and what it refused.
type inboxRig struct {
	*inbox
	t    *testing.T
	none atomic.Bool // there are no metadata of ours

	mu   sync.Mutex
	errs []error
}

func startInbox(t *testing.T, wait, takeover time.Duration) *inboxRig {
	t.Helper()
	book := &quota.Book{}
	book.SetLimit(quota.MetadataConns, quota.Source, inboxConns)
	in := newInbox(&Node{cfg: Config{Doors: door.NewCommon(book), Helper: HelperConfig{Log: testLog(t)}, Peers: []PeerConfig{{"a", ByListener + "agentA"}}}})
	in.wait, in.takeover = wait, takeover
	r := &inboxRig{inbox: in, t: t}
	in.ours = func() []byte {
		if r.none.Load() {
			return nil
		}
		return []byte("ours")
	}
	in.refused = func(_ string, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
	if err := in.listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.door.Close)
	return r
}

// blob is what agentA of the wheel has written.
func blob(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("plane", "testdata", "whole.blob"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *inboxRig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testbed.Patience))
	return c
}

func (r *inboxRig) says(c net.Conn, v plane.Verb, body []byte) {
	r.t.Helper()
	if _, err := c.Write(plane.Frame{Verb: v, Body: body}.Append(nil)); err != nil {
		r.t.Error(err)
	}
}

// closes waits until the daemon has closed a connection, and returns the last refusal.
func (r *inboxRig) closes(c net.Conn) error {
	r.t.Helper()
	return testbed.Closed(r.t, c, func() (last error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errs) > 0 {
			last, r.errs = r.errs[len(r.errs)-1], nil
		}
		return last
	})
}

// knows says whether agentA is there.
func (r *inboxRig) knows() bool {
	_, err := r.sent("agentA")
	return err == nil
}

func TestAnAgentSendsAsksAndWithdraws(t *testing.T) {
	r := startInbox(t, testbed.Patience, testbed.Patience)
	c := r.dial()
	r.says(c, plane.Load, blob(t))
	r.says(c, plane.Send, nil)
	if f, err := plane.ReadFrame(c, nil); err != nil || f.Verb != plane.Load || string(f.Body) != "ours" {
		t.Fatalf("%+v, %v", f, err)
	}
	s, err := r.sent("agentA")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.metadata(t.Context()); err != nil || string(b) != string(blob(t)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	r.says(c, plane.Invalidate, []byte("agentA"))
	testbed.Until(t, "it is forgotten", func() bool { return !r.knows() })
	testbed.Until(t, "who has it connected is told so", func() bool {
		_, err := s.metadata(t.Context())
		return errors.Is(err, wire.CodeUnreachable) && errors.Is(err, plane.ErrAbsent)
	})
	r.says(c, plane.Load, blob(t))
	testbed.Until(t, "it is back", r.knows)
	_ = c.Close()
	testbed.Until(t, "it is gone with its connection", func() bool { return !r.knows() })
}

func TestWhatIsWrongEndsOneConnectionAndChangesNothing(t *testing.T) {
	r := startInbox(t, testbed.Patience, testbed.Patience)
	agent := r.dial()
	r.says(agent, plane.Load, blob(t))
	testbed.Until(t, "the agent is known", r.knows)
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	frame := func(v plane.Verb, b []byte) []byte { return plane.Frame{Verb: v, Body: b}.Append(nil) }
	stranger := []byte("nixlSerDes|Agent\x06\x00\x00\x00\x00\x00\x00\x00agentB|Conns\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00|\x0a\x00\x00\x00\x00\x00\x00\x00MemSection|nixlSecElms\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00|")
	partial, err := os.ReadFile(filepath.Join("plane", "testdata", "partial.blob"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want wire.Code
	}{
		"a huge length":                {length(1<<62, string(plane.Load)), wire.CodeLength},
		"another protocol":             {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), wire.CodeLength},
		"an unknown verb":              {length(13, "NIXLCOMM:XXXX"), wire.CodeUnsupported},
		"metadata of a stranger":       {frame(plane.Load, stranger), wire.CodeDenied},
		"partial metadata":             {frame(plane.Load, partial), wire.CodeUnsupported},
		"no metadata":                  {frame(plane.Load, nil), wire.CodeInvalid},
		"somebody else is taken out":   {frame(plane.Invalidate, []byte("agentA")), wire.CodeDenied},
		"nobody in particular is, too": {frame(plane.Invalidate, nil), wire.CodeDenied},
	} {
		conn := r.dial()
		_, _ = conn.Write(c.b)
		if err := r.closes(conn); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	whole := blob(t)
	for n := range whole {
		conn := r.dial()
		r.says(conn, plane.Load, whole[:n])
		if err := r.closes(conn); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("metadata cut at %d: %v", n, err)
		}
	}
	if s, err := r.sent("agentA"); err != nil {
		t.Error("the agent is gone:", err)
	} else if b, err := s.metadata(t.Context()); err != nil || string(b) != string(whole) {
		t.Errorf("its metadata are others: %d bytes, %v", len(b), err)
	}
	r.none.Store(true)
	r.says(agent, plane.Send, nil)
	if err := r.closes(agent); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("ours are asked for while there are none:", err)
	}
}

func TestHalfAFrameHoldsUpNobodyElse(t *testing.T) {
	r := startInbox(t, 50*time.Millisecond, 0)
	silent, half := r.dial(), r.dial()
	_, _ = half.Write(plane.Frame{Verb: plane.Load, Body: blob(t)}.Append(nil)[:100])
	c := r.dial()
	r.says(c, plane.Load, blob(t))
	testbed.Until(t, "another agent is served", r.knows)
	for range 2 {
		if _, err := io.Copy(io.Discard, half); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("half a frame keeps its connection")
		}
		if _, err := io.Copy(io.Discard, silent); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection that never says anything stays")
		}
	}
	if !r.knows() {
		t.Error("an agent that is silent after its metadata is gone")
	}
}

func TestAThousandConnectionsLeaveRoomForAnAgent(t *testing.T) {
	r := startInbox(t, testbed.Patience, 0)
	for i := range 1000 {
		c := r.dial()
		if i%2 == 1 {
			_, _ = c.Write([]byte{1, 2, 3})
		}
	}
	c := r.dial()
	r.says(c, plane.Load, blob(t))
	testbed.Until(t, "the agent is known", r.knows)
	if n := r.door.Len(); n > inboxConns {
		t.Errorf("%d connections, limit %d", n, inboxConns)
	}
	for range 300 {
		r.dial()
	}
	if !r.knows() {
		t.Error("an agent had to make room for silent connections")
	}
}

func TestAnAgentsNameIsItsUntilItIsGone(t *testing.T) {
	for name, takeover := range map[string]time.Duration{"it lives": 10 * time.Millisecond, "it ends": testbed.Patience} {
		t.Run(name, func(t *testing.T) {
			r := startInbox(t, testbed.Patience, takeover)
			first, second := r.dial(), r.dial()
			r.says(first, plane.Load, blob(t))
			testbed.Until(t, "the agent is known", r.knows)
			was, _ := r.sent("agentA")
			r.says(second, plane.Load, blob(t))
			if takeover < testbed.Patience {
				if err := r.closes(second); !errors.Is(err, wire.CodeExists) {
					t.Error("a second agent of the name:", err)
				}
				if is, err := r.sent("agentA"); err != nil || is != was {
					t.Error("the first one lost its name:", err)
				}
				return
			}
			_ = first.Close()
			testbed.Until(t, "the next one has the name", func() bool {
				is, err := r.sent("agentA")
				return err == nil && is != was
			})
			if _, err := was.metadata(t.Context()); !errors.Is(err, wire.CodeUnreachable) {
				t.Error("the first one lives still:", err)
			}
		})
	}
}

func TestOnlyAllowedSourcesAreLetIn(t *testing.T) {
	n := &Node{cfg: Config{Helper: HelperConfig{Log: testLog(t)}}}
	n.inbox = newInbox(n)
	for _, c := range []struct {
		from, list string
		let        bool
	}{
		{"127.0.0.1", "", true}, {"::1", "", true}, {"10.0.0.1", "", false}, {"10.0.0.1", "10.0.0.0/24", true}, {"10.0.1.1", "10.0.0.0/24", false},
	} {
		n.SetAllow(nil)
		if c.list != "" {
			n.SetAllow([]netip.Prefix{netip.MustParsePrefix(c.list)})
		}
		if _, err := n.inbox.admit(netip.MustParseAddr(c.from)); (err == nil) != c.let || err != nil && !errors.Is(err, wire.CodeDenied) {
			t.Errorf("%s with allow %q: %v", c.from, c.list, err)
		}
	}
}
