package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/pipenet"
	"meridian/wire"
)

// scripted is a peer whose n-th connection is served by play.
func scripted(t *testing.T, play func(n int, c net.Conn)) (s *Segment, end func()) {
	t.Helper()
	l := pipenet.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				play(n, c)
			})
		}
	})
	k := &known{}
	k.set(9, base)
	in := NewInitiator(InitiatorConfig{Resolver: k, Dial: l.Dial})
	s, err := in.Open(t.Context(), "a:1")
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		in.Close()
		_ = l.Close()
		wg.Wait()
	}
}

func reads(n int) []Op {
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = Op{Addr: base + uint64(i), B: make([]byte, 1)}
	}
	return ops
}

func letters(ops []Op) (s string) {
	for _, op := range ops {
		s += string(op.B)
	}
	return s
}

func failed(ops []Op) (out []int) {
	for i, op := range ops {
		if op.Err != nil {
			out = append(out, i)
		}
	}
	return out
}

// Requests of a batch leave together, before the first is answered; a long batch never
// has more of them under way than the bound.
func TestRequestsFollowEachOtherOnALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := scripted(t, func(n int, c net.Conn) {
			b := make([]byte, 100*headerLen)
			got := 0
			for asked := 0; asked < 100; asked++ {
				for synctest.Wait(); ; { // all that is sent without an answer
					_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
					m, err := c.Read(b)
					if got += m; err != nil {
						break
					}
				}
				if under := got/headerLen - asked; under > maxFlight || asked == 0 && under != maxFlight {
					t.Errorf("%d requests are under way", under)
				}
				if _, err := io.WriteString(c, statusFine+string(rune('a'+asked%26))); err != nil {
					return
				}
			}
			if n > 0 {
				t.Error("a second lane")
			}
		})
		ops := reads(100)
		s.Read(t.Context(), ops)
		if failed(ops) != nil || letters(ops)[:28] != "abcdefghijklmnopqrstuvwxyzab" {
			t.Errorf("%v, %q", failed(ops), letters(ops))
		}
		end()
	})
}

// A connection that ends in the middle of a batch: what was answered is not asked again,
// and the rest is, one at a time.
func TestReadsBehindALostOneAreMadeAgainOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := scripted(t, func(n int, c net.Conn) {
			head := make([]byte, 4*headerLen)
			if n == 0 {
				_, _ = io.ReadFull(c, head)
				_, _ = io.WriteString(c, statusFine+"a"+statusFine)
				return
			}
			for {
				m, err := c.Read(head)
				if err != nil {
					return
				}
				if m != headerLen {
					t.Errorf("%d bytes at once", m)
				}
				_, _ = io.WriteString(c, statusFine+string('a'+head[8]))
			}
		})
		ops := reads(4)
		if s.Read(t.Context(), ops); failed(ops) != nil || letters(ops) != "abcd" {
			t.Errorf("%v, %q", failed(ops), letters(ops))
		}
		end()
	})
}

// Nobody knows what became of writes on a new lane that ends: they fail, and nothing is
// sent again.
func TestWritesOnANewLaneThatEndsAreNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := scripted(t, func(n int, c net.Conn) {
			if n > 0 {
				t.Error("a second connection")
			}
			_, _ = io.ReadFull(c, make([]byte, 3*(headerLen+1)))
		})
		ops := reads(3)
		s.Write(t.Context(), ops)
		for i, op := range ops {
			if !errors.Is(op.Err, wire.CodeLaneLost) {
				t.Errorf("write %d: %v", i, op.Err)
			}
		}
		end()
	})
}

// More statuses than there were writes: the lane is of no use, and the writes are done.
func TestAStatusThatNobodyAskedForEndsTheLane(t *testing.T) {
	for _, more := range []string{statusFine, "\x00"} {
		synctest.Test(t, func(t *testing.T) {
			s, end := scripted(t, func(_ int, c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, 2*(headerLen+1)))
				_, _ = io.WriteString(c, statusFine+statusFine+more)
			})
			ops := reads(2)
			if s.Write(t.Context(), ops); failed(ops) != nil || s.Lanes() != 0 {
				t.Errorf("%v, %d lanes", ops[0].Err, s.Lanes())
			}
			end()
		})
	}
}

func TestARefusalTouchesNoOtherOperation(t *testing.T) {
	p := newPair(t, 1<<20)
	for _, write := range []bool{false, true} {
		ops := make([]Op, 40)
		for i := range ops {
			ops[i] = Op{Addr: base + uint64(i)*4096, B: bytes.Repeat([]byte{byte(i)}, 4096)}
		}
		for _, i := range []int{3, 20, 39} {
			ops[i].Addr = base + 2<<20
		}
		p.seg.run(t.Context(), ops, write)
		if got := fmt.Sprint(failed(ops)); got != "[3 20 39]" || !errors.Is(ops[20].Err, wire.CodeStale) {
			t.Errorf("write %v: %s failed, %v", write, got, ops[20].Err)
		}
	}
}

// served runs f with a connection to a target through a pipe, and with one through a
// socket, where statuses and bodies are moved by other calls.
func served(t *testing.T, f func(t *testing.T, far *far, c net.Conn)) {
	t.Helper()
	for _, socket := range []bool{false, true} {
		t.Run(fmt.Sprintf("socket %v", socket), func(t *testing.T) {
			p := newFar(TargetConfig{}, 64<<10)
			c, err := p.Dial(t.Context(), "")
			if socket && err == nil {
				_ = c.Close()
				at, e := p.target.Listen(t.Context(), "127.0.0.1:0")
				if e != nil {
					t.Fatal(e)
				}
				c, err = net.Dial("tcp", at.String())
			}
			if err != nil {
				t.Fatal(err)
			}
			f(t, p, c)
			_ = c.Close()
			p.target.Close()
			if p.in != 0 {
				t.Errorf("%d accesses were never left", p.in)
			}
		})
	}
}

func TestRequestsThatComeTogetherAreAnsweredInTurn(t *testing.T) {
	served(t, func(t *testing.T, f *far, c net.Conn) {
		var out, want []byte
		for i := range 100 { // more than are read or answered at once
			addr := uint64(base + i*3)
			if i%5 == 0 {
				out = append(append(out, head(0x81, addr, 3)...), "xyz"...)
				want = append(want, statusFine...)
				continue
			}
			out = append(out, head(0x80, addr, 3)...)
			want = append(append(want, statusFine...), byte(i*3), byte(i*3+1), byte(i*3+2))
		}
		out = append(append(out, head(0x80, 1, 1)...), head(0x80, base, 1)...) // refused, and what is behind it with it
		want = append(want, statusNo...)
		go func() { _, _ = c.Write(out) }()
		if got := receive(t, c, len(want)); !bytes.Equal(got, want) {
			t.Errorf("% x", got)
		}
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("% x behind a refusal", b)
		}
		if string(f.b[:3]) != "xyz" {
			t.Errorf("% x was written", f.b[:3])
		}
	})
}

// A status never waits for a peer: not for the rest of the next write's body, and not for
// the rest of its header.
func TestAnAcknowledgementDoesNotWaitForTheNextRequest(t *testing.T) {
	served(t, func(t *testing.T, _ *far, c net.Conn) {
		one := append(head(0x81, base, 3), "abc"...)
		for _, next := range [][]byte{head(0x81, base, 2000), append(head(0x81, base, 2000), "half"...), head(0x81, base, 2000)[:11]} {
			send(t, c, append(bytes.Clone(one), next...))
			if got := receive(t, c, statusLen); string(got) != statusFine {
				t.Fatalf("% x", got)
			}
			rest := append(head(0x81, base, 2000), make([]byte, 2000)...)[len(next):]
			send(t, c, rest)
			if got := receive(t, c, statusLen); string(got) != statusFine {
				t.Fatalf("% x", got)
			}
		}
	})
}
