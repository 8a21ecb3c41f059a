package mooncake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/metadata"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/blocks/spaces"
	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

// house is a node that serves, and the store behind it.
type house struct {
	*Node
	store   *blocks.Store
	windows *window.Table
	ns      wire.Namespace
	other   wire.Namespace // of a tenant that peers may not have

	mu      sync.Mutex
	moved   []string
	refused []error
	wrong   []string
}

func newHouse(t *testing.T, peers []PeerConfig, change func(*ServeConfig)) *house {
	t.Helper()
	return newHouseAt(t, nil, peers, change)
}

func newHouseAt(t *testing.T, plane metadata.Plane, peers []PeerConfig, change func(*ServeConfig)) *house {
	t.Helper()
	st, err := blocks.Open(blocks.Config{Capacity: 64 << 20, Agent: [16]byte{1}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	h := &house{store: st, windows: window.New(st, func() time.Duration { return time.Since(began) }, 0, &quota.Book{})}
	reg := spaces.New(st.AddNamespace)
	add := func(tenant string) wire.Namespace {
		ns, err := reg.Add(wire.Manifest{Tenant: tenant, Model: "m", Role: "decode", BlockTokens: 16, BlockBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	h.ns, h.other = add("acme"), add("umbrella")
	c := ServeConfig{
		Listen: "127.0.0.1:0", Data: "127.0.0.1:0", Window: 4 << 20, Tenants: []string{"acme"},
		Store: st, Windows: h.windows, Tenant: reg.Tenant,
		Observer: Observer{
			Moved: func(peer string, in bool, bytes uint64, _ time.Duration) {
				h.note(func() { h.moved = append(h.moved, fmt.Sprint(peer, in, bytes)) })
			},
			Refused: func(_ string, _ bool, err error) { h.note(func() { h.refused = append(h.refused, err) }) },
			Wrong:   func(peer string) { h.note(func() { h.wrong = append(h.wrong, peer) }) },
		},
	}
	if change != nil {
		change(&c)
	}
	h.Node = newNode(t, Config{Label: "mooncake", Peers: peers, Notify: true, Serve: &c, Plane: plane})
	return h
}

func (h *house) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// stored is the payload of a block of the arena; nil: there is none.
func (h *house) stored(t *testing.T, key wire.Key) []byte {
	t.Helper()
	o := h.store.NewOwner(0)
	defer h.store.Drop(o)
	v := []blocks.View{{NS: h.ns, Key: key}}
	l, err := h.store.Acquire(o, v, time.Minute, false)
	if err != nil || v[0].Err != nil {
		return nil
	}
	defer h.store.Release(o, l)
	return bytes.Clone(h.store.Payload(v[0]))
}

// last is the code of the last refusal, which is forgotten.
func (h *house) last() (code wire.Code, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.refused) == 0 {
		return wire.CodeOK, ""
	}
	err := h.refused[len(h.refused)-1]
	h.refused = nil
	return wire.CodeOf(err), err.Error()
}

func payloadOf(t *testing.T, n, seed int) []byte {
	t.Helper()
	p, err := wire.AppendPayload(nil, wire.ThinkActive, wheel.Content(n, seed))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An application of the released wheel, with nothing of ours in it: it brings a block,
// asks for one, and finds in its memory what this daemon pushed. The payloads are the
// same from the first byte of their headers on.
func TestAMooncakeOnlyApplicationBringsAndTakesBlocks(t *testing.T) {
	const size = 300_000
	e := wheel.Start(t, 8<<20)
	h := newHouse(t, []PeerConfig{{"app", e.Name}}, nil)
	us, addr := h.server.ourName(), e.First(h.server.ourName())
	say := func(text string) bool {
		return e.Move(wheel.Move{Peer: us, Write: true, Here: []int{0}, There: []uint64{addr}, Sizes: []int{size + wire.HeaderLen}, Sender: e.Name, Notify: text})
	}

	told := func(want ...string) {
		t.Helper()
		got := e.Notifies()
		for i, w := range want {
			if i >= len(got) || got[i] != [2]string{us, w} {
				t.Errorf("notifies %v, want %v", got, want)
				return
			}
		}
	}

	brought := payloadOf(t, size, 1)
	e.Put(0, brought)
	key := wire.Key{1}
	if !say(message{verbPut, h.ns, key, addr, uint64(len(brought))}.String()) || !bytes.Equal(h.stored(t, key), brought) {
		t.Fatalf("put: %v", h.refused)
	}
	told(message{"put-done", h.ns, key, addr, uint64(len(brought))}.String())

	// The same bytes come back to another place of its memory.
	const there = 1 << 20
	if !say(message{verbGet, h.ns, key, e.Addr + there, 1 << 20}.String()) || !bytes.Equal(e.Get(there, len(brought)), brought) {
		t.Fatalf("get: %v", h.refused)
	}
	told(message{"get-done", h.ns, key, e.Addr + there, 1 << 20}.String())

	// A push of the daemon lies at the begin of the memory that it was lent.
	pushed := payloadOf(t, size, 2)
	it := []fabric.Item{{NS: h.ns, Key: wire.Key{2}, M: fabric.Mem{B: bytes.Clone(pushed)}}}
	if h.Push(t.Context(), it); it[0].Err != nil {
		t.Fatal(it[0].Err)
	}
	told(message{verbStored, h.ns, wire.Key{2}, e.Addr, uint64(len(pushed))}.String())
	if !bytes.Equal(e.Get(0, len(pushed)), pushed) {
		t.Error("other bytes lie in the application's memory")
	}
	clear(it[0].M.B)
	if h.Pull(t.Context(), it); it[0].Err != nil || !bytes.Equal(it[0].M.B, pushed) {
		t.Error("pull:", it[0].Err)
	}

	// A body that does not match its header is no block, and the application is told.
	brought[len(brought)-1] ^= 1
	e.Put(0, brought)
	bad := message{verbPut, h.ns, wire.Key{3}, addr, uint64(len(brought))}
	say(bad.String()) // the engine reports the write, and not what became of its notify
	told(strings.Replace(bad.String(), "put", "put-refused", 1) + " CHECKSUM")
	if code, _ := h.last(); code != wire.CodeChecksum || h.stored(t, wire.Key{3}) != nil || len(h.wrong) != 1 {
		t.Errorf("a damaged payload: %v, told %v", code, h.wrong)
	}
	if fmt.Sprint(h.moved) != fmt.Sprintf("[apptrue %d appfalse %d]", size, size) {
		t.Errorf("moved %v", h.moved)
	}
}

// A notify is checked whole before anything is done; each refusal has a code.
func TestWhatANotifyMayNotAskFor(t *testing.T) {
	l := newLender(t, 1<<20)
	h := newHouse(t, []PeerConfig{{"app", l.name}}, nil)
	w := h.server.guest("app").window
	payload := payloadOf(t, 1000, 1)
	n := uint64(len(payload))
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), h.server.ourName())
	if err != nil {
		t.Fatal(err)
	}
	ops := []engine.Op{{Addr: w.Addr, B: payload}, {Addr: w.Addr + w.Len - 4, B: make([]byte, 4)}}
	if seg.Write(t.Context(), ops); ops[0].Err != nil || ops[1].Err != nil {
		t.Fatal(ops[0].Err, ops[1].Err)
	}
	key := wire.Key{1}
	for name, c := range map[string]struct {
		text string
		code wire.Code
		say  string
	}{
		"no words":                  {"", wire.CodeInvalid, "want"},
		"other words":               {"hello meridian", wire.CodeInvalid, `"hello meridian"`},
		"a long text":               {strings.Repeat("x", 5000), wire.CodeTooLarge, "5000 bytes, limit 1024"},
		"an unknown verb":           {message{"pull", h.ns, key, w.Addr, n}.String(), wire.CodeUnsupported, `"pull"`},
		"our own verb":              {message{verbStored, h.ns, key, w.Addr, n}.String(), wire.CodeUnsupported, `the verb "stored": want put or get`},
		"a key of other length":     {"mrdn put " + h.ns.String() + " 00 1 32", wire.CodeInvalid, "key"},
		"a namespace of no hex":     {"mrdn put x 00 1 32", wire.CodeInvalid, "namespace"},
		"an address below 0":        {fmt.Sprintf("mrdn put %v %v -1 32", h.ns, key), wire.CodeInvalid, `address "-1"`},
		"a length of words":         {fmt.Sprintf("mrdn put %v %v 1 many", h.ns, key), wire.CodeInvalid, `length "many"`},
		"a length below a header":   {message{verbPut, h.ns, key, w.Addr, 31}.String(), wire.CodeInvalid, "31 bytes, want 32"},
		"a length above the limit":  {message{verbGet, h.ns, key, l.addr, maxItem + 1}.String(), wire.CodeInvalid, "want 32 to"},
		"a namespace nobody has":    {message{verbPut, wire.Namespace{9}, key, w.Addr, n}.String(), wire.CodeNSUnknown, "not open here"},
		"another tenant's":          {message{verbGet, h.other, key, l.addr, n}.String(), wire.CodeNSUnknown, "not open here"},
		"outside of the window":     {message{verbPut, h.ns, key, w.Addr + w.Len - n + 1, n}.String(), wire.CodeInvalid, "not in the window"},
		"before the window":         {message{verbPut, h.ns, key, w.Addr - 1, n}.String(), wire.CodeInvalid, "not in the window"},
		"around the address space":  {message{verbPut, h.ns, key, 1<<64 - 1, n}.String(), wire.CodeInvalid, "bytes at 18446744073709551615"},
		"no payload there":          {message{verbPut, h.ns, key, w.Addr + 64, n}.String(), wire.CodeMagic, ""},
		"another length":            {message{verbPut, h.ns, key, w.Addr, n - 1}.String(), wire.CodeInvalid, "whose header says 1032"},
		"a block that is not there": {message{verbGet, h.ns, wire.Key{7}, l.addr, n}.String(), wire.CodeAbsent, ""},
	} {
		client := handshake.Client{}
		err := client.Notify(t.Context(), h.server.ourName(), handshake.Notify{Name: "whoever", Text: c.text})
		code, text := h.last()
		if !errors.Is(err, wire.CodeDenied) || code != c.code || !strings.Contains(text, c.say) || len(text) > 500 {
			t.Errorf("%s: %v: %v %q, want %v %q", name, err, code, text, c.code, c.say)
		}
		if h.stored(t, key) != nil {
			t.Fatalf("%s: a block was published", name)
		}
	}
	tell := func(m message) error {
		return (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Text: m.String()})
	}
	for range 2 { // the second time it is there already
		if err := tell(message{verbPut, h.ns, key, w.Addr, n}); err != nil || !bytes.Equal(h.stored(t, key), payload) {
			t.Fatal(err, h.refused)
		}
	}
	for _, m := range []struct {
		message
		code wire.Code
	}{
		{message{verbGet, h.ns, key, l.addr, n - 1}, wire.CodeTooLarge},
		{message{verbGet, h.ns, key, l.addr + 1<<20 - n + 1, n}, wire.CodeInvalid},
		{message{verbGet, h.ns, key, 0, n}, wire.CodeInvalid},
	} {
		err := tell(m.message)
		if code, text := h.last(); err == nil || code != m.code {
			t.Errorf("%v: %v: %v %s", m.message, err, code, text)
		}
	}
	if err := tell(message{verbGet, h.ns, key, l.addr + 5, n}); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !bytes.Equal(l.b[5:5+n], payload) {
		t.Error("other bytes were given")
	}
}

// Only a listed peer has a window, and only its own.
func TestAStrangerHasNoWindow(t *testing.T) {
	l := newLender(t, 4096)
	h := newHouse(t, []PeerConfig{{"app", "192.0.2.1:9"}}, nil)
	d, _, err := (&handshake.Client{}).Get(t.Context(), h.server.ourName())
	if err != nil || len(d.Buffers) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	g := h.server.guest("app")
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), h.server.ourName())
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []bool{false, true} {
		ops := []engine.Op{{Addr: g.window.Addr, B: make([]byte, 8)}}
		if write {
			seg.Write(t.Context(), ops)
		} else {
			seg.Read(t.Context(), ops)
		}
		if code, _ := h.last(); !errors.Is(ops[0].Err, wire.CodeStale) || code != wire.CodeDenied {
			t.Errorf("write %v: %v, refused with %v", write, ops[0].Err, code)
		}
	}
	text := message{verbGet, h.ns, wire.Key{1}, l.addr, 64}.String()
	err = (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Name: "app", Text: text})
	if code, _ := h.last(); err == nil || code != wire.CodeDenied {
		t.Errorf("a notify in another's name: %v, %v", err, code)
	}
}

func TestAnAddressThatIsNotAllowedIsTurnedAway(t *testing.T) {
	h := newHouse(t, []PeerConfig{{"app", "192.0.2.1:9"}}, func(c *ServeConfig) { c.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} })
	for addr, want := range map[string]wire.Code{
		"127.0.0.1": wire.CodeOK, "::1": wire.CodeOK, "198.51.100.7": wire.CodeOK, "198.51.101.7": wire.CodeAuth, "2001:db8::1": wire.CodeAuth,
		"192.0.2.1": wire.CodeAuth, // a listed peer that is in no range
	} {
		if who, err := h.server.admit(netip.MustParseAddr(addr)); wire.CodeOf(err) != want || who == "app" {
			t.Errorf("%s: %s, %v", addr, who, err)
		}
	}
}

func TestPeersAtOneAddressCannotBeServed(t *testing.T) {
	h := newHouse(t, nil, nil)
	c := h.server.ServeConfig
	_, err := New(t.Context(), Config{Label: "m", Peers: []PeerConfig{{"a", "127.0.0.1:1"}, {"b", "127.0.0.1:2"}}, Serve: &c})
	if !errors.Is(err, wire.CodeConfig) || !strings.Contains(err.Error(), "peer a has the address 127.0.0.1 too") {
		t.Error(err)
	}
	if st := h.windows.Stats(); st.Windows != 0 {
		t.Errorf("%d windows are left", st.Windows)
	}
}

// What lay in the memory of a peer is gone with its process.
func TestARestartedPeerHasNoBlocks(t *testing.T) {
	l := newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}})
	it := []fabric.Item{{Key: wire.Key{1}, M: fabric.Mem{B: payloadOf(t, 1000, 1)}}}
	if n.Push(t.Context(), it); it[0].Err != nil || !n.Keeps(it[0].H) {
		t.Fatal(it[0].Err)
	}
	l.mu.Lock()
	l.addr += 1 << 32
	clear(l.b)
	l.mu.Unlock()
	if n.Pull(t.Context(), it); it[0].Err == nil {
		t.Error("a block was pulled of memory that is gone")
	}
	if n.Keeps(it[0].H) {
		t.Error("it is still kept")
	}
	h := it[0].H
	if n.Pull(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
		t.Errorf("the next pull: %v", it[0].Err)
	}
	if n.Push(t.Context(), it); it[0].Err != nil || it[0].H == h {
		t.Errorf("the next push: %v", it[0].Err)
	}
}

func TestFullAndUnreachablePeersSaySo(t *testing.T) {
	l := newLender(t, 4096)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"app", l.name}}, Lent: 2048})
	it := make([]fabric.Item, 2)
	for i := range it {
		it[i] = fabric.Item{Key: wire.Key{byte(i + 1)}, M: fabric.Mem{B: payloadOf(t, 1200, i)}}
	}
	if n.Push(t.Context(), it); it[0].Err != nil || !errors.Is(it[1].Err, wire.CodeFull) || !strings.Contains(it[1].Err.Error(), "peer app") {
		t.Errorf("%v, %v", it[0].Err, it[1].Err)
	}
	l.server.Close()
	l.target.Close()
	if n.Pull(t.Context(), it[:1]); !errors.Is(it[0].Err, wire.CodeUnreachable) && !errors.Is(it[0].Err, wire.CodeLaneLost) {
		t.Error(it[0].Err)
	}
	if err := n.Usable(wire.Namespace{}); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("usable:", err)
	}
	bad := 0
	for _, f := range n.Findings() {
		if f.Bad {
			bad++
			if f.ID != "unreachable.app" || f.Reason == "" || f.Fix == "" {
				t.Errorf("%+v", f)
			}
		}
	}
	if bad != 1 {
		t.Errorf("%d findings", bad)
	}
	empty := newNode(t, Config{Label: "mooncake"})
	if empty.Push(t.Context(), it[:1]); !errors.Is(it[0].Err, wire.CodeUnreachable) || empty.Usable(wire.Namespace{}) == nil {
		t.Error("without peers:", it[0].Err)
	}
}

func TestDrainRefusesWhatIsNew(t *testing.T) {
	h := newHouse(t, []PeerConfig{{"app", "127.0.0.1:9"}}, nil)
	if got := h.Addresses(); len(got) != 2 || !strings.HasPrefix(got[0], "mooncake://127.0.0.1:") {
		t.Error(got)
	}
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), h.server.ourName())
	if err != nil {
		t.Fatal(err)
	}
	ops := []engine.Op{{Addr: h.server.guest("app").window.Addr, B: make([]byte, 100)}}
	if seg.Write(t.Context(), ops); ops[0].Err != nil {
		t.Fatal(ops[0].Err)
	}
	h.Drain(context.Background())
	seg.Write(t.Context(), ops)
	if code, _ := h.last(); ops[0].Err == nil || code != wire.CodeDraining {
		t.Errorf("%v, %v", ops[0].Err, code)
	}
	if st := h.Stats(); st.BytesIn != 100 || st.RequestsIn != 1 || st.Refusals != 1 {
		t.Errorf("%+v", st)
	}
}

// Each listed peer is a fabric of its own, and all of them together are one.
func TestEachPeerIsAPathOfItsOwn(t *testing.T) {
	a, b := newLender(t, 1<<20), newLender(t, 1<<20)
	n := newNode(t, Config{Label: "mooncake", Peers: []PeerConfig{{"b", b.name}, {"a", a.name}}})
	for i, p := range n.Peers() {
		if want := string("ab"[i]); p.Name != want || !p.Listed || p.State != fabric.PeerIdle || p.Err() == nil {
			t.Errorf("before the first call: %+v", p)
		}
	}
	if n.Peer("c") != nil {
		t.Error("a peer that is not listed")
	}
	counts := map[string]int{}
	for i := range 64 {
		it := []fabric.Item{{Key: wire.Key{byte(i)}, M: fabric.Mem{B: payloadOf(t, 100, i)}}}
		name := n.Choose(it[0].NS, it[0].Key)
		counts[name]++
		path := n.Peer(name).(*onePeer)
		other := n.Peer(map[string]string{"a": "b", "b": "a"}[name]).(*onePeer)
		if i%2 == 0 {
			n.Push(t.Context(), it)
		} else {
			path.Push(t.Context(), it)
		}
		if it[0].Err != nil {
			t.Fatal(it[0].Err)
		}
		if path.Pull(t.Context(), it); it[0].Err != nil || !n.Keeps(it[0].H) || !path.Keeps(it[0].H) || other.Keeps(it[0].H) {
			t.Errorf("pushed to %s: %v", name, it[0].Err)
		}
		if other.Find(t.Context(), it); !errors.Is(it[0].Err, wire.CodeAbsent) {
			t.Errorf("found with the other peer: %v", it[0].Err)
		}
	}
	if counts["a"] == 0 || counts["b"] == 0 {
		t.Errorf("blocks have their homes at %v", counts)
	}
	for _, p := range n.Peers() {
		if p.State != fabric.PeerReady || p.Via != "tcp" || p.Lanes < 1 || p.Err() != nil {
			t.Errorf("after calls: %+v", p)
		}
	}
	if _, _, err := n.Peer("a").(*onePeer).Probe(t.Context(), "b"); !errors.Is(err, wire.CodeUnreachable) {
		t.Error("a probe of another peer:", err)
	}
	a.server.Close()
	a.target.Close()
	it := []fabric.Item{{Key: wire.Key{200}, M: fabric.Mem{B: payloadOf(t, 100, 1)}}}
	if n.Peer("a").Push(t.Context(), it); it[0].Err == nil {
		t.Error("pushed to a peer that is gone")
	}
	if p := n.Peers()[0]; p.State == fabric.PeerReady || p.Code == wire.CodeOK || p.Text == "" {
		t.Errorf("a peer that is gone: %+v", p)
	}
	if n.Peer("a").(*onePeer).Usable(wire.Namespace{}) == nil || n.Usable(wire.Namespace{}) != nil || n.Choose(wire.Namespace{}, wire.Key{3}) != "b" {
		t.Error("the other peer is not enough")
	}
	if err := n.Peer("b").Close(); err != nil {
		t.Error(err)
	}
	if it[0].H = (fabric.Handle{}); n.Usable(wire.Namespace{}) == nil {
		if n.Push(t.Context(), it); it[0].Err != nil {
			t.Error("the fabric, after one of its peers was closed as a path:", it[0].Err)
		}
	}
}
