package mooncake

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/internal/wheel"
	"meridian/fabric/lent/notice"
	"meridian/wire"
)

// One notify of a real engine names several blocks, and one of ours says what became of
// each: a damaged one among them costs the others nothing.
func TestOneNotifyPutsSeveralBlocks(t *testing.T) {
	const count, bad = notice.MaxLines, 5
	e := wheel.Start(t, 8<<20)
	h := newHouse(t, []PeerConfig{{"app", e.Name}}, nil)
	us, addr := h.server.ourName(), e.First(h.server.ourName())
	var here, sizes []int
	var there []uint64
	var texts, want []string
	var payloads [][]byte
	at := 0
	for i := range count {
		p := payloadOf(t, 1000+i, i)
		payloads = append(payloads, bytes.Clone(p))
		if i == bad {
			p[len(p)-1] ^= 1
		}
		e.Put(at, p)
		m := message{verbPut, h.ns, wire.Key{byte(i + 1)}, addr + uint64(at), uint64(len(p))}
		texts = append(texts, m.String())
		if m.verb = "put-done"; i == bad {
			m.verb = "put-refused"
		}
		line := m.String()
		if i == bad {
			line += " CHECKSUM"
		}
		want = append(want, line)
		here, there, sizes = append(here, at), append(there, addr+uint64(at)), append(sizes, len(p))
		at += 2048
	}
	e.Move(wheel.Move{Peer: us, Write: true, Here: here, There: there, Sizes: sizes, Sender: e.Name, Notify: strings.Join(texts, "\n")})
	if got := e.Notifies(); len(got) != 1 || got[0][1] != strings.Join(want, "\n") {
		t.Errorf("notifies %q", got)
	}
	for i, p := range payloads {
		got := h.stored(t, wire.Key{byte(i + 1)})
		if i == bad && got != nil || i != bad && !bytes.Equal(got, p) {
			t.Errorf("block %d: %d bytes are stored", i, len(got))
		}
	}
	if code, _ := h.last(); code != wire.CodeChecksum || len(h.moved) != count-1 {
		t.Errorf("%v, moved %v", code, h.moved)
	}
}

// Nothing is done of a notify that has one line which may not be asked for.
func TestANotifyWithOneWrongLineDoesNothing(t *testing.T) {
	l := newLender(t, 1<<20)
	h := newHouse(t, []PeerConfig{{"app", l.name}}, nil)
	w := h.server.guest("app").window
	payload := payloadOf(t, 1000, 1)
	write(t, h, w.Addr, payload)
	good := message{verbPut, h.ns, wire.Key{1}, w.Addr, uint64(len(payload))}
	get, foreign := good, good
	get.verb, foreign.ns = verbGet, h.other
	for name, c := range map[string]struct {
		lines []string
		code  wire.Code
		say   string
	}{
		"an empty line":     {[]string{good.String(), ""}, wire.CodeInvalid, "want"},
		"a get":             {[]string{good.String(), get.String()}, wire.CodeUnsupported, "get in a text of 2 lines: several are for put only"},
		"another tenant's":  {[]string{good.String(), foreign.String()}, wire.CodeNSUnknown, "not open here"},
		"a long line":       {[]string{good.String(), strings.Repeat("x", notice.MaxText+1)}, wire.CodeTooLarge, "1025 bytes, limit 1024"},
		"one line too many": {strings.Split(strings.Repeat(good.String()+"\n", notice.MaxLines), "\n"), wire.CodeTooMany, "65 lines, limit 64"},
	} {
		client := handshake.Client{}
		err := client.Notify(t.Context(), h.server.ourName(), handshake.Notify{Name: "whoever", Text: strings.Join(c.lines, "\n")})
		code, text := h.last()
		if !errors.Is(err, wire.CodeDenied) || code != c.code || !strings.Contains(text, c.say) || len(text) > 500 {
			t.Errorf("%s: %v: %v %q, want %v %q", name, err, code, text, c.code, c.say)
		}
		if h.stored(t, good.key) != nil {
			t.Fatalf("%s: a block was published", name)
		}
	}
	outside := good
	outside.key, outside.addr = wire.Key{2}, w.Addr+w.Len
	err := (&handshake.Client{}).Notify(t.Context(), h.server.ourName(), handshake.Notify{Text: fmt.Sprintf("%v\n%v\n%v", outside, good, outside)})
	if !errors.Is(err, wire.CodeDenied) || !bytes.Equal(h.stored(t, good.key), payload) {
		t.Errorf("beside lines that fail when they are done: %v, %v", err, h.refused)
	}
	if st := h.Stats(); st.Refusals != 7 {
		t.Errorf("%d refusals: want one for each notify above, and 2 for the lines of the last", st.Refusals)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(message{verbPut, wire.Namespace{1}, wire.Key{2}, 3, 64}.String())
	f.Add("mrdn get  x")
	put := message{verbPut, wire.Namespace{1}, wire.Key{2}, 3, 64}.String()
	f.Add(put + "\n" + put)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseMessages(text)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeInternal || len(err.Error()) > 500 {
				t.Fatalf("%.600v", err)
			}
			return
		}
		for _, m := range list {
			if again, err := parseMessages(m.String()); err != nil || len(again) != 1 || again[0] != m {
				t.Fatalf("%+v, then %+v, %v", m, again, err)
			}
		}
	})
}

// write writes into a window, as a peer does.
func write(t *testing.T, h *house, addr uint64, b []byte) {
	t.Helper()
	in := engine.NewInitiator(engine.InitiatorConfig{Resolver: &handshake.Client{}})
	defer in.Close()
	seg, err := in.Open(t.Context(), h.server.ourName())
	if err != nil {
		t.Fatal(err)
	}
	ops := []engine.Op{{Addr: addr, B: b}}
	if seg.Write(t.Context(), ops); ops[0].Err != nil {
		t.Fatal(ops[0].Err)
	}
}
