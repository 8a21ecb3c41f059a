package control

import "testing"

// counted is how many of n waits begin with a look, where each look finds something or none does.
func counted(l *Looks, n int, finds bool) (looked int) {
	for range n {
		if !l.May() {
			continue
		}
		looked++
		if finds {
			l.Hit()
		} else {
			l.Miss()
		}
	}
	return looked
}

func TestLooksThatFindNothingBecomeRareAndComeBack(t *testing.T) {
	l := &Looks{}
	if n := counted(l, 100, true); n != 100 {
		t.Errorf("%d of 100 waits began with a look, and each found something", n)
	}
	if n := counted(l, 1000, false); n > 1000/mostSleeps+8 {
		t.Errorf("%d of 1000 waits began with a look that found nothing", n)
	}
	if n := counted(l, 1000, true); n < 1000-mostSleeps {
		t.Errorf("%d of 1000 waits began with a look since they are worth it again", n)
	}
}
