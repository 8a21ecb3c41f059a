package transfer

import "testing"

func TestTransfersListRunningFirstAndForgetTheOldest(t *testing.T) {
	l := new(Log)
	for range recentTransfers + 3 {
		r := Record{Peer: "p", In: true}
		r.ID = l.Begin(r)
		l.End(r)
	}
	running := l.Begin(Record{Peer: "q"})
	all := l.List(recentTransfers+10, "", false)
	if len(all) != recentTransfers+1 || all[0].ID != running || !all[0].Running {
		t.Fatalf("%d rows, the first %+v", len(all), all[0])
	}
	for i, x := range all[1:] { // newest first, also those that took no time
		if want := uint64(recentTransfers + 3 - i); x.ID != want || x.Running {
			t.Fatalf("row %d is %+v, want transfer %d", i+1, x, want)
		}
	}
	if got := l.List(5, "p", false); len(got) != 5 || got[0].Peer != "p" {
		t.Errorf("of one peer: %+v", got)
	}
	if got := l.List(5, "", true); len(got) != 1 || l.InFlight(false) != 1 || l.InFlight(true) != 0 {
		t.Errorf("running only: %+v", got)
	}
	l.End(Record{ID: 9999}) // never began
}
