package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/wire"
	"meridian/wire/link"
)

// step is 256 rows with one token each.
type step struct {
	req []uint32
	n   []uint8
	tok []int32
}

func newStep() step {
	s := step{make([]uint32, 256), make([]uint8, 256), make([]int32, 256)}
	for i := range s.n {
		s.req[i], s.n[i] = uint32(i+1), 1
	}
	return s
}

// untilDropped sends steps until one is dropped, and returns how many were sent.
func (s step) untilDropped(t *testing.T, e *client.Engine) (sent uint64) {
	t.Helper()
	for e.Dropped() == 0 {
		if err := e.Tokens(s.req, s.n, s.tok); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	return sent
}

// stalled is a daemon that reads nothing behind HELLO until it is told, and then gives
// the types of all frames that came.
func stalled(t *testing.T, o client.Options, features uint64) (e *client.Engine, read chan struct{}, got chan []link.Type) {
	t.Helper()
	read, got = make(chan struct{}), make(chan []link.Type, 1)
	path := serve(t, func(d *daemon) {
		d.greetWith(features)
		<-read
		var all []link.Type
		defer func() { got <- all }()
		for {
			f, _, ok := d.next()
			if !ok {
				return
			}
			if all = append(all, f.Type); f.Type != link.TypeTokens && f.Type != link.TypeCancel {
				d.finish(f.Req)
			}
		}
	})
	e, err := client.DialEngine(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, read, got
}

func count(all []link.Type, t link.Type) (n uint64) {
	for _, v := range all {
		if v == t {
			n++
		}
	}
	return n
}

// Whole frames are dropped: the daemon's splitter finds no fault in what comes.
func TestTokensThatTheSocketDoesNotTakeAreDroppedWhole(t *testing.T) {
	e, read, got := stalled(t, client.Options{}, 0)
	s := newStep()
	sent := s.untilDropped(t, e)
	for range 1000 {
		if err := e.Tokens(s.req, s.n, s.tok); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	close(read)
	if err := e.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	e.Close()
	all := <-got
	if n := count(all, link.TypeTokens); n+e.Dropped() != sent || e.Dropped() < 1000 {
		t.Errorf("%d sent, %d came, %d were dropped", sent, n, e.Dropped())
	}
	if all[len(all)-1] != link.TypePing {
		t.Errorf("the last frame is %v, want PING", all[len(all)-1])
	}
}

// A caller whose request waits for the socket holds up neither a step nor a caller
// whose context ends.
func TestARequestThatWaitsForTheSocketHoldsUpNobody(t *testing.T) {
	e, read, got := stalled(t, client.Options{}, 0)
	s := newStep()
	sent := s.untilDropped(t, e)
	asked := make(chan error)
	go func() { asked <- e.Ping(ctx) }()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Ping(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	ended, err := e.FinishAsync(7, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := e.Tokens(s.req, s.n, s.tok); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	close(read)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	e.Close()
	all := <-got
	if n := count(all, link.TypeTokens); n+e.Dropped() != sent {
		t.Errorf("%d sent, %d came, %d were dropped", sent, n, e.Dropped())
	}
}

// What nobody waits for is bounded: by the calls that the daemon takes, and by the
// bytes that wait.
func TestRequestsThatNobodyWaitsForAreBounded(t *testing.T) {
	for name, b := range map[string]client.Begin{
		"many small ones": {Model: "m"},
		"some large ones": {Model: "m", Prompt: make([]int32, 200_000)},
	} {
		t.Run(name, func(t *testing.T) {
			e, read, got := stalled(t, client.Options{}, 0)
			var ends []<-chan error
			var refused error
			for refused == nil && len(ends) <= link.MaxReqs {
				_, ended, err := e.BeginAsync(b)
				if refused = err; err == nil {
					ends = append(ends, ended)
				}
			}
			var r *client.RequestError
			if !errors.As(refused, &r) || r.Code != wire.CodeBusy || r.Text == "" {
				t.Errorf("after %d requests: %v, want BUSY", len(ends), refused)
			}
			if most := (4<<20)/(4*200_000) + 2; len(b.Prompt) > 0 && len(ends) > most {
				t.Errorf("%d large requests wait, at most %d", len(ends), most)
			}
			close(read)
			for _, ended := range ends {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			e.Close()
			if n := count(<-got, link.TypeBegin); n != uint64(len(ends)) {
				t.Errorf("%d requests came, %d were sent", n, len(ends))
			}
		})
	}
}

// Whoever waits for nobody learns all the same that the connection is over.
func TestTheEndOfTheConnectionEndsWhatNobodyWaitsFor(t *testing.T) {
	e := dial(t, client.Options{}, func(d *daemon) { d.gather(1) })
	_, ended, err := e.BeginAsync(client.Begin{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("%v, want LANE_LOST", err)
	}
	if _, err := e.FinishAsync(1, false); !errors.Is(err, wire.CodeLaneLost) {
		t.Errorf("afterwards: %v, want LANE_LOST", err)
	}
}

// END's code comes to who looks.
func TestTheEndOfARequestThatNobodyWaitsForSaysWhy(t *testing.T) {
	e := dial(t, client.Options{}, func(d *daemon) {
		f, _, _ := d.next()
		d.write(message(link.TypeEnd, f.Req, link.End{Code: wire.CodeBusy, Text: "full"}))
		d.untilGone()
	})
	_, ended, err := e.BeginAsync(client.Begin{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	var r *client.RequestError
	if err := <-ended; !errors.As(err, &r) || r.Code != wire.CodeBusy || r.Text != "full" || r.Op != "begin" {
		t.Errorf("%v", err)
	}
}

// A daemon that never reads is given up by who waits for its answer, and closing does
// not wait for it for long: the test would not end.
func TestClosingDoesNotWaitForADaemonThatDoesNotRead(t *testing.T) {
	e, read, got := stalled(t, client.Options{}, 0)
	newStep().untilDropped(t, e)
	e.Close()
	close(read)
	all := <-got
	if i := slices.IndexFunc(all, func(t link.Type) bool { return t != link.TypeTokens }); i >= 0 {
		t.Errorf("%v came", all[i])
	}
}

// PROCESS travels by itself, behind what waits for the socket, with its descriptor.
func TestProcessTravelsBehindWhatWaits(t *testing.T) {
	read := make(chan struct{})
	type seen struct {
		fds    int
		tokens uint64
	}
	got := make(chan seen, 1)
	path := serve(t, func(d *daemon) {
		d.greetWith(link.FeatureGroup)
		<-read
		var s seen
		oob := make([]byte, 64)
		buf := make([]byte, 4096)
		split := link.Splitter{Begun: true}
		for {
			n, on, _, _, err := d.c.ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			if list, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
				for i := range list {
					fds, _ := unix.ParseUnixRights(&list[i])
					for _, fd := range fds {
						s.fds++
						_ = unix.Close(fd)
					}
				}
			}
			for b := buf[:n]; len(b) > 0; {
				took, ev, err := split.Next(b)
				if err != nil {
					d.t.Error(err)
					return
				}
				b = b[took:]
				switch {
				case ev.Kind != link.EventMessage:
				case ev.Frame.Type == link.TypeTokens:
					s.tokens++
				case ev.Frame.Type == link.TypeProcess:
					d.finish(ev.Frame.Req)
					got <- s
				}
			}
		}
	})
	e, err := client.DialEngine(ctx, path, client.Options{Group: &client.Group{Agent: [16]byte{1}, Inc: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	sent := newStep().untilDropped(t, e)
	asked := make(chan error)
	go func() { asked <- e.Process(ctx, 0) }()
	close(read)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if s := <-got; s.fds != 1 || s.tokens+e.Dropped() != sent {
		t.Errorf("%d descriptors, %d of %d TOKENS before it, %d dropped", s.fds, s.tokens, sent, e.Dropped())
	}
}
