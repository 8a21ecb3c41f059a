package nixl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/internal/testbed"
)

// poison is metadata that UCX does not survive: an address of a version that it has not.
func poison(agent string) []byte {
	var b bytes.Buffer
	number := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	field := func(tag, value string) { fmt.Fprintf(&b, "%s%s%s|", tag, number(uint64(len(value))), value) }
	b.WriteString("nixlSerDes|")
	field("Agent", agent)
	field("Conns", number(1))
	field("t", "UCX")
	field("c", strings.Repeat("\x05", 64))
	field("", "MemSection")
	field("nixlSecElms", number(0))
	return b.Bytes()
}

// One peer whose metadata end the helper cannot keep it from all others: it is left alone.
func TestAPeerWhoseMetadataEndTheHelperIsLeftAlone(t *testing.T) {
	var loads atomic.Int64
	bad := listen(t, func(c net.Conn) {
		for {
			f, err := plane.ReadFrame(c, nil)
			if err != nil || f.Verb != plane.Send {
				return
			}
			loads.Add(1)
			tell(c, poison("bad"))
		}
	})
	far := newLender(t, "far", 1<<20)
	c := config(t, PeerConfig{"bad", bad}, PeerConfig{"far", far.addr})
	c.harmRest = time.Hour
	n := newNode(t, c)
	testbed.Until(t, "the helper has died of it", func() bool { return n.restarts.Load() > 0 })
	lends(t, n, "far")
	first := helperOf(t, n)
	testbed.Until(t, "the peer is told as one that ended the helper", func() bool {
		return strings.Contains(n.Peers()[0].Text, errHarm.Error())
	})
	if err := first.err(); err != nil || n.restarts.Load() != 1 || loads.Load() != 1 {
		t.Errorf("the helper died %d times, of %d looks: %v", n.restarts.Load(), loads.Load(), err)
	}
}

func TestEachHelperThatAPeerEndsDoublesItsRest(t *testing.T) {
	p := newPeer(&Node{life: t.Context(), cfg: Config{Helper: HelperConfig{Log: testLog(t)}}}, PeerConfig{Name: "bad"})
	other := errors.New("UNREACHABLE: the helper died")
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{other, 0}, {errHarm, harmRest}, {fmt.Errorf("%w: %w", errHarm, other), 2 * harmRest}, {other, 0}, {errHarm, 4 * harmRest},
	} {
		if got := p.harmed(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	for range 100 {
		if got := p.harmed(errHarm); got > harmMost {
			t.Fatal(got)
		}
	}
}
