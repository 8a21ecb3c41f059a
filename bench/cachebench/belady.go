package cachebench

import "container/heap"

// belady evicts the block whose next use is furthest away, and does not keep one whose
// next use is further than that of all that it has. A block behind another one of the
// same prompt goes first: its next use is never earlier. No policy has more hits.
type belady struct {
	capacity int
	next     [][]int // by prompt and place: the prompt of the next use
	prompt   int     // the one served next
	at       map[int]*future
	order    futures // furthest first
}

// never is the next use of what is not used again.
const never = int(^uint(0) >> 1)

type future struct {
	id, next, depth int
	place           int // in the heap
}

func newBelady(capacity int, prompts [][]int) *belady {
	b := &belady{capacity: capacity, next: make([][]int, len(prompts)), at: map[int]*future{}}
	last := map[int]int{}
	for i := len(prompts) - 1; i >= 0; i-- {
		b.next[i] = make([]int, len(prompts[i]))
		for j, id := range prompts[i] {
			n, ok := last[id]
			if !ok {
				n = never
			}
			b.next[i][j] = n
		}
		for _, id := range prompts[i] {
			last[id] = i
		}
	}
	return b
}

func (b *belady) serve(prompt []int) (hits int) {
	next := b.next[b.prompt]
	b.prompt++
	for _, id := range prompt {
		if b.at[id] == nil {
			break
		}
		hits++
	}
	for j, id := range prompt {
		if f := b.at[id]; f != nil {
			f.next, f.depth = next[j], j
			heap.Fix(&b.order, f.place)
			continue
		}
		if next[j] == never {
			continue
		}
		f := &future{id: id, next: next[j], depth: j}
		if len(b.order) >= b.capacity {
			if !b.order.before(b.order[0], f) {
				continue
			}
			delete(b.at, heap.Pop(&b.order).(*future).id)
		}
		b.at[id] = f
		heap.Push(&b.order, f)
	}
	return hits
}

// futures is a heap of what is cached.
type futures []*future

// before reports whether a goes before b.
func (futures) before(a, b *future) bool {
	if a.next != b.next {
		return a.next > b.next
	}
	return a.depth > b.depth
}

func (h futures) Len() int           { return len(h) }
func (h futures) Less(i, j int) bool { return h.before(h[i], h[j]) }
func (h futures) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *futures) Push(x any) {
	f := x.(*future)
	f.place = len(*h)
	*h = append(*h, f)
}

func (h *futures) Pop() any {
	old := *h
	f := old[len(old)-1]
	*h = old[:len(old)-1]
	return f
}
