package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/internal/pipenet"
	"meridian/wire"
)

// Each is refused with a code, ends its own connection, and the target hears nothing.
func TestAWrongRequestIsNotCarried(t *testing.T) {
	for name, c := range map[string]struct {
		op         byte
		addr, size uint64
		code       wire.Code
		text       string
	}{
		"size 0":            {0x80, base, 0, wire.CodeInvalid, "read of 0 bytes"},
		"all there is":      {0x81, base, 1<<64 - 1, wire.CodeInvalid, "want a size"},
		"overflow":          {0x81, 1<<64 - 1, 2, wire.CodeInvalid, "want a size from 1 to 1"},
		"beyond the end":    {0x81, base + 8<<20 - 3, 4, wire.CodeInvalid, "is in no buffer"},
		"before the begin":  {0x80, base - 1, 2, wire.CodeInvalid, "is in no buffer"},
		"in two buffers":    {0x81, base + 4<<20 - 1, 2, wire.CodeInvalid, "is in no buffer"},
		"huge":              {0x81, base, 1 << 62, wire.CodeInvalid, "is in no buffer"},
		"an unknown opcode": {0x82, base, 4, wire.CodeUnsupported, "opcode 0x82"},
		"a write, unacked":  {0x01, base - 1, 2, wire.CodeInvalid, "is in no buffer"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, b *between) {
				s, other := b.source(t, "192.0.2.1"), b.source(t, "192.0.2.1")
				go func() { _, _ = s.Write(append(head(c.op, c.addr, c.size), "body"...)) }()
				want := rejected
				if c.op&0x80 == 0 {
					want = ""
				}
				ends(t, s, want)
				b.only(t, c.code, c.text)
				if len(b.calls) != 0 {
					t.Error("the target heard of it")
				}
				go func() {
					far := <-b.calls
					_, _ = io.ReadFull(far, make([]byte, engine.RequestLen))
					_, _ = far.Write([]byte(fine + "data"))
				}()
				send(t, other, head(0x80, base, 4))
				if got := receive(t, other, 12); string(got) != fine+"data" {
					t.Errorf("another connection gets % x", got)
				}
			})
		})
	}
}

// A target of version 1 would take the request for a read, and the body for requests.
func TestVersionTwoIsNotCarriedToATargetOfVersionOne(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *between) {
		s := b.source(t, "192.0.2.1")
		send(t, s, head(0x81, base, 4))
		ends(t, s, rejected)
		b.only(t, wire.CodeUnsupported, "the target speaks version 1")
	})
}

// A write to a target of version 1 is confirmed by a read of its last byte, on the same
// connection and before the source's next request.
func TestAWriteOfVersionOneIsConfirmed(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *between) {
		for last, want := range map[byte]wire.Code{'e': wire.CodeOK, 'x': wire.CodeChecksum} {
			s := b.source(t, "192.0.2.1")
			send(t, s, head(0x01, base, 5), []byte("abcde"))
			far := b.target(t)
			if got := receive(t, far, 29); !bytes.Equal(got[:17], head(0x01, base, 5)[:17]) || string(got[24:]) != "abcde" {
				t.Errorf("% x", got)
			}
			if got := receive(t, far, 24); !bytes.Equal(got[:17], head(0x00, base+4, 1)[:17]) {
				t.Errorf("% x", got)
			}
			send(t, far, []byte{last})
			if want == wire.CodeOK {
				go func() { _, _ = s.Write(head(0x00, base, 1)) }()
				far = b.target(t)
				receive(t, far, 24)
				send(t, far, []byte("a"))
				if got := receive(t, s, 1); got[0] != 'a' {
					t.Errorf("% x", got)
				}
				_ = s.Close()
				continue
			}
			ends(t, s, "")
			b.only(t, want, "the last byte of a write is 0x78")
		}
	})
}

// A body goes on in pieces while it still comes, and is acknowledged after the target
// has acknowledged it.
func TestABodyIsCarriedInPiecesAndAcknowledgedLast(t *testing.T) {
	const n = 3*pieceLen + 5
	bubble(t, 2, func(t *testing.T, b *between) {
		s, body := b.source(t, "192.0.2.1"), bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		send(t, s, head(0x81, base, n), body[:1000])
		far := b.target(t)
		if got := receive(t, far, 24+1000); !bytes.Equal(got[:17], head(0x81, base, n)[:17]) || !bytes.Equal(got[24:], body[:1000]) {
			t.Error("the first piece is not the begin of the request")
		}
		go func() { _, _ = s.Write(body[1000:]) }()
		if got := receive(t, far, n-1000); !bytes.Equal(got, body[1000:]) {
			t.Error("the rest is other bytes")
		}
		synctest.Wait()
		_ = s.SetReadDeadline(time.Now().Add(time.Second))
		if m, err := s.Read(make([]byte, 1)); m != 0 || err == nil {
			t.Error("acknowledged before the target has")
		}
		_ = s.SetReadDeadline(time.Time{})
		send(t, far, []byte(fine))
		if got := receive(t, s, 8); string(got) != fine {
			t.Errorf("% x", got)
		}
		// The lane is used again, for a read.
		send(t, s, head(0x80, base, n))
		receive(t, far, 24)
		go func() { _, _ = far.Write(append([]byte(fine), body...)) }()
		if got := receive(t, s, 8+n); string(got[:8]) != fine || !bytes.Equal(got[8:], body) {
			t.Error("what was read is other bytes")
		}
		synctest.Wait()
		if got := b.r.Relayed()[0]; got.Requests != 2 || got.Written != n || got.Read != n || got.Connections != 1 || len(b.refused) != 0 {
			t.Errorf("%+v, refused %v", got, b.refused)
		}
	})
}

func TestHalfAHeaderAndThenSilenceEndsItsConnectionOnly(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		s, began := b.source(t, "192.0.2.1"), time.Now()
		send(t, s, head(0x81, base, 4)[:11])
		ends(t, s, "")
		if took := time.Since(began); took != engine.HeaderTime {
			t.Error(took)
		}
		b.only(t, wire.CodeNoProgress, "11 of 24 bytes")
	})
}

// What a source does in the middle of a body ends its connection, and the target's.
func TestASourceThatStopsInABodyIsLetGo(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		for code, stop := range map[wire.Code]func(c net.Conn){
			wire.CodeNoProgress: func(net.Conn) {},
			wire.CodeLaneLost:   func(c net.Conn) { _ = c.Close() },
		} {
			s, began := b.source(t, "192.0.2.1"), time.Now()
			send(t, s, head(0x81, base, 9), []byte("four"))
			far := b.target(t)
			receive(t, far, 28)
			stop(s)
			ends(t, far, "")
			b.only(t, code, "the source, sending a body: 4 of 9 bytes")
			if took := time.Since(began); took > engine.ProgressTime {
				t.Error(took)
			}
		}
	})
}

func TestASourceThatTakesNoBytesIsLetGo(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		s := b.source(t, "192.0.2.1")
		send(t, s, head(0x80, base, 9))
		far := b.target(t)
		receive(t, far, 24)
		send(t, far, []byte(fine), []byte("four"))
		ends(t, far, "")
		b.only(t, wire.CodeNoProgress, "the source, taking a body")
	})
}

// A body that always makes some progress ends too.
func TestABodyThatIsAlwaysSlowEnds(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		s, began := b.source(t, "192.0.2.1"), time.Now()
		send(t, s, head(0x81, base, 4<<20))
		go func() { _, _ = io.Copy(io.Discard, b.target(t)) }()
		for err := error(nil); err == nil; {
			time.Sleep(9 * time.Second)
			_, err = s.Write(make([]byte, 64<<10))
		}
		if took := time.Since(began); took > engine.BodyTime+engine.ProgressTime {
			t.Error(took)
		}
		b.only(t, wire.CodeNoProgress, "the source, sending a body")
	})
}

// Whatever a target does instead of an acknowledgement, the source gets none.
func TestATargetThatDoesNotAcknowledgeIsNotAcknowledgedFor(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(far net.Conn)
		code wire.Code
		text string
	}{
		"it hangs":               {func(net.Conn) {}, wire.CodeNoProgress, "waiting for a status"},
		"it closes":              {func(far net.Conn) { _ = far.Close() }, wire.CodeLaneLost, "waiting for a status"},
		"it refuses":             {func(far net.Conn) { _, _ = far.Write([]byte(rejected)) }, wire.CodeStale, "the target refused the write of 4 bytes"},
		"a status of its own":    {func(far net.Conn) { _, _ = far.Write([]byte("\x07\x00\x00\x00VTCM")) }, wire.CodeState, "status 7"},
		"something else":         {func(far net.Conn) { _, _ = far.Write([]byte("HTTP/1.1")) }, wire.CodeState, "status frame"},
		"half a status":          {func(far net.Conn) { _, _ = far.Write([]byte(fine[:5])); _ = far.Close() }, wire.CodeLaneLost, "5 of 8"},
		"half of it and silence": {func(far net.Conn) { _, _ = far.Write([]byte(fine[:5])) }, wire.CodeNoProgress, "5 of 8"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, b *between) {
				s, began := b.source(t, "192.0.2.1"), time.Now()
				send(t, s, head(0x81, base, 4), []byte("four"))
				far := b.target(t)
				receive(t, far, 28)
				go c.do(far)
				ends(t, s, rejected)
				b.only(t, c.code, c.text)
				if took := time.Since(began); took > engine.StatusTime {
					t.Error(took)
				}
				if b.l.lanes.len() != 0 {
					t.Error("the lane is kept")
				}
			})
		})
	}
}

// A source that has read a status that accepts takes the next bytes for the body: its
// connection ends, and nothing is said.
func TestATargetThatEndsInTheMiddleOfARead(t *testing.T) {
	for name, c := range map[string]struct {
		sent string // by the target, before it stops
		code wire.Code
		want string
	}{
		"before the status":   {"", wire.CodeLaneLost, rejected},
		"behind the status":   {fine, wire.CodeLaneLost, rejected},
		"in the body":         {fine + "ab", wire.CodeLaneLost, fine + "ab"},
		"silent in the body":  {fine + "abc", wire.CodeNoProgress, fine + "abc"},
		"silent at the begin": {fine, wire.CodeNoProgress, rejected},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, b *between) {
				s := b.source(t, "192.0.2.1")
				send(t, s, head(0x80, base, 9))
				far := b.target(t)
				receive(t, far, 24)
				go func() {
					_, _ = far.Write([]byte(c.sent))
					if c.code == wire.CodeLaneLost {
						_ = far.Close()
					}
				}()
				ends(t, s, c.want)
				b.only(t, c.code, "")
			})
		})
	}
}

func TestATargetThatTakesNoBytes(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		s := b.source(t, "192.0.2.1")
		send(t, s, head(0x81, base, 4), []byte("four"))
		b.target(t)
		ends(t, s, rejected)
		b.only(t, wire.CodeNoProgress, "the target, taking a body")
	})
}

// While the target cannot be reached or shows other memory, nothing goes to a new lane.
func TestANewLaneIsUsedAfterALookAtTheTarget(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		b.plane.set(wire.CodeUnreachable)
		s := b.source(t, "192.0.2.1")
		send(t, s, head(0x81, base, 4))
		ends(t, s, rejected)
		ends(t, b.target(t), "")
		b.only(t, wire.CodeUnreachable, "its descriptor")
	})
}

// A source has its share of places. Its next request waits, and is refused in the end;
// the requests of others are carried meanwhile.
func TestASourceThatCarriesAllItMayLeavesPlacesToOthers(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		began := time.Now()
		for range 2 {
			slow := b.source(t, "192.0.2.1")
			send(t, slow, head(0x81, base, 2*partLen))
			far := b.target(t)
			go func() { _, _ = io.Copy(io.Discard, far) }()
			go func() {
				time.Sleep(waitTime / 2)
				_, _ = slow.Write(make([]byte, partLen)) // and it has its time again
			}()
		}
		third := b.source(t, "192.0.2.1")
		send(t, third, head(0x81, base, 4))
		other := b.source(t, "192.0.2.2")
		send(t, other, head(0x81, base, 4), []byte("four"))
		far := b.target(t)
		receive(t, far, 28)
		send(t, far, []byte(fine))
		if got := receive(t, other, 8); string(got) != fine {
			t.Errorf("% x", got)
		}
		ends(t, third, rejected)
		if took := time.Since(began); took != waitTime {
			t.Error(took)
		}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		busy := 0
		for _, err := range b.refused {
			if errors.Is(err, wire.CodeBusy) && strings.Contains(err.Error(), "source 192.0.2.1 may have 512 KiB of what relays carry") {
				busy++
			}
		}
		if busy != 1 {
			t.Errorf("refused %v", b.refused)
		}
	})
}

// The oldest connection that said nothing makes room; one that has had a request carried
// keeps its place.
func TestASourceThatTakesAllConnectionsHasItsShare(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		proved := b.source(t, "192.0.2.1")
		go func() {
			far := <-b.calls
			for {
				if _, err := io.ReadFull(far, make([]byte, engine.RequestLen)); err != nil {
					return
				}
				_, _ = far.Write([]byte(fine + "x"))
			}
		}()
		ask := func(c net.Conn) {
			t.Helper()
			send(t, c, head(0x80, base, 1))
			if got := receive(t, c, 9); got[8] != 'x' {
				t.Errorf("% x", got)
			}
		}
		ask(proved)
		var silent []net.Conn
		for range 20 {
			silent = append(silent, b.source(t, "192.0.2.1"))
			synctest.Wait()
		}
		if n := b.l.door.Len(); n != 4 {
			t.Errorf("%d connections of one source, limit 4", n)
		}
		ends(t, silent[0], "")
		ask(b.source(t, "192.0.2.2"))
		ask(proved)
	})
}

// A target whose handshake takes connections and never answers holds up a source for a
// bounded time, and has no more than its share of places from one source.
func TestATargetWhoseHandshakeHangs(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		b.r.client.Dial = func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			return here, nil
		}
		door := pipenet.New()
		b.r.daemon.Open(door)
		began := time.Now()
		for source, asks := range map[string]int{"192.0.2.1:9": asks, "192.0.2.2:9": 1} {
			for range asks {
				c, err := door.From(t.Context(), source)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				send(t, c, []byte("\x03\x00\x00\x00\x00\x00\x00\x00\x03{}"))
				go func() { _, _ = io.ReadAll(c) }()
			}
		}
		synctest.Wait()
		if n := b.r.asks.Used(); n != asks/2+1 {
			t.Errorf("%d probes at the target, want the share of one source and one of the other", n)
		}
		for b.r.active.Load() > 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if took := time.Since(began); took > waitTime+askTime {
			t.Error(took)
		}
	})
}

// A metadata server or target that never says what the target has holds up nobody who
// has a lane.
func TestALookThatHangsEnds(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		b.plane.hang = true
		s, began := b.source(t, "192.0.2.1"), time.Now()
		send(t, s, head(0x80, base, 4))
		far := b.target(t)
		ends(t, far, "")
		ends(t, s, rejected)
		if took := time.Since(began); took != lookTime {
			t.Error(took)
		}
		b.only(t, wire.CodeUnreachable, "its descriptor")
	})
}

func TestADrainRefusesWhatIsNewAndWaitsForWhatIsCarried(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *between) {
		s := b.source(t, "192.0.2.1")
		send(t, s, head(0x81, base, 4))
		far := b.target(t)
		receive(t, far, 0)
		synctest.Wait()
		drained := make(chan struct{})
		go func() {
			b.r.Drain(t.Context())
			close(drained)
		}()
		synctest.Wait()
		late := b.source(t, "192.0.2.2")
		send(t, late, head(0x81, base, 4))
		ends(t, late, rejected)
		b.only(t, wire.CodeDraining, "")
		select {
		case <-drained:
			t.Error("it did not wait")
		default:
		}
		send(t, s, []byte("four"))
		receive(t, far, 28)
		send(t, far, []byte(fine))
		receive(t, s, 8)
		<-drained
	})
}
