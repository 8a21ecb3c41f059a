package quota

import (
	"math"
	"slices"
	"sync"
)

// Share is a fraction of a total, rounded down: how a limit is made of a
// configured share. A fraction above 1 is 1, below 0 it is 0.
func Share(total uint64, fraction float64) uint64 {
	switch {
	case !(fraction > 0):
		return 0
	case fraction >= 1:
		return total
	}
	return min(uint64(float64(total)*fraction), total)
}

type account struct {
	limit   uint64
	limited bool
	used    map[string]uint64 // by holder; an entry goes when it is 0
	refused uint64
}

// Book has the accounts of all holders. The zero Book is ready and has no limits:
// it counts and refuses nothing. All methods may be called at the same time.
type Book struct {
	mu       sync.Mutex
	accounts map[Rule]*account
}

// SetLimit sets what each holder of a kind may have. Who has more already keeps
// it and gets no more. A change applies to what is asked for afterwards.
func (b *Book) SetLimit(r Resource, k Kind, limit uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(r, k)
	a.limit, a.limited = limit, true
}

// NoLimit lets each holder of a kind have what there is. The account shows in the
// metrics all the same.
func (b *Book) NoLimit(r Resource, k Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(r, k)
	a.limit, a.limited = 0, false
}

func (b *Book) account(r Resource, k Kind) *account {
	c := Rule{r, k}
	a := b.accounts[c]
	if a == nil {
		if b.accounts == nil {
			b.accounts = map[Rule]*account{}
		}
		a = &account{used: map[string]uint64{}}
		b.accounts[c] = a
	}
	return a
}

// Take counts n of a resource for every holder named, or for none: a limit that
// would be exceeded is an *Error, and the Hold is nil.
func (b *Book) Take(r Resource, n uint64, who ...Holder) (*Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold, err := b.take(r, n, who)
	return hold, b.refused(err)
}

// Try is Take for a caller that waits and asks again: it counts no refusal.
func (b *Book) Try(r Resource, n uint64, who ...Holder) (*Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold, err := b.take(r, n, who)
	return hold, asError(err)
}

// Exchange is Take once the old holds were given back. Where it refuses, they keep
// what they have. An old hold may be nil.
func (b *Book) Exchange(old []*Hold, r Resource, n uint64, who ...Holder) (*Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range old {
		h.uncount()
	}
	hold, refusal := b.take(r, n, who)
	err := b.refused(refusal)
	for _, h := range old {
		switch {
		case h == nil:
		case err == nil:
			h.who = nil
		default:
			h.count()
		}
	}
	return hold, err
}

// refused counts a refusal. The caller holds b.mu.
func (b *Book) refused(e *Error) error {
	if e != nil {
		b.accounts[e.Rule].refused++
	}
	return asError(e)
}

// asError is no error for a nil *Error.
func asError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// limit is what a holder may have when it asks for n more, if there is a limit, and
// whether that is what is free of the total. The caller holds b.mu.
func (b *Book) limit(a *account, r Resource, k Kind, n uint64) (limit uint64, limited, free bool) {
	if k != Source && k != Process || !parted[r] {
		return a.limit, a.limited, false
	}
	total := b.account(r, All)
	left := total.limit - min(total.used[Total.Name], total.limit)
	if total.limited && n <= left && (!a.limited || left < a.limit) { // above what is left the total refuses
		return left, true, true
	}
	return a.limit, a.limited, false
}

// take: the caller holds b.mu.
func (b *Book) take(r Resource, n uint64, who []Holder) (*Hold, *Error) {
	for i, h := range who {
		if slices.Contains(who[:i], h) {
			continue
		}
		a := b.account(r, h.Kind)
		used := a.used[h.Name]
		if limit, limited, free := b.limit(a, r, h.Kind, n); limited && (used > limit || n > limit-used) {
			return nil, &Error{Rule: Rule{r, h.Kind}, Holder: h, InUse: used, Want: n, Limit: limit, Free: free}
		}
	}
	hold := &Hold{book: b, r: r, n: n}
	for i, h := range who {
		if slices.Contains(who[:i], h) {
			continue
		}
		hold.who = append(hold.who, h)
	}
	hold.count()
	return hold, nil
}

// Left is what Take would give at most to the holders named.
func (b *Book) Left(r Resource, who ...Holder) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := uint64(math.MaxUint64)
	for _, h := range who {
		a := b.account(r, h.Kind)
		if limit, limited, _ := b.limit(a, r, h.Kind, 0); limited {
			left = min(left, limit-min(a.used[h.Name], limit))
		}
	}
	return left
}

// Used is what a holder has.
func (b *Book) Used(r Resource, h Holder) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(r, h.Kind).used[h.Name]
}

// Hold is an amount that was taken. A nil Hold holds nothing.
type Hold struct {
	book *Book
	r    Resource
	n    uint64
	who  []Holder
}

// Give gives the amount back. Only the first call counts.
func (h *Hold) Give() {
	if h == nil {
		return
	}
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.uncount()
	h.who = nil
}

// count and uncount keep the accounts of who holds it. The caller holds book.mu.
func (h *Hold) count() {
	if h.n == 0 {
		return // no entry of 0
	}
	for _, w := range h.who {
		h.book.account(h.r, w.Kind).used[w.Name] += h.n
	}
}

func (h *Hold) uncount() {
	if h == nil {
		return
	}
	for _, w := range h.who {
		a := h.book.account(h.r, w.Kind)
		if a.used[w.Name] -= h.n; a.used[w.Name] == 0 {
			delete(a.used, w.Name)
		}
	}
}

// Row is the state of one resource for one kind of holder: what the metrics
// meridian_quota_used, meridian_quota_limit and meridian_quota_refused_total show.
type Row struct {
	Rule
	Used    uint64 // of the holder that has most
	Holders int    // that have anything
	Limit   uint64 // of each holder
	Limited bool   // false: nothing is refused, Limit means nothing
	Refused uint64 // Take calls, since the start
}

// Stats returns a row for each account that was ever limited or used, in order of
// resource and kind.
func (b *Book) Stats() []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := make([]Row, 0, len(b.accounts))
	for c, a := range b.accounts {
		row := Row{Rule: c, Holders: len(a.used), Limit: a.limit, Limited: a.limited, Refused: a.refused}
		for _, n := range a.used {
			row.Used = max(row.Used, n)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(x, y Row) int { return compare(x.Rule, y.Rule) })
	return rows
}
