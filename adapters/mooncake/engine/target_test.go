package engine

import (
	"bytes"
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

	"meridian/blocks/quota"
	"meridian/internal/door"
	"meridian/internal/pipenet"
	"meridian/wire"
)

const base = 0x1000_0000_0000

// memory is what the tests serve. It checks that leave is called once for each access
// that was let in.
type memory struct {
	mu    sync.Mutex
	b     []byte
	in    int
	wrote []uint64
	left  func(wrote uint64) // called while the access is still in
}

func (m *memory) Enter(_ string, addr, n uint64, write bool) ([]byte, func(uint64), error) {
	if addr < base || addr-base > uint64(len(m.b)) || n > uint64(len(m.b))-(addr-base) {
		return nil, nil, wire.CodeInvalid
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in++
	left := m.left
	return m.b[addr-base:][:n:n], func(wrote uint64) {
		if left != nil {
			left(wrote)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.in--
		if write {
			m.wrote = append(m.wrote, wrote)
		}
	}, nil
}

func (m *memory) onLeave(f func(wrote uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = f
}

// far is a target behind a pipe, and what it reported.
type far struct {
	*pipenet.Listener
	*memory
	target *Target

	mu      sync.Mutex
	refused []error
	served  []Done
}

func newFar(cfg TargetConfig, n int) *far {
	f := &far{Listener: pipenet.New(), memory: &memory{b: make([]byte, n)}}
	for i := range f.b {
		f.b[i] = byte(i)
	}
	cfg.Memory = f.memory
	cfg.Admit = func(a netip.Addr) (string, error) { return a.String(), nil }
	cfg.Refused = func(_ string, err error) {
		f.mu.Lock()
		f.refused = append(f.refused, err)
		f.mu.Unlock()
	}
	cfg.Served = func(d Done) {
		f.mu.Lock()
		f.served = append(f.served, d)
		f.mu.Unlock()
	}
	f.target = NewTarget(cfg)
	f.target.Open(f.Listener)
	return f
}

// limited has limits of one source and of all.
func limited(r quota.Resource, source, all int) *door.Common {
	var book quota.Book
	book.SetLimit(r, quota.Source, uint64(source))
	book.SetLimit(r, quota.All, uint64(all))
	return door.NewCommon(&book)
}

func bubble(t *testing.T, cfg TargetConfig, run func(t *testing.T, f *far)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFar(cfg, 64<<10)
		run(t, f)
		f.target.Close()
		if f.in != 0 {
			t.Errorf("%d accesses were never left", f.in)
		}
	})
}

func (f *far) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := f.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// only is the one refusal that was reported.
func (f *far) only(t *testing.T, code wire.Code, text string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refused) != 1 || wire.CodeOf(f.refused[0]) != code || !strings.Contains(f.refused[0].Error(), text) {
		t.Errorf("refused %v, want %v %q", f.refused, code, text)
	}
	f.refused = nil
}

func head(op byte, addr, size uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, size)
	b = binary.LittleEndian.AppendUint64(b, addr)
	return append(b, op, 0xde, 0xad, 0, 0, 0, 0, 0xff) // Mooncake leaves the padding as it was in memory
}

const (
	statusFine = "\x00\x00\x00\x00VTCM"
	statusNo   = "\x01\x00\x00\x00VTCM"
)

func send(t *testing.T, c net.Conn, parts ...[]byte) {
	t.Helper()
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, c net.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// A write of 64 KiB that was captured from a real engine, and the two status frames.
func TestBytesAreThoseOfMooncake(t *testing.T) {
	captured := []byte("\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x81\x00\x00\x00\x00\x00\x00\x00")
	h, err := parseHeader((*[headerLen]byte)(captured))
	if err != nil || h != (header{addr: base, size: 64 << 10, write: true, acked: true}) {
		t.Errorf("%+v, %v", h, err)
	}
	var b [headerLen]byte
	if h.put(&b); !bytes.Equal(b[:], captured) {
		t.Errorf("wrote % x", b)
	}
	for status, want := range map[uint32]string{statusOK: statusFine, statusRejected: statusNo} {
		var b [statusLen]byte
		if putStatus(&b, status); string(b[:]) != want {
			t.Errorf("status %d: % x", status, b)
		}
		if got, err := parseStatus(&b); err != nil || got != status {
			t.Errorf("status %d: %d, %v", status, got, err)
		}
	}
}

// Requests of both versions, one behind the other on one connection; the last eight are
// sent before the first is answered.
func TestRequestsOfBothVersionsAreServed(t *testing.T) {
	bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
		c := f.dial(t)
		defer func() { _ = c.Close() }()
		send(t, c, head(0x00, base+16, 4))
		if got := receive(t, c, 4); !bytes.Equal(got, []byte{16, 17, 18, 19}) {
			t.Errorf("read: % x", got)
		}
		send(t, c, head(0x80, base+16, 4))
		if got := receive(t, c, 12); string(got) != statusFine+"\x10\x11\x12\x13" {
			t.Errorf("acknowledged read: % x", got)
		}
		send(t, c, head(0x01, base, 3), []byte("abc"))
		send(t, c, head(0x81, base+3, 2), []byte("de"))
		if got := receive(t, c, statusLen); string(got) != statusFine || string(f.b[:5]) != "abcde" {
			t.Errorf("writes: % x, %q", got, f.b[:5])
		}
		go func() {
			for i := range uint64(8) {
				_, _ = c.Write(head(0x80, base+i, 1))
			}
		}()
		for i := range 8 {
			if got := receive(t, c, statusLen+1); got[statusLen] != f.b[i] {
				t.Errorf("request %d: % x", i, got)
			}
		}
		synctest.Wait()
		if n := len(f.served); n != 12 || f.served[3] != (Done{Peer: "127.0.0.1", Write: true, Bytes: 2}) || len(f.refused) != 0 {
			t.Errorf("%d served: %+v, refused %v", n, f.served, f.refused)
		}
	})
}

// Each is refused with a code, ends its own connection, and changes nothing.
func TestAWrongRequestEndsItsConnectionOnly(t *testing.T) {
	for name, c := range map[string]struct {
		op         byte
		addr, size uint64
		code       wire.Code
		text       string
	}{
		"size 0":            {0x80, base, 0, wire.CodeInvalid, "read of 0 bytes"},
		"a write of size 0": {0x81, base, 0, wire.CodeInvalid, "write of 0 bytes"},
		"beyond the end":    {0x80, base + 64<<10 - 3, 4, wire.CodeInvalid, "read of 4 bytes at 0x10000000fffd"},
		"a write beyond it": {0x81, base + 64<<10 - 3, 4, wire.CodeInvalid, "refused"},
		"before the begin":  {0x81, base - 1, 2, wire.CodeInvalid, "refused"},
		"address 0":         {0x80, 0, 1, wire.CodeInvalid, "at 0x0"},
		"overflow":          {0x81, 1<<64 - 1, 2, wire.CodeInvalid, "want a size from 1 to 1"},
		"all there is":      {0x80, 1, 1<<64 - 1, wire.CodeInvalid, ""},
		"more than that":    {0x80, base, 1<<64 - 1, wire.CodeInvalid, "want a size"},
		"an unknown opcode": {0x82, base, 4, wire.CodeUnsupported, "opcode 0x82"},
		"opcode 7f":         {0xff, base, 4, wire.CodeUnsupported, "opcode 0xff"},
	} {
		bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
			before := bytes.Clone(f.b)
			neighbour := f.dial(t)
			defer func() { _ = neighbour.Close() }()
			for _, op := range []byte{c.op, c.op &^ acked} { // answered, then only closed
				conn := f.dial(t)
				go func() { _, _ = conn.Write(append(head(op, c.addr, c.size), "abcd"...)) }()
				got, _ := io.ReadAll(conn)
				_ = conn.Close()
				if want := map[bool]string{true: statusNo}[op&acked != 0]; string(got) != want {
					t.Errorf("%s, opcode %#02x: answered %q", name, op, got)
				}
				f.only(t, c.code, strings.Replace(c.text, fmt.Sprintf("%#02x", c.op), fmt.Sprintf("%#02x", op), 1))
			}
			send(t, neighbour, head(0x80, base, 1))
			if got := receive(t, neighbour, 9); string(got[:8]) != statusFine || !bytes.Equal(f.b, before) {
				t.Errorf("%s: the neighbour got % x", name, got)
			}
		})
	}
}

// A peer that stops in the middle, for ever or by going away, holds nothing for long.
func TestAPeerThatStopsInTheMiddleIsLetGo(t *testing.T) {
	body := make([]byte, 1000)
	for name, c := range map[string]struct {
		send  []byte
		leave bool // closes, instead of silence
		code  wire.Code
		text  string
		after time.Duration
	}{
		"half a header":                 {head(0x81, base, 4)[:11], false, wire.CodeNoProgress, "the header of a request, 11 of 24 bytes", HeaderTime},
		"half a header, then it leaves": {head(0x81, base, 4)[:11], true, wire.CodeLaneLost, "11 of 24 bytes", 0},
		"half a body":                   {append(head(0x81, base, 2000), body...), false, wire.CodeNoProgress, "receiving a body, 1000 of 2000 bytes", ProgressTime},
		"half a body, then it leaves":   {append(head(0x01, base, 2000), body...), true, wire.CodeLaneLost, "1000 of 2000 bytes", 0},
		"a body that nobody takes":      {head(0x00, base, 2000), false, wire.CodeNoProgress, "sending a body, 0 of 2000", ProgressTime},
	} {
		bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
			conn := f.dial(t)
			defer func() { _ = conn.Close() }()
			began := time.Now()
			send(t, conn, c.send)
			if c.leave {
				_ = conn.Close()
			}
			time.Sleep(c.after)
			f.only(t, c.code, c.text)
			if f.target.Conns() != 0 || f.in != 0 {
				t.Errorf("%s: %d connections, %d accesses after %v", name, f.target.Conns(), f.in, time.Since(began))
			}
			if strings.HasPrefix(name, "half a body") && (len(f.wrote) != 1 || f.wrote[0] != 1000) {
				t.Errorf("%s: the memory's owner was told of %v bytes", name, f.wrote)
			}
		})
	}
}

// A byte now and then is not progress: a part has its time, not each byte.
func TestATrickleDoesNotHoldMemory(t *testing.T) {
	bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
		conn := f.dial(t)
		defer func() { _ = conn.Close() }()
		send(t, conn, head(0x81, base, 64<<10))
		sent := 0
		for ; sent < 100; sent++ {
			if _, err := conn.Write([]byte{1}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if sent > int(ProgressTime/time.Second)+1 { // the last may come in the same instant
			t.Errorf("%d bytes in as many seconds were taken", sent)
		}
		f.only(t, wire.CodeNoProgress, "receiving a body")
	})
}

func TestIdleConnectionsStayOpen(t *testing.T) {
	bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
		used, silent := f.dial(t), f.dial(t)
		for range 3 {
			for _, c := range []net.Conn{used, silent} {
				send(t, c, head(0x80, base, 1))
				receive(t, c, 9)
			}
			time.Sleep(48 * time.Hour)
		}
		_, _ = used.Close(), silent.Close()
		synctest.Wait()
		if len(f.refused) != 0 || f.target.Conns() != 0 {
			t.Errorf("%v, %d are left", f.refused, f.target.Conns())
		}
	})
}

// The acknowledgement comes when the bytes are in place and the owner has been told.
func TestAWriteIsAcknowledgedAfterItsOwnerKnowsOfIt(t *testing.T) {
	bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
		told := false
		f.onLeave(func(wrote uint64) {
			told = wrote == 3 && string(f.b[:3]) == "abc"
			time.Sleep(time.Hour) // a status that is sent before would be here
		})
		conn := f.dial(t)
		defer func() { _ = conn.Close() }()
		began := time.Now()
		send(t, conn, head(0x81, base, 3), []byte("abc"))
		if got := receive(t, conn, statusLen); string(got) != statusFine || !told || time.Since(began) < time.Hour {
			t.Errorf("%q after %v, told %v", got, time.Since(began), told)
		}
	})
}

func TestAGreedySourceHasOnlyItsShareOfConnections(t *testing.T) {
	bubble(t, TargetConfig{Doors: limited(quota.DataConns, 4, 8)}, func(t *testing.T, f *far) {
		var lanes []net.Conn
		for range 4 {
			c, err := f.From(t.Context(), "192.0.2.9:1")
			if err != nil {
				t.Fatal(err)
			}
			send(t, c, head(0x80, base, 1))
			receive(t, c, 9)
			lanes = append(lanes, c)
		}
		c, err := f.From(t.Context(), "192.0.2.9:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(head(0x80, base, 1)); err == nil {
			t.Error("a fifth connection of one source was served")
		}
		f.only(t, wire.CodeTooMany, "source 192.0.2.9 may have 4 connections to data planes and has 4")
		for _, c := range append(lanes, f.dial(t)) { // its others, and those of somebody else
			send(t, c, head(0x80, base, 1))
			receive(t, c, 9)
			_ = c.Close()
		}
	})
}

func TestADrainingTargetRefusesWhatIsNewAndEndsWhatRuns(t *testing.T) {
	bubble(t, TargetConfig{}, func(t *testing.T, f *far) {
		running, idle := f.dial(t), f.dial(t)
		send(t, running, head(0x81, base, 4), []byte("ab"))
		synctest.Wait()
		if f.target.Active() != 1 {
			t.Errorf("%d requests run", f.target.Active())
		}
		f.target.Drain()
		send(t, running, []byte("cd"))
		if got := receive(t, running, statusLen); string(got) != statusFine {
			t.Errorf("what ran: % x", got)
		}
		go func() { _, _ = idle.Write(head(0x80, base, 1)) }()
		if got, _ := io.ReadAll(idle); string(got) != statusNo {
			t.Errorf("a new request: %q", got)
		}
		f.only(t, wire.CodeDraining, "read of 1 bytes")
		_, _ = running.Close(), idle.Close()
		if _, err := f.Dial(t.Context(), ""); !errors.Is(err, net.ErrClosed) {
			t.Error("a new connection:", err)
		}
	})
}

// A close with unread bytes resets the connection, and takes the status with it. The
// writer here reads only when it has sent everything.
func TestARefusalSurvivesWhatThePeerStillSends(t *testing.T) {
	f := newFar(TargetConfig{}, 4096)
	defer f.target.Close()
	at, err := f.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 4<<20)
	for range 20 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, head(0x81, base, 4<<20), body)
		if got := receive(t, c, statusLen); string(got) != statusNo {
			t.Fatalf("%q", got)
		}
		_ = c.Close()
	}
}

func TestAThousandConnectionsAtOnceAreServed(t *testing.T) {
	const n = 1000
	f := newFar(TargetConfig{}, 4096)
	defer f.target.Close()
	at, err := f.target.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, n)
	all := make(chan struct{}) // all are open before one closes
	open := sync.WaitGroup{}
	open.Add(n)
	for i := range n {
		wg.Go(func() {
			c, err := net.Dial("tcp", at.String())
			if err == nil {
				defer func() { _ = c.Close() }()
				_, err = c.Write(head(0x80, base+uint64(i), 1))
			}
			b := make([]byte, statusLen+1)
			if err == nil {
				if _, err = io.ReadFull(c, b); err == nil && b[statusLen] != byte(i) {
					err = fmt.Errorf("read %d", b[statusLen])
				}
			}
			errs[i] = err
			open.Done()
			<-all
		})
	}
	open.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if got := f.target.Conns(); got != n {
		t.Errorf("%d connections are open", got)
	}
	close(all)
	wg.Wait()
}

func FuzzParseHeader(f *testing.F) {
	f.Add(head(0x81, base, 4))
	f.Add(head(0x7f, 1<<64-1, 1<<64-1))
	f.Add(head(0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, err := parseHeader((*[headerLen]byte)(b))
		if err != nil {
			if !errors.Is(err, wire.CodeUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if h.check() == nil && (h.size == 0 || h.addr+(h.size-1) < h.addr) {
			t.Fatalf("%+v passes", h)
		}
		var again [headerLen]byte
		if h.put(&again); !bytes.Equal(again[:17], b[:17]) {
			t.Fatalf("% x, then % x", b[:17], again[:17])
		}
	})
}
