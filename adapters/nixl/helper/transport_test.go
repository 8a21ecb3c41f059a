package helper

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/adapters/nixl/capi"
)

// proto is a table as UCX 1.23 prints it, by a thread; via has a row for each.
func proto(thread, kind, op string, rows ...string) string {
	var b strings.Builder
	say := func(text string) { fmt.Fprintf(&b, "[1795912823.964698] [vm:22203:%s]   %s\n", thread, text) }
	say("+--------+--------------------+------------------------------------+")
	say("| meridian-house-0011 " + kind + "                                               |")
	say("| " + op + " |")
	say("+--------+--------------------+------------------------------------+")
	say("| Range  |    Description     |               Config               |")
	say("+--------+--------------------+------------------------------------+")
	for _, row := range rows {
		say("| 0..inf | " + row + " |")
	}
	if len(rows) > 0 {
		say("+--------+--------------------+------------------------------------+")
	}
	return b.String()
}

const (
	gets = "remote memory read by ucp_get*(multi) into host memory from host"
	puts = "remote memory write by ucp_put*(multi) from host memory to host"
)

// scene is an output with a real pipe behind it.
type scene struct {
	*output
	rest bytes.Buffer
	say  func(text string)
}

func newScene(t *testing.T) *scene {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) })
	s := &scene{}
	s.output = newOutput(p[0], &s.rest)
	s.say = func(text string) {
		if n, err := unix.Write(p[1], []byte(text)); err != nil || n != len(text) {
			t.Fatal(n, err)
		}
	}
	s.say(proto("0", "self cfg#0", puts, "zero-copy | tcp/lo"))
	return s
}

func TestATransportIsWhatUCXPrintsWithinTheCallForAPeer(t *testing.T) {
	s := newScene(t)
	s.during("near", func() {
		s.say(proto("0", "intra-node cfg#1", puts, "zero-copy | cma/memory"))
		s.say(proto("0", "intra-node cfg#1", "active message by ucp_am_send* from host memory", "short | tcp/lo"))
	})
	if got := s.of("near"); got != (uses{"", "cma"}) {
		t.Errorf("after a write: %q", got)
	}
	s.during("near", func() { s.say(proto("0", "intra-node cfg#1", gets, "zero-copy | cma/memory")) })
	s.during("far", func() {
		s.say(proto("0", "inter-node cfg#2", puts, "short | rc_mlx5/mlx5_0:1", "zero-copy | 50% on rc_mlx5/mlx5_0:1/path0 and 50% on dc_x/mlx5_1:1/path1"))
	})
	s.during("far", func() { s.say(proto("0", "inter-node cfg#2", gets, "software emulation | tcp/eth0")) })
	if got := s.of("near"); got != (uses{"cma", "cma"}) {
		t.Errorf("near: %q", got)
	}
	if got := s.of("far"); got != (uses{"tcp-emulated", "dc_x+rc_mlx5"}) {
		t.Errorf("far: %q", got)
	}
	if s.rest.Len() > 0 {
		t.Errorf("a table went to the log: %s", s.rest.String())
	}
}

// Peers share kinds of ways: UCX prints nothing for the second one.
func TestATransportIsNeverGuessed(t *testing.T) {
	s := newScene(t)
	if got := s.of("one"); got != (uses{}) {
		t.Errorf("before UCX said anything: %q", got)
	}
	s.during("one", func() { s.say(proto("0", "intra-node cfg#1", gets, "zero-copy | cma/memory")) })
	s.during("two", func() {})
	if got := s.of("two"); got != (uses{"cma", ""}) {
		t.Errorf("one way is all that there is, and it says %q", got)
	}
	// Another thread prints while a call for two runs: the way may be anybody's.
	s.during("two", func() { s.say(proto("1", "inter-node cfg#2", gets, "software emulation | tcp/lo")) })
	if one, two := s.of("one"), s.of("two"); one != (uses{"cma", ""}) || two != (uses{}) {
		t.Errorf("with two ways: %q, and of the other, which may be either: %q", one, two)
	}
	s.forget("one")
	if got := s.of("one"); got != (uses{}) {
		t.Errorf("of a peer that was forgotten: %q", got)
	}
}

func TestADirectionWithoutATransportIsTold(t *testing.T) {
	s := newScene(t)
	s.during("far", func() {
		s.say(proto("0", "inter-node cfg#1", gets))
		s.say("[1795912830.875239] [vm:22607:0]  proto_reconfig.c:67   UCX  ERROR No zero-copy protocol found\n")
	})
	if got := s.of("far"); got != (uses{None, ""}) {
		t.Errorf("%q", got)
	}
	if said := s.words(); said != "No zero-copy protocol found" || s.words() != "" {
		t.Errorf("it said %q", said)
	}
	s = newScene(t)
	s.during("far", func() { s.say(proto("0", "inter-node cfg#1", gets)) }) // and nothing behind it
	if got := s.of("far"); got != (uses{None, ""}) {
		t.Errorf("a table without an end: %q", got)
	}
}

// Whatever the library prints, the rest goes on to the log, in lines of a bounded length.
func TestOtherOutputGoesToTheLog(t *testing.T) {
	s := newScene(t)
	s.say("hello\n| no log line\n\n" + strings.Repeat("x", 2*maxLine) + "\nlast")
	s.of("x")
	if got, want := s.rest.String(), "hello\n| no log line\n"+strings.Repeat("x", maxLine)+"\n"; got != want {
		t.Errorf("%.80q, want %.80q", got, want)
	}
}

func FuzzTransports(f *testing.F) {
	f.Add(proto("0", "self cfg#0", puts, "zero-copy | tcp/lo") + proto("0", "intra-node cfg#1", gets, "software emulation | tcp/lo"))
	f.Add("[1.1] [:0] +-\n[1.1] [:0] |||\n[1.1] [:0] +-\n[1.1] [:0] +-\n")
	f.Fuzz(func(t *testing.T, text string) {
		o := newOutput(-1, &bytes.Buffer{})
		o.during("peer", func() { o.take([]byte(text)) })
		for _, via := range o.of("peer") {
			if strings.ContainsAny(via, " |/\n") {
				t.Errorf("%q", via)
			}
		}
		if len(o.line) > maxLine {
			t.Error("a line without an end is kept")
		}
	})
}

// What the library does not find of a peer is told as what it is.
func TestMemoryThatAPeerNeverRegisteredIsNamed(t *testing.T) {
	err := unregistered(&capi.Error{Call: "prep", Status: capi.StatusNotFound})
	if !strings.Contains(err.Error(), "must register it") || !strings.Contains(err.Error(), "not found") {
		t.Error(err)
	}
	if other := error(&capi.Error{Call: "prep", Status: capi.StatusInvalidState}); unregistered(other) != other || unregistered(nil) != nil {
		t.Error("another error is told as that")
	}
}
