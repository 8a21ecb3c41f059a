package halfopen

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var errRoom = errors.New("another one needs the place")

// guest is a connection of a test.
type guest struct {
	*Conn
	gone error
}

func enter(tab *Table, now time.Duration, source string) *guest {
	g := &guest{}
	g.Conn = tab.Enter(now, source, func(why error) { g.gone = why })
	return g
}

func TestTheOldestSilentConnectionOfASourceGoesFirst(t *testing.T) {
	var tab Table
	other, first, second, third := enter(&tab, 0, "b"), enter(&tab, 1, "a"), enter(&tab, 2, "a"), enter(&tab, 3, "a")
	first.Spoke(4)
	if !tab.MakeRoom(5, "a", errRoom) || other.gone != nil || first.gone != nil || second.gone != errRoom || third.gone != nil {
		t.Errorf("gone: %v, %v, %v, %v; want the second of a only", other.gone, first.gone, second.gone, third.gone)
	}
	if n := tab.Len(); n != 3 {
		t.Errorf("%d connections are left, want 3", n)
	}
}

func TestWhereNobodyIsSilentNobodyGoes(t *testing.T) {
	var tab Table
	for i := range 3 {
		enter(&tab, 0, fmt.Sprint(i)).Spoke(0)
	}
	if tab.MakeRoom(1, "0", errRoom) || tab.MakeRoom(1, "", errRoom) || tab.MakeRoom(1, "nobody's", errRoom) {
		t.Error("one that had just spoken made room")
	}
}

func TestTheSourceThatHasMostMakesRoom(t *testing.T) {
	var tab Table
	one := enter(&tab, 0, "one")
	many := []*guest{enter(&tab, 1, "many"), enter(&tab, 2, "many")}
	full := []*guest{enter(&tab, 3, "all have spoken"), enter(&tab, 3, "all have spoken"), enter(&tab, 3, "all have spoken")}
	for _, g := range full {
		g.Spoke(3)
	}
	if !tab.MakeRoom(4, "", errRoom) || one.gone != nil || many[0].gone == nil || many[1].gone != nil {
		t.Errorf("gone: %v, %v, %v; want the first of many", one.gone, many[0].gone, many[1].gone)
	}
}

// A connection that says a word and then nothing holds a place no longer than Patience when
// others need it.
func TestOneThatSpokeAndFellSilentGoesAfterPatience(t *testing.T) {
	var tab Table
	first, second := enter(&tab, 0, "a"), enter(&tab, 0, "a")
	first.Spoke(2)
	second.Spoke(1)
	if tab.MakeRoom(Patience, "a", errRoom) {
		t.Fatal("one that had just spoken made room")
	}
	if !tab.MakeRoom(Patience+1, "a", errRoom) || first.gone != nil || second.gone == nil {
		t.Errorf("gone: %v, %v; want the one whose word is longest ago", first.gone, second.gone)
	}
}

// Whatever happens in whatever order: each connection is told to go once at most,
// and in the end nothing is left.
func TestEachGoesOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tab Table
	var in []*Conn
	told := map[*Conn]int{}
	for step := range 20_000 {
		now := time.Duration(step) * time.Millisecond
		switch rng.IntN(5) {
		case 0, 1:
			var c *Conn
			c = tab.Enter(now, fmt.Sprint(rng.IntN(5)), func(error) { told[c]++ })
			in = append(in, c)
		case 2:
			if len(in) > 0 {
				in[rng.IntN(len(in))].Spoke(now)
			}
		case 3:
			source := ""
			if rng.IntN(2) == 0 {
				source = fmt.Sprint(rng.IntN(5))
			}
			before := tab.Len()
			if tab.MakeRoom(now, source, errRoom) != (tab.Len() == before-1) {
				t.Fatal("room was made and not told, or told and not made")
			}
		case 4:
			if len(in) > 0 {
				i := rng.IntN(len(in))
				in[i].Leave()
				in[i].Leave()
				in = append(in[:i], in[i+1:]...)
			}
		}
	}
	for c, n := range told {
		if n != 1 {
			t.Errorf("a connection of %s was told %d times", c.source, n)
		}
	}
	for _, c := range in {
		c.Leave()
	}
	if tab.Len() != 0 {
		t.Errorf("%d connections are left", tab.Len())
	}
}

func TestWhoIsAtWorkStaysAndWhoRestsGoesAfterTheSilent(t *testing.T) {
	var tab Table
	works, rests, silent := enter(&tab, 0, "a"), enter(&tab, 0, "a"), enter(&tab, 2, "a")
	works.Busy()
	rests.Busy()
	rests.Rest(1)
	if !tab.MakeRoom(2, "a", errRoom) || silent.gone == nil || rests.gone != nil {
		t.Fatalf("gone: silent %v, rests %v; want the silent one", silent.gone, rests.gone)
	}
	if !tab.MakeRoom(2, "a", errRoom) || rests.gone == nil {
		t.Fatal("the one that rests made no room")
	}
	if tab.MakeRoom(2*Patience, "a", errRoom) || works.gone != nil {
		t.Error("the one at work made room")
	}
}

func TestWhoWaitsForTheRestOfAMessageHasPatience(t *testing.T) {
	var tab Table
	waits := enter(&tab, 0, "a")
	waits.Busy()
	waits.Wait(1)
	if tab.MakeRoom(Patience, "a", errRoom) {
		t.Fatal("it made room at once")
	}
	waits.Busy()
	if tab.MakeRoom(2*Patience, "a", errRoom) {
		t.Fatal("it made room at work")
	}
	waits.Wait(2 * Patience)
	if !tab.MakeRoom(3*Patience, "a", errRoom) || waits.gone == nil {
		t.Error("it made no room")
	}
}

func TestWhoYieldsCountsAsSilent(t *testing.T) {
	var tab Table
	speaks, yields := enter(&tab, 0, "a"), enter(&tab, 1, "a")
	speaks.Spoke(2)
	yields.Spoke(3)
	if tab.MakeRoom(4, "a", errRoom) {
		t.Fatal("room was made by one that has just spoken")
	}
	yields.Yield()
	if !tab.MakeRoom(5, "a", errRoom) || yields.gone == nil || speaks.gone != nil {
		t.Errorf("gone: yields %v, speaks %v; want the one that yields", yields.gone, speaks.gone)
	}
}
