package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/mooncake/structpack"
)

const scope = "test::Server::"

var (
	echo  = One[string, string](scope, "Echo")
	twice = Many[struct{ A, B string }, string](scope, "Twice")
	ready = Plain[string](scope, "Ready")
)

// heard is a request as the server reads it.
type heard struct {
	seq, function uint32
	body          []byte
}

// server runs do on each connection that it is dialled on, with the count of those
// before.
func server(t *testing.T, do func(c net.Conn, before int)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for before := 0; ; before++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				do(c, before)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

func hear(c net.Conn) (h heard, err error) {
	var b [requestHeader]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return h, err
	}
	if b[0] != 0x15 || b[1] != 0 || b[2] != 0 || b[3] != 0 || binary.LittleEndian.Uint32(b[16:]) != 0 {
		return h, fmt.Errorf("header %x", b)
	}
	h = heard{seq: binary.LittleEndian.Uint32(b[4:]), function: binary.LittleEndian.Uint32(b[8:]), body: make([]byte, binary.LittleEndian.Uint32(b[12:]))}
	_, err = io.ReadFull(c, h.body)
	return h, err
}

func head(code byte, seq, body, attachment uint32) []byte {
	b := []byte{0x15, 0, code, 0}
	b = binary.LittleEndian.AppendUint32(b, seq)
	b = binary.LittleEndian.AppendUint32(b, body)
	return binary.LittleEndian.AppendUint32(b, attachment)
}

func tell(c net.Conn, code byte, seq uint32, body []byte) {
	c.Write(append(head(code, seq, uint32(len(body)), 0), body...))
}

// echoes answers each call with its own body: a string is a string.
func echoes(c net.Conn, _ int) {
	for {
		h, err := hear(c)
		if err != nil {
			return
		}
		tell(c, 0, h.seq, h.body)
	}
}

func client(t *testing.T, c Config) *Client {
	t.Helper()
	cl := New(c)
	t.Cleanup(func() { cl.Close() })
	return cl
}

func text(s string) []byte {
	b, _ := structpack.Of[string]().Append(nil, &s)
	return b
}

func TestIdsAreComputedFromNames(t *testing.T) {
	if got := ID("mooncake::WrappedMasterService::Ping"); got != 0xd6c2dae5 {
		t.Errorf("%08x", got)
	}
}

func TestCallsAreAnsweredInAnyOrder(t *testing.T) {
	const n = 50
	at := server(t, func(c net.Conn, _ int) {
		var all []heard
		for range n {
			h, err := hear(c)
			if err != nil {
				return
			}
			all = append(all, h)
		}
		for i := range all {
			h := all[n-1-i]
			c.Write(append(head(0, h.seq, uint32(len(h.body)), 3), append(h.body, "att"...)...))
		}
	})
	c := client(t, Config{Where: At(at), Timeout: time.Minute, Pending: n})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			want := fmt.Sprint("call ", i)
			if got, err := echo.Call(t.Context(), c, want); got != want || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}

func TestACallWithoutArgumentsHasNoBody(t *testing.T) {
	at := server(t, func(c net.Conn, _ int) {
		h, _ := hear(c)
		tell(c, 0, h.seq, text(fmt.Sprint(len(h.body))))
	})
	if got, err := ready.Call(t.Context(), client(t, Config{Where: At(at)}), NoArguments{}); got != "0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRefusalsOfTheServerAreNamedAndTheConnectionStays(t *testing.T) {
	codes := []byte{11, 4, 10, 14, 255, 99}
	custom, _ := structpack.Tuple[struct {
		Code uint16
		Text string
	}]().Append(nil, &struct {
		Code uint16
		Text string
	}{42, "own"})
	var dials atomic.Int32
	at := server(t, func(c net.Conn, _ int) {
		dials.Add(1)
		for _, code := range codes {
			h, err := hear(c)
			if err != nil {
				return
			}
			body := text("its words")
			if code == 255 {
				body = custom
			} else if code == 99 {
				body = []byte("no struct_pack")
			}
			tell(c, code, h.seq, body)
		}
	})
	c := client(t, Config{Where: At(at)})
	for i, want := range []string{
		`Twice: the server answers 11, the function is not known ("its words")`, `Twice: the server answers 4, invalid arguments ("its words")`,
		`Twice: the server answers 10, the function threw ("its words")`, `Twice: the server answers 14, the message is too long ("its words")`,
		`Twice: the server answers 255, an error of the function's own ("42: own")`, `Twice: the server answers 99, not a known code`,
	} {
		_, err := twice.Call(t.Context(), c, struct{ A, B string }{"a", "b"})
		var e *Error
		if !errors.As(err, &e) || e.Code != Code(codes[i]) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// What a server may send that ends a connection: each time the reason is named, and
// the next call gets a new connection.
func TestAnswersThatAreNoneEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		send func(h heard) []byte
		want string
	}{
		"another protocol": {func(heard) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "begins with 0x48, want 0x15"},
		"another version":  {func(h heard) []byte { return append([]byte{0x15, 9}, head(0, h.seq, 0, 0)[2:]...) }, "version 9"},
		"too long":         {func(h heard) []byte { return head(0, h.seq, 1000, 1) }, "1001 bytes, the limit is 1000"},
		"the longest sum":  {func(h heard) []byte { return head(0, h.seq, 1<<32-1, 1<<32-1) }, "8589934590 bytes, the limit is 1000"},
		"no such call":     {func(h heard) []byte { return head(0, h.seq+7, 0, 0) }, "which was not made"},
		"half a header":    {func(h heard) []byte { return head(0, h.seq, 0, 0)[:9] }, "unexpected EOF"},
		"half a body":      {func(h heard) []byte { return append(head(0, h.seq, 10, 0), 1, 2) }, "unexpected EOF"},
		"nothing":          {func(heard) []byte { return nil }, "the server closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			at := server(t, func(conn net.Conn, before int) {
				if before == 0 {
					h, err := hear(conn)
					if err == nil {
						conn.Write(c.send(h))
					}
					return
				}
				echoes(conn, 0)
			})
			cl := client(t, Config{Where: At(at), MaxAnswer: 1000, Timeout: time.Minute})
			_, err := echo.Call(t.Context(), cl, "x")
			var e *ConnError
			if !errors.As(err, &e) || !e.Sent || e.Address != at || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if got, err := echo.Call(t.Context(), cl, "y"); got != "y" || err != nil {
				t.Errorf("the next call: %q, %v", got, err)
			}
		})
	}
}

func TestAnAnswerOfAnotherTypeIsNoFailureOfTheConnection(t *testing.T) {
	at := server(t, func(c net.Conn, _ int) {
		h, _ := hear(c)
		b, _ := structpack.Of[uint64]().Append(nil, structpack.Optional[uint64](1))
		tell(c, 0, h.seq, b)
		echoes(c, 0)
	})
	c := client(t, Config{Where: At(at)})
	_, err := echo.Call(t.Context(), c, "x")
	var e *AnswerError
	var code *structpack.CodeError
	if !errors.As(err, &e) || !errors.As(err, &code) {
		t.Error(err)
	}
	if got, err := echo.Call(t.Context(), c, "y"); got != "y" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// ending is a context whose deadline passes when the test says so.
type ending struct {
	context.Context
	passed chan struct{}
}

func (e ending) Done() <-chan struct{} { return e.passed }
func (e ending) Err() error {
	select {
	case <-e.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A server that never answers: the call ends with its deadline, and the connection
// with it, so that the next call does not wait for the same.
func TestASilentServerIsGivenUpAtTheDeadline(t *testing.T) {
	got := make(chan heard, 1)
	at := server(t, func(c net.Conn, before int) {
		if before > 0 {
			echoes(c, 0)
			return
		}
		h, _ := hear(c)
		got <- h
		io.Copy(io.Discard, c)
	})
	c := client(t, Config{Where: At(at), Timeout: time.Minute})
	ctx := ending{t.Context(), make(chan struct{})}
	go func() {
		<-got
		close(ctx.passed)
	}()
	_, err := echo.Call(ctx, c, "x")
	var e *ConnError
	if !errors.As(err, &e) || !e.Sent || !errors.Is(err, ErrSilent) {
		t.Errorf("%v, want %v", err, ErrSilent)
	}
	if got, err := echo.Call(t.Context(), c, "y"); got != "y" || err != nil {
		t.Errorf("the next call: %q, %v", got, err)
	}
}

// A call that is given up while others are answered is only itself: its answer may
// come late, and disturbs nobody.
func TestACallThatWasCancelledLeavesTheOthersAlone(t *testing.T) {
	release, got := make(chan struct{}), make(chan struct{})
	var dials atomic.Int32
	at := server(t, func(c net.Conn, _ int) {
		dials.Add(1)
		slow, err := hear(c)
		if err != nil {
			return
		}
		close(got)
		<-release
		tell(c, 0, slow.seq, slow.body)
		echoes(c, 0)
	})
	c := client(t, Config{Where: At(at), Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := echo.Call(ctx, c, "slow")
		ended <- err
	}()
	<-got
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	for i := range 3 {
		if got, err := echo.Call(t.Context(), c, fmt.Sprint(i)); got != fmt.Sprint(i) || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestMoreCallsThanArePendingWaitForTheirTurn(t *testing.T) {
	got := make(chan heard, 10)
	at := server(t, func(c net.Conn, _ int) {
		for {
			h, err := hear(c)
			if err != nil {
				return
			}
			got <- h
		}
	})
	c := client(t, Config{Where: At(at), Timeout: time.Minute, Pending: 1})
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all.Go(func() { echo.Call(ctx, c, "first") })
	<-got
	soon, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err := echo.Call(soon, c, "second")
	var e *ConnError
	if !errors.As(err, &e) || e.Sent || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 calls are under way") {
		t.Error(err)
	}
}

// Addresses are tried in their order, and a server that is gone is not asked again
// before a pause has passed, which grows.
func TestAddressesAreTriedInOrderAndFailuresArePaused(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	at := server(t, echoes)
	c := client(t, Config{Where: At(gone.Addr().String(), at)})
	if got, err := echo.Call(t.Context(), c, "x"); got != "x" || err != nil || c.Address() != at {
		t.Errorf("%q at %s, %v", got, c.Address(), err)
	}

	asked := 0
	c = client(t, Config{Where: func(context.Context) ([]string, error) {
		asked++
		return []string{gone.Addr().String()}, nil
	}})
	now := time.Unix(0, 0)
	c.now = func() time.Time { return now }
	for i, step := range []struct {
		after time.Duration
		asked int
	}{{0, 1}, {firstPause - 1, 1}, {1, 2}, {2*firstPause - 1, 2}, {1, 3}, {time.Hour, 4}} {
		now = now.Add(step.after)
		_, err := echo.Call(t.Context(), c, "x")
		var e *ConnError
		if !errors.As(err, &e) || e.Sent || asked != step.asked {
			t.Errorf("call %d: asked %d times, want %d; %v", i, asked, step.asked, err)
		}
	}
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	got := make(chan heard, 1)
	at := server(t, func(c net.Conn, _ int) {
		h, _ := hear(c)
		got <- h
		io.Copy(io.Discard, c)
	})
	c := New(Config{Where: At(at), Timeout: time.Minute})
	ended := make(chan error)
	go func() {
		_, err := echo.Call(t.Context(), c, "x")
		ended <- err
	}()
	<-got
	c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := echo.Call(t.Context(), c, "y"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestArgumentsBeyondTheLimitAreNotSent(t *testing.T) {
	c := client(t, Config{Where: At("127.0.0.1:1")})
	_, err := echo.Call(t.Context(), c, strings.Repeat("x", MaxRequest))
	if err == nil || !strings.Contains(err.Error(), "the limit is 16777216") {
		t.Error(err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(head(0, 1, 2, 3))
	f.Add([]byte("HTTP/1.1 400 Bad"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [answerHeader]byte
		copy(b[:], in)
		if a, err := parseAnswer(b); err == nil {
			again := head(a.code, a.seq, a.body, a.attachment)
			again[3] = b[3]
			if string(again) != string(b[:]) {
				t.Errorf("%x was read as %x", b, again)
			}
		}
	})
}
