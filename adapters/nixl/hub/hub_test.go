package hub

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/adapters/nixl/plane"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/testbed"
	"meridian/internal/testlog"
	"meridian/wire"
)

// conns are the connections that one source may have in tests.
const conns = 32

// rig is a hub on the loopback, and what it refused.
type rig struct {
	*Hub
	t   *testing.T
	log testlog.Buffer

	mu   sync.Mutex
	errs []error
}

func newRig(t *testing.T, patience, takeover time.Duration) *rig {
	t.Helper()
	book := &quota.Book{}
	book.SetLimit(quota.MetadataConns, quota.Source, conns)
	r := &rig{t: t}
	r.Hub = New(Config{
		Label: "hub", Listen: "127.0.0.1:0", Quota: book, Doors: door.NewCommon(book), Log: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &r.log), nil)),
		Refused: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs = append(r.errs, err)
		},
	})
	r.patience, r.takeover = patience, takeover
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Hub.Close() })
	return r
}

// guest is a connection.
type guest struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func (r *rig) dial() *guest {
	r.t.Helper()
	c, err := net.Dial("tcp", r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testbed.Patience))
	return &guest{c, bufio.NewReader(c), r.t}
}

func (g *guest) says(list ...plane.Request) {
	g.t.Helper()
	var b []byte
	for _, q := range list {
		b = q.Append(b)
	}
	if _, err := g.Write(b); err != nil {
		g.t.Error(err)
	}
}

// hello greets, and waits for the answer.
func (r *rig) hello(pid uint32) *guest {
	r.t.Helper()
	g := r.dial()
	g.says(plane.Request{Op: plane.OpValidate}, plane.Request{Op: plane.OpPing, Nonce: pid})
	var echo [4]byte
	if _, err := io.ReadFull(g.r, echo[:]); err != nil || binary.LittleEndian.Uint32(echo[:]) != pid {
		r.t.Fatal(echo, err)
	}
	return g
}

// put puts an agent's metadata, and waits until they are there.
func (r *rig) put(g *guest, agent, address string) {
	r.t.Helper()
	g.says(plane.Request{Op: plane.OpSet, Key: whole(agent).String(), Value: metadata(agent, address)})
	if got := g.get(agent); !bytes.Equal(got, metadata(agent, address)) {
		r.t.Errorf("%q is there after a SET", got)
	}
}

func (g *guest) get(agent string) []byte {
	g.t.Helper()
	g.says(plane.Request{Op: plane.OpGet, Key: whole(agent).String()})
	var n [8]byte
	if _, err := io.ReadFull(g.r, n[:]); err != nil {
		g.t.Fatal(err)
	}
	b := make([]byte, binary.LittleEndian.Uint64(n[:]))
	if _, err := io.ReadFull(g.r, b); err != nil {
		g.t.Fatal(err)
	}
	return b
}

// closes waits until the hub has closed a connection, and returns the last refusal.
func (r *rig) closes(g *guest) error {
	r.t.Helper()
	return testbed.Closed(r.t, g.r, func() (last error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errs) > 0 {
			last, r.errs = r.errs[len(r.errs)-1], nil
		}
		return last
	})
}

func TestRequestsAreAnswered(t *testing.T) {
	r := newRig(t, testbed.Patience, testbed.Patience)
	g := r.hello(4242)
	check := func(agent string, want byte) {
		t.Helper()
		g.says(plane.Request{Op: plane.OpCheck, Key: whole(agent).String()})
		if b, err := g.r.ReadByte(); err != nil || b != want {
			t.Errorf("CHECK of %s: %d, %v", agent, b, err)
		}
	}
	check("x", plane.NotReady)
	if b := g.get("x"); len(b) != 0 {
		t.Errorf("GET of nothing: %q", b)
	}
	r.put(g, "x", "1")
	check("x", plane.Ready)
	if e := r.Entries(); len(e) != 1 || e[0].Name != "x" || e[0].PID != 4242 || e[0].From != g.LocalAddr().String() || !e[0].Alive || e[0].Since.IsZero() {
		t.Errorf("%+v", e)
	}
	for _, want := range []uint64{1, 0} {
		g.says(plane.Request{Op: plane.OpDelete, Key: whole("x").String()})
		var n [8]byte
		if _, err := io.ReadFull(g.r, n[:]); err != nil || binary.LittleEndian.Uint64(n[:]) != want {
			t.Errorf("DELETE: %v, %v, want %d", n, err, want)
		}
	}
	for _, want := range []string{"metadata are put", "metadata are withdrawn", "nixl_agent=x", "pid=4242", "from=" + g.LocalAddr().String()} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	if st := r.Stats(); st.Sessions != 1 || st.RequestsIn == 0 || st.Refusals != 0 {
		t.Errorf("%+v", st)
	}
}

func TestWhatIsWrongEndsItsConnectionOnly(t *testing.T) {
	r := newRig(t, testbed.Patience, 10*time.Millisecond)
	owner := r.hello(1)
	r.put(owner, "x", "1")
	raw := func(greeted bool, b string) func() *guest {
		return func() *guest {
			open := r.dial
			if greeted {
				open = func() *guest { return r.hello(2) }
			}
			g := open()
			_, _ = io.WriteString(g, b)
			return g
		}
	}
	number := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	set := func(k plane.Key, b []byte) string {
		return string(plane.Request{Op: plane.OpSet, Key: k.String(), Value: b}.Append(nil))
	}
	for name, c := range map[string]struct {
		g    func() *guest
		want wire.Code
	}{
		"no VALIDATE":                {raw(false, set(whole("y"), metadata("y", "1"))), wire.CodeState},
		"another magic":              {raw(false, "\x00abcd"), wire.CodeMagic},
		"another protocol":           {raw(false, "GET / HTTP/1.1\r\n\r\n"), wire.CodeUnsupported},
		"WAIT":                       {raw(true, "\x06"), wire.CodeUnsupported},
		"a huge key":                 {raw(true, "\x03"+number(1<<62)), wire.CodeLength},
		"a huge value":               {raw(true, "\x01"+number(1)+"k"+number(1<<40)), wire.CodeLength},
		"a key that is not NIXL's":   {raw(true, string(plane.Request{Op: plane.OpGet, Key: "/rank0"}.Append(nil))), wire.CodeInvalid},
		"a value that is none":       {raw(true, set(whole("y"), []byte("hello"))), wire.CodeInvalid},
		"a value of another agent":   {raw(true, set(whole("y"), metadata("z", "1"))), wire.CodeInvalid},
		"a name that somebody has":   {raw(true, set(whole("x"), metadata("x", "2"))), wire.CodeExists},
		"a label of somebody else's": {raw(true, set(plane.Key{Label: "half", Agent: "x"}, metadata("x", "2"))), wire.CodeExists},
	} {
		if err := r.closes(c.g()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	all := metadata("y", "1")
	for n := range all {
		if err := r.closes(raw(true, set(whole("y"), all[:n]))()); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("metadata cut at %d: %v", n, err)
		}
	}
	thief := r.hello(3)
	thief.says(plane.Request{Op: plane.OpDelete, Key: whole("x").String()})
	var n [8]byte
	if _, err := io.ReadFull(thief.r, n[:]); err != nil || n != ([8]byte{}) {
		t.Errorf("somebody else deletes it: %v, %v", n, err)
	}
	if got := owner.get("x"); !bytes.Equal(got, metadata("x", "1")) || len(r.Entries()) != 1 {
		t.Errorf("the owner has %q, all are %+v", got, r.Entries())
	}
}

func TestHalfARequestHoldsUpNobodyElse(t *testing.T) {
	r := newRig(t, 50*time.Millisecond, 0)
	silent, half := r.dial(), r.hello(1)
	_, _ = half.Write(plane.Request{Op: plane.OpSet, Key: whole("x").String(), Value: metadata("x", "1")}.Append(nil)[:60])
	g := r.hello(2)
	r.put(g, "y", "1")
	for name, c := range map[string]*guest{"half a request": half, "nothing": silent} {
		if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s keeps its connection", name)
		}
	}
	if got := g.get("y"); len(got) == 0 {
		t.Error("an agent that was silent between requests is gone")
	}
}

func TestAReaderThatTakesNothingIsPutOut(t *testing.T) {
	r := newRig(t, time.Second, 0)
	owner, greedy := r.hello(1), r.hello(2)
	large := strings.Repeat("a", plane.MaxBlob-1000)
	r.put(owner, "x", large)
	for range 100 {
		if _, err := greedy.Write(plane.Request{Op: plane.OpGet, Key: whole("x").String()}.Append(nil)); err != nil {
			break // it is out already
		}
	}
	testbed.Until(t, "the reader is refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.errs) == 1 && errors.Is(r.errs[0], wire.CodeDeadline)
	})
	if got := owner.get("x"); len(got) != len(metadata("x", large)) {
		t.Errorf("another one gets %d bytes", len(got))
	}
}

func TestAThousandConnectionsLeaveRoomForAnAgent(t *testing.T) {
	r := newRig(t, testbed.Patience, 0)
	owner := r.hello(1)
	r.put(owner, "x", "1")
	for i := range 1000 {
		g := r.dial()
		if i%2 == 1 {
			_, _ = g.Write([]byte{1, 2, 3})
		}
	}
	r.put(r.hello(2), "y", "1")
	if n := r.door.Len(); n > conns {
		t.Errorf("%d connections, limit %d", n, conns)
	}
	if got := owner.get("x"); len(got) == 0 {
		t.Error("an agent had to make room for silent connections")
	}
}

// An agent that is started again may be faster than the end of its old connection.
func TestTheNextAgentOfANameWaitsForTheEndOfTheLast(t *testing.T) {
	r := newRig(t, testbed.Patience, testbed.Patience)
	first, second := r.hello(1), r.hello(2)
	r.put(first, "x", "1")
	second.says(plane.Request{Op: plane.OpSet, Key: whole("x").String(), Value: metadata("x", "2")})
	_ = first.Close()
	if got := second.get("x"); !bytes.Equal(got, metadata("x", "2")) {
		t.Errorf("%q", got)
	}
}

func TestOnlyAllowedSourcesAreLetIn(t *testing.T) {
	h := New(Config{Quota: &quota.Book{}})
	for _, c := range []struct {
		from, list string
		let        bool
	}{
		{"127.0.0.1", "", true}, {"::1", "", true}, {"10.0.0.1", "", false}, {"10.0.0.1", "10.0.0.0/24", true}, {"10.0.1.1", "10.0.0.0/24", false},
	} {
		h.SetAllow(nil)
		if c.list != "" {
			h.SetAllow([]netip.Prefix{netip.MustParsePrefix(c.list)})
		}
		if _, err := h.admit(netip.MustParseAddr(c.from)); (err == nil) != c.let || err != nil && !errors.Is(err, wire.CodeDenied) {
			t.Errorf("%s with allow %q: %v", c.from, c.list, err)
		}
	}
}

// The client of this room and the hub, which it finds again.
func TestAClientPublishesAndWithdraws(t *testing.T) {
	r := newRig(t, testbed.Patience, 10*time.Millisecond)
	s := plane.NewTCPStore(r.at)
	defer func() { _ = s.Close() }()
	if _, err := s.Get(t.Context(), "x"); !errors.Is(err, plane.ErrAbsent) {
		t.Error(err)
	}
	for range 2 {
		if err := s.Publish(t.Context(), "x", metadata("x", "1")); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := s.Get(t.Context(), "x"); err != nil || !bytes.Equal(b, metadata("x", "1")) {
		t.Errorf("%q, %v", b, err)
	}
	other := plane.NewTCPStore(r.at)
	defer func() { _ = other.Close() }()
	if err := other.Publish(t.Context(), "x", metadata("x", "2")); err == nil {
		t.Error("another client has taken its name")
	}
	if err := s.Withdraw(t.Context(), "x"); err != nil || len(r.Entries()) != 0 {
		t.Error(err, r.Entries())
	}
	_ = r.Hub.Close()
	if _, err := s.Get(t.Context(), "x"); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("a hub that is gone:", err)
	}
}

// Two unmodified agents find each other and move bytes; one that dies is forgotten.
func TestRealAgentsFindEachOtherByTheHub(t *testing.T) {
	r := newRig(t, requestTime, takeoverTime)
	const n = 1 << 16
	env := "NIXL_TCPSTORE_ENDPOINT=" + r.at
	a, b := wheel.Start(t, "a", n, env), wheel.Start(t, "b", n, env)
	a.Fetch("b", "") // before it is there: the client asks again and again
	b.Send("")
	a.Send("")
	b.Fetch("a", "")
	testbed.Until(t, "they know each other", func() bool { return a.Knows("b") && b.Knows("a") })
	content := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	a.Put(0, content)
	a.Write("b", 0, b.Addr, n, "it is there")
	testbed.Until(t, "b is told", func() bool {
		list := b.Notifs()
		return len(list) == 1 && list[0] == [2]string{"a", "it is there"}
	})
	if !bytes.Equal(b.Get(0, n), content) {
		t.Error("other bytes came")
	}
	if e := r.Entries(); len(e) != 2 || !e[0].Alive || !e[1].Alive || e[0].Bytes == 0 {
		t.Errorf("%+v", e)
	}
	b.Withdraw("")
	testbed.Until(t, "b has withdrawn its own", func() bool { return len(r.Entries()) == 1 })
	a.Kill()
	testbed.Until(t, "the connection of a has ended", func() bool { e := r.Entries(); return len(e) == 1 && !e[0].Alive })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) != 0 {
		t.Error("refused:", r.errs)
	}
}

// The client sees that a store was started again and has lost what was there. A new
// connection to the same one, or what the client itself took out, is no such thing.
func TestTheClientSeesThatAHubWasStartedAgain(t *testing.T) {
	here := newRig(t, testbed.Patience, testbed.Patience)
	var mu sync.Mutex
	to, conns := here.at, []net.Conn(nil)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var carried sync.WaitGroup
	carried.Go(func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			hub, err := net.Dial("tcp", to)
			if err == nil {
				conns = append(conns, c, hub)
				carried.Go(func() { _, _ = io.Copy(hub, c) })
				carried.Go(func() { _, _ = io.Copy(c, hub) })
			}
			mu.Unlock()
		}
	})
	// move ends all connections; the next ones lead to a hub.
	move := func(r *rig) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
		conns, to = nil, r.at
	}
	defer func() {
		_ = front.Close()
		move(here)
		carried.Wait()
	}()
	s := plane.NewTCPStore(front.Addr().String())
	defer func() { _ = s.Close() }()
	again := func(what string, life uint64) {
		t.Helper()
		testbed.Until(t, what, func() bool { return s.Publish(t.Context(), "x", metadata("x", "1")) == nil })
		if got := s.Life(); got != life {
			t.Errorf("%s: its life is %d, want %d", what, got, life)
		}
	}
	again("the first", 0)
	move(here)
	again("a new connection", 0)
	move(newRig(t, testbed.Patience, testbed.Patience))
	again("another hub", 1)
	if err := s.Withdraw(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	move(newRig(t, testbed.Patience, testbed.Patience))
	again("another hub, after the client took its metadata out", 1)
}
