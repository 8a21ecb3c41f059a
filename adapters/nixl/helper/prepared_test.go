package helper

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"meridian/adapters/nixl/capi"
)

// fakeRequest counts, and checks the order in which it and its lists are given back.
type fakeRequest struct {
	posts, lists int
	fails        error
	released     bool
}

func (r *fakeRequest) Post() (bool, error) { r.posts++; return false, nil }
func (r *fakeRequest) Poll() (bool, error) { return r.fails == nil, r.fails }
func (r *fakeRequest) Release() error {
	if r.released {
		return errors.New("released twice")
	}
	r.released = true
	return nil
}

type fakeList struct{ of *fakeRequest }

func (l fakeList) Release() error {
	if !l.of.released {
		return errors.New("a list was released before its request")
	}
	l.of.lists--
	return nil
}

// workbench has transfers that are kept, and all requests that were made.
type workbench struct {
	kept
	t     *testing.T
	made  []*fakeRequest
	parts int // that each is said to have
}

func (w *workbench) begin(peer string, at uint64) transfer {
	w.t.Helper()
	spans := []capi.Span{{Addr: at, Len: 1}}
	t, _, err := w.kept.begin(keyOf(capi.Read, peer, spans, spans), peer, w.parts, func() (request, []releaser, error) {
		r := &fakeRequest{lists: 2}
		w.made = append(w.made, r)
		return r, []releaser{fakeList{r}, fakeList{r}}, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// finish polls a transfer, and releases it, as the loop does.
func (w *workbench) finish(t transfer) {
	w.t.Helper()
	_, _ = t.Poll()
	if err := t.Release(); err != nil {
		w.t.Error(err)
	}
}

func TestATransferThatIsRepeatedIsPreparedOnce(t *testing.T) {
	w := &workbench{t: t}
	for range 3 {
		w.finish(w.begin("a", 1))
	}
	one, two := w.begin("a", 1), w.begin("a", 1) // two at a time are two
	w.finish(one)
	w.finish(two)
	w.finish(w.begin("b", 1))
	if len(w.made) != 3 || w.made[0].posts != 4 {
		t.Errorf("%d requests were made, the first one was posted %d times", len(w.made), w.made[0].posts)
	}
}

func TestWhatFailedOrIsOfAForgottenPeerIsNotKept(t *testing.T) {
	w := &workbench{t: t}
	broken := w.begin("a", 1)
	w.made[0].fails = errors.New("no")
	w.finish(broken)
	idle, flying := w.begin("a", 2), w.begin("a", 3)
	w.finish(idle)
	w.finish(w.begin("b", 2))
	w.forget("a")
	w.finish(flying)
	for i, want := range []bool{true, true, true, false} {
		if r := w.made[i]; r.released != want || want != (r.lists == 0) {
			t.Errorf("request %d: released %v with %d lists left, want %v", i, r.released, r.lists, want)
		}
	}
	w.finish(w.begin("a", 2))
	if len(w.made) != 5 {
		t.Error("a peer that came again got a transfer of before")
	}
}

func TestABoundedNumberOfTransfersIsKept(t *testing.T) {
	w := &workbench{t: t}
	for i := range uint64(3 * maxKept) {
		w.finish(w.begin(fmt.Sprint(i%7), i))
	}
	left := slices.DeleteFunc(slices.Clone(w.made), func(r *fakeRequest) bool { return r.released })
	if len(left) != maxKept || !slices.Equal(left, w.made[2*maxKept:]) {
		t.Errorf("%d are kept, limit %d, and they are not the last ones", len(left), maxKept)
	}
	w.parts = maxKeptParts / 4
	for i := range uint64(7) {
		w.finish(w.begin("large", i))
	}
	left = slices.DeleteFunc(slices.Clone(w.made), func(r *fakeRequest) bool { return r.released })
	if len(left) != 4 || !slices.Equal(left, w.made[len(w.made)-4:]) || w.kept.parts != maxKeptParts {
		t.Errorf("%d are kept with %d parts, limit %d, and they are not the last ones", len(left), w.kept.parts, maxKeptParts)
	}
	w.parts = 2 * maxKeptParts
	w.finish(w.begin("larger", 1))
	w.finish(w.begin("larger", 1))
	if last := w.made[len(w.made)-1]; last.posts != 2 || last.released || w.idle.Len() != 1 || len(w.byKey) != 1 {
		t.Errorf("one that is larger than all together: posted %d times, and %d are kept", last.posts, w.idle.Len())
	}
	w.forget("larger")
	if w.idle.Len() != 0 || len(w.byKey) != 0 || w.kept.parts != 0 {
		t.Errorf("%d are left, with %d parts", w.idle.Len(), w.kept.parts)
	}
}
