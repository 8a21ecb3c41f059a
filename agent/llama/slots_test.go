package llama

import (
	"context"
	"sync"
	"testing"
)

func TestARequestGetsTheFreeSlotThatHoldsMostOfItsPrompt(t *testing.T) {
	s := newSlots(3)
	ctx, gone := context.Background(), make(chan struct{})
	var held []*slot
	for range 3 {
		f, err := s.take(ctx, nil, gone)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
	}
	held[0].cached = []int32{1, 2, 3}
	held[1].cached = []int32{1, 2, 9}
	held[2].cached = []int32{7}
	for _, f := range held {
		s.give(f)
	}
	for _, c := range []struct {
		prompt []int32
		want   int
	}{{[]int32{1, 2, 3, 4}, held[0].id}, {[]int32{1, 2, 9}, held[1].id}, {[]int32{7, 7}, held[2].id}} {
		f, err := s.take(ctx, c.prompt, gone)
		if err != nil || f.id != c.want {
			t.Errorf("prompt %v: slot %v, %v; want slot %d", c.prompt, f, err, c.want)
			continue
		}
		s.give(f)
	}
}

func TestAPromptThatNobodyHoldsGetsTheSlotThatWasUnusedForLongest(t *testing.T) {
	s := newSlots(2)
	gone := make(chan struct{})
	a, _ := s.take(context.Background(), nil, gone)
	b, _ := s.take(context.Background(), nil, gone)
	s.give(b)
	s.give(a)
	if f, err := s.take(context.Background(), []int32{5}, gone); err != nil || f != b {
		t.Errorf("slot %v, %v; want %v", f, err, b)
	}
}

func TestSlotsAreNeverGivenTwice(t *testing.T) {
	const slotsN, rounds = 3, 200
	s := newSlots(slotsN)
	var mu sync.Mutex
	inUse := map[int]bool{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range rounds {
				f, err := s.take(context.Background(), []int32{int32(w), int32(i)}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if inUse[f.id] {
					t.Errorf("slot %d was given twice", f.id)
				}
				inUse[f.id] = true
				mu.Unlock()
				f.cached = append(f.cached[:0], int32(w), int32(i))
				mu.Lock()
				inUse[f.id] = false
				mu.Unlock()
				s.give(f)
			}
		})
	}
	wg.Wait()
	if n := s.busy(); n != 0 {
		t.Errorf("%d slots busy at the end", n)
	}
}
