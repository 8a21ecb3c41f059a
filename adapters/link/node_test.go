package link

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"meridian/adapters/link/internal/core"
	"meridian/internal/testlog"
	"meridian/wire"
	proto "meridian/wire/link"
)

// piped is a node with a session to a peer at the other ends of pipes, for lanes 0 and
// 1, for which the test speaks.
func piped(t *testing.T) (n *side, s *session, peer [2]*hello) {
	t.Helper()
	n = start(t, 1, 10, "", nil)
	s = bare(n, true)
	for i := range peer {
		here, there := net.Pipe()
		bareLane(t, s, uint8(i), here, (*lane).writer)
		peer[i] = &hello{conn: there, base: there, sp: proto.Splitter{Begun: true}}
	}
	return n, s, peer
}

// goAways are those that a peer hears on a lane, until the lane ends.
func goAways(t *testing.T, h *hello) chan proto.GoAway {
	told := make(chan proto.GoAway, 2)
	go func() {
		buf := make([]byte, 4096)
		for {
			k, err := h.conn.Read(buf)
			if err != nil {
				return
			}
			for b := buf[:k]; len(b) > 0; {
				used, ev, err := h.sp.Next(b)
				if err != nil {
					t.Error(err)
					return
				}
				b = b[used:]
				if ev.Kind == proto.EventMessage && ev.Frame.Type == proto.TypeGoAway {
					m, _ := proto.Parse[proto.GoAway](ev.Payload)
					told <- m
				}
			}
		}
	}()
	return told
}

// A session that has to go tells the peer why, and how long it may take.
func TestASessionThatHasToGoSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, peer := piped(t)
		told := goAways(t, peer[0])
		s.retire(2*time.Second, fmt.Errorf("its entry changed: %w", wire.CodeAuth))
		if m := <-told; m != (proto.GoAway{MS: 2000, Code: wire.CodeAuth, Text: "its entry changed"}) {
			t.Errorf("the peer is told %+v", m)
		}
		n.stop(t)
	})
}

// A drain tells the peer how long it may take, and waits for what does not move no
// longer than drainStill.
func TestADrainWaitsForNothingThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, peer := piped(t)
		told := goAways(t, peer[0])
		m := testManifest("t")
		c := &core.Call{Type: proto.TypeOpen, Manifest: m.Append(nil), Timeout: proto.MaxDeadline}
		over := make(chan struct{})
		go func() { s.call(t.Context(), c); close(over) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		n.Drain(ctx)
		if took := time.Since(began); took != drainStill {
			t.Errorf("it took %v, want %v", took, drainStill)
		}
		if m := <-told; m.MS != 20_000 || m.Code != wire.CodeDraining {
			t.Errorf("the peer is told %+v", m)
		}
		n.stop(t)
		<-over
	})
}

// A drain waits for what moves, however slowly, beyond drainStill.
func TestADrainWaitsForWhatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, peer := piped(t)
		body := randomBody(1000)
		begun, sent := make(chan struct{}), make(chan struct{})
		x := &liar{t: t, error: make(chan wire.Code, 2), says: func(x *liar, f proto.Frame) []byte {
			if f.Type != proto.TypePull {
				return nil
			}
			out := frame(proto.TypeTable, f.Req, proto.Table{Items: []proto.Have{haveOf(body)}})
			close(begun)
			const piece = 250
			for at := 0; at < len(body); at += piece {
				out = append(proto.AppendData(out, proto.Frame{Req: f.Req}, uint32(at), piece), body[at:at+piece]...)
				if _, err := x.lane[1].conn.Write(out); err != nil {
					t.Error(err)
				}
				out = nil
				time.Sleep(drainStill - tickEvery)
			}
			close(sent)
			return frame(proto.TypeEnd, f.Req, proto.End{})
		}}
		for i, h := range peer {
			x.lane[i] = h
			go x.serve(h)
		}
		ns, err := n.ns.Add(testManifest("t"))
		if err != nil {
			t.Fatal(err)
		}
		num, err := s.open(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		c := pullCall(num, ns, len(body))
		c.Timeout = proto.MaxDeadline
		over := make(chan struct{})
		go func() { s.call(t.Context(), c); close(over) }()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n.Drain(ctx)
		select {
		case <-sent:
		default:
			t.Error("it did not wait for a body that moved")
		}
		n.stop(t)
		<-over
		wantBodies(t, c, [][]byte{body})
	})
}

// Lanes have the congestion control that is asked for, or the log says why not.
func TestLanesHaveTheCongestionControlThatIsAskedFor(t *testing.T) {
	here, there := tcpPair(t, 0)
	defer func() { _, _ = here.Close(), there.Close() }()
	log := &testlog.Buffer{}
	n := &Node{cfg: Config{Congestion: "reno", Log: slog.New(slog.NewTextHandler(log, nil))}} // every kernel has it
	n.tune(here)
	raw, err := here.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got string
	var gotErr error
	if err := raw.Control(func(fd uintptr) {
		got, gotErr = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}); err != nil || gotErr != nil || strings.TrimRight(got, "\x00") != "reno" || len(log.Lines()) != 0 {
		t.Errorf("%q, %v, %v; the log: %s", got, err, gotErr, log)
	}
	n.cfg.Congestion = "no-such-thing"
	n.tune(there)
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "no-such-thing") {
		t.Errorf("the log: %s", log)
	}
}
