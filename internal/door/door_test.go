package door

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"meridian/blocks/quota"
	"meridian/internal/pipenet"
	"meridian/wire"
)

// broken fails once before it accepts.
type broken struct {
	net.Listener
	once atomic.Bool
}

func (b *broken) Accept() (net.Conn, error) {
	if b.once.CompareAndSwap(false, true) {
		return nil, errors.New("too many open files")
	}
	return b.Listener.Accept()
}

// limited has limits of one source and of all.
func limited(r quota.Resource, source, all int) *Common {
	var book quota.Book
	book.SetLimit(r, quota.Source, uint64(source))
	book.SetLimit(r, quota.All, uint64(all))
	return NewCommon(&book)
}

// echo is a door whose connections prove themselves by their first byte.
func echo(l net.Listener, conns, perSource int, refused func(error)) *Door {
	d := New(Config{
		Places:  limited(quota.DataConns, perSource, conns).Of(quota.DataConns),
		Admit:   func(a netip.Addr) (string, error) { return a.String(), nil },
		Refused: func(_ string, err error) { refused(err) },
		Serve: func(c *Conn) {
			var b [1]byte
			for {
				if _, err := c.Read(b[:]); err != nil {
					return
				}
				c.Proved()
				if _, err := c.Write(b[:]); err != nil {
					return
				}
			}
		},
	})
	d.Open(l)
	return d
}

func say(c net.Conn) error {
	if _, err := c.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func TestADoorGoesOnAfterAnErrorOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		d := echo(&broken{Listener: l}, 4, 4, func(err error) { t.Error(err) })
		c, err := l.Dial(t.Context(), "")
		if err != nil || say(c) != nil {
			t.Error(err)
		}
		_ = c.Close()
		d.Close()
		d.Close()
	})
}

func TestAConnectionThatProvedItselfKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		var refused []error
		d := echo(l, 3, 3, func(err error) { refused = append(refused, err) })
		var proved []net.Conn
		for i := range 3 {
			c, err := l.From(t.Context(), fmt.Sprintf("192.0.2.%d:1", 10+i))
			if err != nil || say(c) != nil {
				t.Fatal(err)
			}
			proved = append(proved, c)
		}
		late, err := l.From(t.Context(), "192.0.2.1:1")
		if err != nil {
			t.Fatal(err)
		}
		if say(late) == nil {
			t.Error("a fourth connection was let in")
		}
		synctest.Wait()
		if len(refused) != 1 || !errors.Is(refused[0], wire.CodeTooMany) {
			t.Error(refused)
		}
		for _, c := range proved {
			if err := say(c); err != nil {
				t.Error(err)
			}
		}
		_ = proved[0].Close()
		synctest.Wait()
		again, err := l.Dial(t.Context(), "")
		if err != nil || say(again) != nil || d.Len() != 3 {
			t.Errorf("after one has left: %v, %d", err, d.Len())
		}
		_ = again.Close()
		d.Close()
		if d.Len() != 0 {
			t.Errorf("%d are left", d.Len())
		}
	})
}

// Sources that take all they can, by connections that are in use, leave places for one
// more. The addresses of an IPv6 /64 are one source.
func TestGreedySourcesLeavePlacesForOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		d := echo(l, 64, 32, func(error) {})
		took := map[string]int{}
		for _, source := range []string{"192.0.2.1:1", "192.0.2.2:1", "[2001:db8::%d]:1", "192.0.2.4:1"} {
			for i := range 64 {
				from := source
				if source[0] == '[' {
					from = fmt.Sprintf(source, i+1)
				}
				c, err := l.From(t.Context(), from)
				if err != nil {
					t.Fatal(err)
				}
				if say(c) == nil {
					took[source]++
				}
			}
		}
		for source, want := range map[string]int{"192.0.2.1:1": 32, "192.0.2.2:1": 16, "[2001:db8::%d]:1": 8, "192.0.2.4:1": 4} {
			if took[source] != want {
				t.Errorf("%s has %d places, want %d", source, took[source], want)
			}
		}
		d.Close()
	})
}

// Doors of one daemon have their places together: a silent connection of one makes room
// for a newcomer of another, and what is in use at one is not free at another. The refusal
// names who has how much, and the key of the limit.
func TestDoorsOfADaemonShareTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused [2][]error
		var doors [2]*Door
		var lists [2]*pipenet.Listener
		common := limited(quota.DataConns, 8, 4)
		for i := range doors {
			lists[i] = pipenet.New()
			doors[i] = echo(lists[i], 1, 1, func(err error) { refused[i] = append(refused[i], err) })
			doors[i].cfg.Places = common.Of(quota.DataConns)
		}
		from := func(i int, source string) net.Conn {
			c, err := lists[i].From(t.Context(), source)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return c
		}
		var silent []net.Conn
		for i := range 4 {
			silent = append(silent, from(0, fmt.Sprintf("192.0.2.%d:1", i+1)))
		}
		late := from(1, "192.0.2.9:1")
		if err := say(late); err != nil || doors[0].Len() != 3 || len(refused[0]) != 0 {
			t.Errorf("%v, the first door has %d connections and has refused %v", err, doors[0].Len(), refused[0])
		}
		if _, err := silent[0].Read(make([]byte, 1)); err == nil {
			t.Error("the oldest silent connection still has its place")
		}
		if err := say(from(1, "192.0.2.9:1")); err == nil || len(refused[1]) != 1 {
			t.Fatalf("a second connection in use of one source, where 3 of 4 places are taken: %v, %v", err, refused[1])
		}
		if got := refused[1][0]; !errors.Is(got, wire.CodeTooMany) || got.Error() != "source 192.0.2.9 may have 1 connections to data planes, as many as are free, and has 1; 1 more would exceed that (quota.data_connections)" {
			t.Error(got)
		}
		doors[0].Close()
		doors[1].Close()
		if n := common.Of(quota.DataConns).Used(); n != 0 {
			t.Errorf("%d places are never given back", n)
		}
	})
}

func TestADoorListensOnBothFamilies(t *testing.T) {
	d := New(Config{
		Refused: func(_ string, err error) { t.Error(err) },
		Admit:   func(a netip.Addr) (string, error) { return a.String(), nil },
		Serve:   func(c *Conn) { _, _ = io.WriteString(c, c.Peer) },
	})
	defer d.Close()
	at, err := d.Listen(t.Context(), "[::]:0")
	if err != nil {
		t.Skip("SKIPPED: this host has no IPv6:", err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(host), at.Port()).String())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || string(b) != host {
			t.Errorf("from %s: %q, %v", host, b, err)
		}
		_ = c.Close()
	}
}
