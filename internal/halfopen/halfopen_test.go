package halfopen

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

var limits = Limits{Total: 6, TotalKey: "x.all", PerSource: 3, PerSourceKey: "x.each"}

// guest is a connection of a test.
type guest struct {
	*Conn
	gone *Refusal
}

func enter(t *testing.T, tab *Table, source string) *guest {
	t.Helper()
	g := &guest{}
	var no *Refusal
	if g.Conn, no = tab.Enter(0, source, func(r *Refusal) { g.gone = r }); no != nil {
		t.Fatalf("%s has no place: %v", source, no)
	}
	return g
}

func TestTheOldestSilentConnectionOfASourceGoesFirst(t *testing.T) {
	tab := New(limits)
	first, second, third := enter(t, tab, "a"), enter(t, tab, "a"), enter(t, tab, "a")
	first.Spoke(0)
	enter(t, tab, "a")
	if first.gone != nil || second.gone == nil || third.gone != nil {
		t.Errorf("gone: %v, %v, %v; want the second only", first.gone, second.gone, third.gone)
	}
	if got, want := second.gone.Error(), "half-open connections from a: the limit x.each is 3, and this one was silent for longest"; got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
}

func TestASourceThatHasItsShareIsRefusedAndOthersAreNot(t *testing.T) {
	tab := New(limits)
	for range limits.PerSource {
		enter(t, tab, "a").Spoke(0)
	}
	_, no := tab.Enter(0, "a", nil)
	if no == nil || no.Error() != "half-open connections from a: the limit x.each is 3" {
		t.Errorf("refused with %v", no)
	}
	enter(t, tab, "b")
}

func TestWhereAllPlacesAreTakenTheSourceThatHasMostGivesOneUp(t *testing.T) {
	tab := New(limits)
	one := enter(t, tab, "one")
	var many []*guest
	for range 3 {
		many = append(many, enter(t, tab, "many"))
	}
	enter(t, tab, "two")
	enter(t, tab, "two")
	enter(t, tab, "three")
	if one.gone != nil || many[0].gone == nil || many[0].gone.Source != "" || many[0].gone.Key != "x.all" {
		t.Errorf("gone: one %v, many %v", one.gone, many[0].gone)
	}
}

func TestANewcomerIsRefusedWhereNobodyIsSilent(t *testing.T) {
	tab := New(limits)
	for i := range limits.Total {
		enter(t, tab, fmt.Sprint(i)).Spoke(0)
	}
	_, no := tab.Enter(0, "late", nil)
	if no == nil || no.Error() != "half-open connections: the limit x.all is 6" {
		t.Errorf("refused with %v", no)
	}
}

// Whoever says a word and then nothing holds a place no longer than Patience when
// others need it.
func TestOneThatSpokeAndFellSilentGoesAfterPatience(t *testing.T) {
	tab := New(limits)
	var in []*guest
	for i := range limits.PerSource {
		in = append(in, enter(t, tab, "a"))
		in[i].Spoke(time.Duration(limits.PerSource - i))
	}
	if _, no := tab.Enter(Patience, "a", nil); no == nil {
		t.Fatal("one that has just spoken made room")
	}
	if _, no := tab.Enter(Patience+1, "a", func(*Refusal) {}); no != nil || in[limits.PerSource-1].gone == nil {
		t.Errorf("after Patience: %v; want the one to go whose word is longest ago", no)
	}
}

// Whatever happens in whatever order: no limit is passed, and in the end nothing
// is left.
func TestNoLimitIsEverPassed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab := New(limits)
	var in []*Conn
	for step := range 20_000 {
		switch rng.IntN(4) {
		case 0, 1:
			if c, no := tab.Enter(time.Duration(step)*time.Millisecond, strings.Repeat("s", 1+rng.IntN(5)), func(*Refusal) {}); no == nil {
				in = append(in, c)
			}
		case 2:
			if len(in) > 0 {
				in[rng.IntN(len(in))].Spoke(time.Duration(step) * time.Millisecond)
			}
		case 3:
			if len(in) > 0 {
				i := rng.IntN(len(in))
				in[i].Leave()
				in[i].Leave()
				in = append(in[:i], in[i+1:]...)
			}
		}
		count := map[string]int{}
		for _, c := range tab.all {
			if count[c.source]++; count[c.source] > limits.PerSource {
				t.Fatalf("%s has %d places", c.source, count[c.source])
			}
		}
		if tab.Len() > limits.Total {
			t.Fatalf("%d places", tab.Len())
		}
	}
	for _, c := range in {
		c.Leave()
	}
	if tab.Len() != 0 {
		t.Errorf("%d places are left", tab.Len())
	}
}

func TestSourcesAreHostsAndNotPorts(t *testing.T) {
	for addr, want := range map[string]string{
		"10.1.2.3:4": "10.1.2.3", "[::ffff:10.1.2.3]:5": "10.1.2.3", "127.0.0.1:1": "127.0.0.1", "[::1]:1": "::1",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64", "[2001:db8:1:2:ffff::]:8": "2001:db8:1:2::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := Source(a); got != want {
			t.Errorf("%s counts as %s, want %s", addr, got, want)
		}
	}
	if got := Source(&net.UnixAddr{Net: "unix"}); got != "unix" {
		t.Errorf("a Unix socket counts as %s", got)
	}
}
