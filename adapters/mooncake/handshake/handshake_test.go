package handshake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/pipenet"
	"meridian/wire"
)

// daemon is a server behind a pipe, and what it reported.
type daemon struct {
	*pipenet.Listener
	server *Server

	mu       sync.Mutex
	refused  []error
	notifies []Notify
}

func newDaemon(t *testing.T, limits Config) *daemon {
	t.Helper()
	d := &daemon{Listener: pipenet.New()}
	cfg := limits
	cfg.Descriptor = func(peer string) segment.Descriptor {
		return segment.Descriptor{Name: "for " + peer, Protocols: []string{segment.TCP}, DataPort: 9, Proto: 2}
	}
	cfg.Admit = func(a netip.Addr) (string, error) { return a.String(), nil }
	cfg.Refused = func(_ string, err error) {
		d.mu.Lock()
		d.refused = append(d.refused, err)
		d.mu.Unlock()
	}
	cfg.Notified = func(_ *door.Conn, n Notify) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n.Text == "no" {
			return wire.CodeDenied
		}
		d.notifies = append(d.notifies, n)
		return nil
	}
	d.server = NewServer(cfg)
	if !d.server.Open(d.Listener) {
		t.Fatal("not opened")
	}
	return d
}

// codes are those of what was refused.
func (d *daemon) codes() (out []wire.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, err := range d.refused {
		out = append(out, wire.CodeOf(err))
	}
	return out
}

func (d *daemon) reported(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, err := range d.refused {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// ask sends bytes and returns all that comes back.
func (d *daemon) ask(t *testing.T, b []byte) []byte {
	t.Helper()
	c, err := d.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(b)
	}()
	got, _ := io.ReadAll(c)
	_ = c.Close()
	<-sent
	return got
}

// limited has limits of one source and of all.
func limited(r quota.Resource, source, all int) *door.Common {
	var book quota.Book
	book.SetLimit(r, quota.Source, uint64(source))
	book.SetLimit(r, quota.All, uint64(all))
	return door.NewCommon(&book)
}

// bubble runs a test under a fake clock.
func bubble(t *testing.T, limits Config, f func(t *testing.T, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, limits)
		f(t, d)
		d.server.Close()
	})
}

func raw(t Type, text string) []byte { return frame{typ: t, text: []byte(text)}.append(nil) }

// An answer for somebody else is not given where he does not give it.
func TestARequestThatMayNotBeAnsweredEndsItsConnection(t *testing.T) {
	var asked []Type
	limits := Config{Asked: func(_ *door.Conn, typ Type) error {
		asked = append(asked, typ)
		return wire.CodeUnreachable
	}}
	bubble(t, limits, func(t *testing.T, d *daemon) {
		for _, typ := range []Type{TypeMetadata, TypeProbe} {
			if got := d.ask(t, raw(typ, "{}")); len(got) != 0 {
				t.Errorf("%v: answered % x", typ, got)
			}
		}
		if got := d.ask(t, raw(TypeNotify, `{"name":"x","notify_msg":"hi"}`)); len(got) == 0 {
			t.Error("a notify, which has a refusal of its own, was not answered")
		}
		synctest.Wait()
		if got := d.codes(); len(asked) != 2 || len(got) != 2 || got[0] != wire.CodeUnreachable {
			t.Errorf("asked %v, refused %v", asked, got)
		}
	})
}

// What an engine of the released wheel 0.3.13.post1 answered to the same requests.
func TestAnswersAreThoseOfTheReleasedEngineByteForByte(t *testing.T) {
	const connection = `{"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"","qp_num":[],"reply_msg":""}` + "\n"
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		for _, c := range []struct{ ask, want []byte }{
			{raw(TypeNotify, `{"name":"x","notify_msg":"hi"}`), []byte("\x24\x00\x00\x00\x00\x00\x00\x00\x02{\"name\":\"\",\"notify_msg\":\"success\"}\n")},
			{raw(TypeNotify, `{"name":"x","notify_msg":""}`), []byte("\x24\x00\x00\x00\x00\x00\x00\x00\x02{\"name\":\"\",\"notify_msg\":\"success\"}\n")},
			{raw(TypeProbe, `{}`), []byte("\x16\x00\x00\x00\x00\x00\x00\x00\x03{\"status\":\"success\"}\n")},
			{raw(TypeConnection, `{}`), []byte("\x6f\x00\x00\x00\x00\x00\x00\x00\x00" + connection)},
			{frame{old: true, text: []byte("{}")}.append(nil), []byte("\x6e\x00\x00\x00\x00\x00\x00\x00" + connection)},
		} {
			if got := d.ask(t, c.ask); !bytes.Equal(got, c.want) {
				t.Errorf("%q: %q, want %q", c.ask, got, c.want)
			}
		}
		if len(d.codes()) != 0 || len(d.notifies) != 2 || d.notifies[0] != (Notify{"x", "hi"}) {
			t.Errorf("%v, %v", d.refused, d.notifies)
		}
	})
}

func TestADescriptorIsMadeForWhomItIsAskedBy(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		for _, text := range []string{"{}", `{"name":"whatever it says"}`, "[]"} {
			got := d.ask(t, raw(TypeMetadata, text))
			if len(got) < 9 || got[8] != 1 {
				t.Fatalf("%s: %q", text, got)
			}
			if desc, err := segment.Parse(got[9:]); err != nil || desc.Name != "for 127.0.0.1" {
				t.Errorf("%s: %+v, %v", text, desc, err)
			}
		}
	})
}

// Each wrong frame ends its own connection without an answer, is counted by its code,
// and disturbs no other.
func TestAWrongFrameEndsItsConnectionOnly(t *testing.T) {
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for name, c := range map[string]struct {
		send []byte
		code wire.Code
		text string
	}{
		"length 0":               {length(0), wire.CodeLength, "a frame of 0 bytes"},
		"length 1 MiB and 1":     {length(1<<20 + 1), wire.CodeTooLarge, "1048577 bytes, limit 1048576"},
		"length 2^64-1":          {length(1<<64 - 1), wire.CodeTooLarge, "18446744073709551615 bytes"},
		"an unknown type":        {raw(4, "{}"), wire.CodeUnsupported, "type 0x04"},
		"the invalid type":       {raw(0xfe, "{}"), wire.CodeUnsupported, "type 0xfe"},
		"metadata without text":  {raw(TypeMetadata, ""), wire.CodeTruncated, "without a text"},
		"a notify not JSON":      {raw(TypeNotify, "nonsense"), wire.CodeInvalid, "invalid character"},
		"a notify of numbers":    {raw(TypeNotify, `{"notify_msg":5}`), wire.CodeInvalid, "number"},
		"a probe without text":   {raw(TypeProbe, ""), wire.CodeInvalid, ""},
		"an old frame not JSON":  {append(length(2), "{{"...), wire.CodeInvalid, ""},
		"a connection not JSON":  {raw(TypeConnection, "nonsense"), wire.CodeInvalid, ""},
		"an HTTP request":        {[]byte("GET / HTTP/1.1\r\n\r\n"), wire.CodeTooLarge, "limit"},
		"a notify that is taken": {raw(TypeNotify, `{"notify_msg":"no"}`), wire.CodeDenied, ""},
	} {
		bubble(t, Config{}, func(t *testing.T, d *daemon) {
			got := d.ask(t, c.send)
			if c.code == wire.CodeDenied { // the application refuses, and the peer is told
				if !bytes.HasSuffix(got, []byte(`{"name":"","notify_msg":""}`+"\n")) {
					t.Errorf("%s: answered %q", name, got)
				}
			} else if len(got) != 0 {
				t.Errorf("%s: answered %q", name, got)
			}
			synctest.Wait()
			if codes := d.codes(); len(codes) != 1 || codes[0] != c.code || !d.reported(c.text) {
				t.Errorf("%s: %v, want %v %q", name, d.refused, c.code, c.text)
			}
			if got := d.ask(t, raw(TypeProbe, "{}")); len(got) == 0 {
				t.Errorf("%s: the next connection got no answer", name)
			}
		})
	}
}

func TestAFrameOfTheLimitIsTaken(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		text := `{"notify_msg":"` + strings.Repeat("x", MaxFrame-18) + `"}`
		if got := d.ask(t, raw(TypeNotify, text)); len(text)+1 != MaxFrame || len(got) == 0 || len(d.notifies) != 1 {
			t.Errorf("%d bytes: %q, %v", len(text)+1, got, d.refused)
		}
	})
}

func TestAFrameThatIsCutAnywhereIsAnError(t *testing.T) {
	whole := raw(TypeNotify, `{"name":"a","notify_msg":"b"}`)
	for n := range whole {
		_, err := readFrame(bytes.NewReader(whole[:n]), nil)
		if code := wire.CodeOf(err); code != wire.CodeLaneLost {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	f, err := readFrame(bytes.NewReader(append(whole, "behind it"...)), nil)
	if err != nil || f.typ != TypeNotify || !bytes.Equal(f.append(nil), whole) {
		t.Errorf("%+v, %v", f, err)
	}
}

// Silent clients, and such as stop in the middle, delay nobody; each is put out in its
// time, with the step that it did not finish.
func TestASilentClientDelaysNobody(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		for _, b := range [][]byte{nil, {1, 0, 0}, raw(TypeNotify, `{"name":"x"}`)[:12]} {
			for range 20 {
				c, err := d.Dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		began := time.Now()
		if err := (&Client{Dial: d.Dial}).Probe(t.Context(), "a:1"); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(RequestTime)
		synctest.Wait()
		codes := d.codes()
		if len(codes) != 60 || codes[0] != wire.CodeDeadline || codes[59] != wire.CodeDeadline {
			t.Errorf("%d ended: %v", len(codes), codes)
		}
		for _, step := range []string{"the length of a frame, of which 0 of 8", "of which 3 of 8", "a frame of 13 bytes, of which 4 came"} {
			if !d.reported(step) {
				t.Errorf("nobody was told of %q", step)
			}
		}
	})
}

func TestAClientThatDoesNotReadItsAnswerIsLetGo(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		mute, err := d.Dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mute.Close() }()
		if _, err := mute.Write(raw(TypeProbe, "{}")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(AnswerTime)
		synctest.Wait()
		if !d.reported("the answer to a probe request") || d.codes()[0] != wire.CodeDeadline {
			t.Errorf("%v", d.refused)
		}
	})
}

// Whoever takes all places loses those that he does not use; others have their own.
func TestAGreedySourceTakesOnlyItsShare(t *testing.T) {
	bubble(t, Config{Doors: limited(quota.HandshakeConns, 4, 8)}, func(t *testing.T, d *daemon) {
		var silent []net.Conn
		for range 10 {
			c, err := d.From(t.Context(), "192.0.2.9:1")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			silent = append(silent, c)
		}
		synctest.Wait()
		if n := d.server.door.Len(); n != 4 {
			t.Errorf("%d places are taken, want the share of 4", n)
		}
		if codes := d.codes(); len(codes) != 6 || codes[0] != wire.CodeTooMany || !d.reported("source 192.0.2.9 may have 4 connections to handshakes") {
			t.Errorf("%v", d.refused)
		}
		if _, err := silent[0].Read(make([]byte, 1)); err == nil {
			t.Error("the oldest silent connection still has its place")
		}
		if err := (&Client{Dial: d.Dial}).Probe(t.Context(), "a:1"); err != nil {
			t.Errorf("another source: %v", err)
		}
	})
}

// What requests hold is shared out as places are: sources that announce much, send half
// of it and wait leave room for one more.
func TestRequestsThatNeverEndLeaveMemoryForOthers(t *testing.T) {
	bubble(t, Config{Doors: limited(quota.HandshakeBytes, 256<<10, 256<<10)}, func(t *testing.T, d *daemon) {
		half := frame{typ: TypeMetadata, text: make([]byte, MaxFrame-1)}.append(nil)[:64<<10]
		for _, source := range []string{"192.0.2.8:1", "192.0.2.9:1"} {
			for range 8 {
				c, err := d.From(t.Context(), source)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				go func() { _, _ = c.Write(half) }() // ends when the connection does
			}
		}
		synctest.Wait()
		if codes := d.codes(); len(codes) == 0 || len(codes) > 14 || codes[0] != wire.CodeBusy || !d.reported("of unfinished handshakes, as many as are free,") {
			t.Errorf("refused: %v", d.refused)
		}
		var own segment.Descriptor
		own.Name = strings.Repeat("x", 50<<10)
		if _, _, err := (&Client{Dial: d.Dial, Own: func() segment.Descriptor { return own }}).Get(t.Context(), "a:1"); err != nil {
			t.Errorf("another source: %v", err)
		}
		time.Sleep(RequestTime)
		synctest.Wait()
		if n := d.server.held.Used(); n != 0 {
			t.Errorf("%d bytes are held by nobody", n)
		}
	})
}

func TestAStrangerIsTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		var refused error
		s := NewServer(Config{
			Admit:   func(a netip.Addr) (string, error) { return "", fmt.Errorf("%v is on no list: %w", a, wire.CodeAuth) },
			Refused: func(_ string, err error) { refused = err },
		})
		s.Open(l)
		c, err := l.From(t.Context(), "192.0.2.7:1")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes", n)
		}
		s.Close()
		if !errors.Is(refused, wire.CodeAuth) {
			t.Error(refused)
		}
		if s.Open(l) {
			t.Error("a closed server serves a listener")
		}
	})
}

// liar is a server that answers what a test says; nil: nothing, for ever.
func liar(t *testing.T, answer []byte) *Client {
	l := pipenet.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := readFrame(c, nil); err != nil || answer == nil {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		_, _ = c.Write(answer)
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return &Client{Dial: l.Dial}
}

func TestAClientSaysWhatIsWrongWithAnAnswer(t *testing.T) {
	get := func(c *Client, ctx context.Context) error { _, _, err := c.Get(ctx, "a:1"); return err }
	probe := func(c *Client, ctx context.Context) error { return c.Probe(ctx, "a:1") }
	notify := func(c *Client, ctx context.Context) error { return c.Notify(ctx, "a:1", Notify{"n", "m"}) }
	for name, c := range map[string]struct {
		call   func(*Client, context.Context) error
		answer []byte
		code   wire.Code
		text   string
	}{
		"closed without an answer": {probe, []byte{}, wire.CodeLaneLost, "probe request to a:1"},
		"cut":                      {get, raw(TypeMetadata, "{}")[:9], wire.CodeLaneLost, "of which 1 came"},
		"of another type":          {probe, raw(TypeNotify, "{}"), wire.CodeState, "answered as notify"},
		"too long":                 {get, binary.LittleEndian.AppendUint64(nil, 1<<20+1), wire.CodeTooLarge, "limit 1048576"},
		"not JSON":                 {probe, raw(TypeProbe, "nonsense"), wire.CodeInvalid, "a:1"},
		"another status":           {probe, raw(TypeProbe, `{"status":"draining"}`), wire.CodeUnreachable, "draining"},
		"a refused notify":         {notify, raw(TypeNotify, `{"name":"","notify_msg":""}`), wire.CodeDenied, "refused a notify"},
		"a descriptor wrong":       {get, raw(TypeMetadata, `{"protocol":5}`), wire.CodeInvalid, "protocol is 5"},
		"none":                     {get, nil, wire.CodeDeadline, "of which 0 of 8 bytes came"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := c.call(liar(t, c.answer), t.Context())
			if wire.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v, want %v %q", name, err, c.code, c.text)
			}
			if took := time.Since(began); c.answer == nil && took != CallTime || c.answer != nil && took != 0 {
				t.Errorf("%s: %v", name, took)
			}
		})
	}
}

func TestAClientEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := liar(t, nil).Get(ctx, "a:1")
		if !errors.Is(err, wire.CodeDeadline) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &Client{}
	if err := c.Probe(ctx, "127.0.0.1:1"); !errors.Is(err, wire.CodeCancelled) {
		t.Errorf("dialling: %v", err)
	}
	if err := c.Probe(t.Context(), "127.0.0.1:1"); !errors.Is(err, wire.CodeUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
	for _, name := range []string{"", "a:x"} {
		if _, _, err := c.Get(t.Context(), name); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := c.Notify(t.Context(), "a:1", Notify{"n", strings.Repeat("x", MaxFrame)}); !errors.Is(err, wire.CodeTooLarge) {
		t.Error(err)
	}
}

// One request after the other, and both ways: client and server of this package.
func TestClientAndServerUnderstandEachOther(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, d *daemon) {
		own := segment.Descriptor{Name: "me", Protocols: []string{segment.TCP}}
		c := &Client{Dial: d.Dial, Own: func() segment.Descriptor { return own }}
		desc, host, err := c.Get(t.Context(), "[::1]:7")
		if err != nil || host != "::1" || desc.Name != "for 127.0.0.1" {
			t.Errorf("%+v, %s, %v", desc, host, err)
		}
		if err := c.Notify(t.Context(), "a:1", Notify{"n", "<m>"}); err != nil || d.notifies[0] != (Notify{"n", "<m>"}) {
			t.Errorf("%v, %v", err, d.notifies)
		}
		if err := c.Notify(t.Context(), "a:1", Notify{"n", "no"}); !errors.Is(err, wire.CodeDenied) {
			t.Error(err)
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	for _, b := range [][]byte{raw(TypeMetadata, "{}"), raw(9, "{}"), frame{old: true, text: []byte("{}")}.append(nil), {0, 0, 0, 0, 0, 0, 0, 0}, raw(TypeProbe, "")} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b), nil)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeInternal || len(err.Error()) > 300 {
				t.Fatal(err)
			}
			return
		}
		if again := got.append(nil); !bytes.HasPrefix(b, again) {
			t.Fatalf("%q was read of %q", again, b)
		}
	})
}
