package door

import (
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"meridian/internal/pipenet"
	"meridian/wire"
)

// A source that is not allowed any more loses its connections, also one that comes while
// that changes; others keep theirs.
func TestARecheckClosesWhoIsNotAllowedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		var no atomic.Value // the address that is turned away
		no.Store(netip.Addr{})
		var asked atomic.Int32
		d := echo(l, 8, 8, func(error) {})
		d.cfg.Admit = func(a netip.Addr) (string, error) {
			asked.Add(1)
			if a == no.Load() || a == netip.MustParseAddr("10.0.0.3") && asked.Load()%2 == 0 {
				return a.String(), wire.CodeAuth
			}
			return a.String(), nil
		}
		defer d.Close()
		from := func(a string) io.ReadWriteCloser {
			c, err := l.From(t.Context(), a+":9")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return c
		}
		gone, stays := from("10.0.0.1"), from("10.0.0.2")
		no.Store(netip.MustParseAddr("10.0.0.1"))
		d.Recheck()
		if _, err := gone.Read(make([]byte, 1)); err == nil || d.Len() != 1 {
			t.Errorf("%v, %d connections", err, d.Len())
		}
		if _, err := stays.Write([]byte{7}); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(stays, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		asked.Store(0)
		if _, err := from("10.0.0.3").Read(make([]byte, 1)); err == nil || d.Len() != 1 {
			t.Errorf("one that came while it changed: %v, %d connections", err, d.Len())
		}
		if n := d.cfg.Places.Used(); n != 1 {
			t.Errorf("%d places are taken, want 1", n)
		}
	})
}

// One that is somebody else now has to come again, since what it may do hangs on whose its
// connection is; Recheck leaves it.
func TestOneThatIsSomebodyElseNowComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		var name atomic.Value
		name.Store("a")
		d := echo(l, 8, 8, func(error) {})
		d.cfg.Admit = func(netip.Addr) (string, error) { return name.Load().(string), nil }
		defer d.Close()
		c, err := l.From(t.Context(), "10.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.Identify()
		name.Store("b")
		d.Recheck()
		if n := d.Len(); n != 1 {
			t.Errorf("%d connections", n)
		}
		d.Identify()
		if _, err := c.Read(make([]byte, 1)); err == nil || d.Len() != 0 {
			t.Errorf("%v, %d connections", err, d.Len())
		}
	})
}
