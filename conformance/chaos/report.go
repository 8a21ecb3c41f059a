package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is what a ledger has heard and found.
type Report struct {
	Events  uint64 `json:"events"`
	Refused uint64 `json:"refused"` // events that were not understood, or beyond a bound
	Blocks  uint64 `json:"blocks"`
	Offered uint64 `json:"offered"`
	Acked   uint64 `json:"acked"`
	Served  uint64 `json:"served"`
	Bytes   uint64 `json:"bytes"` // of the served bodies
	Absent  uint64 `json:"absent"`
	Evicted uint64 `json:"evicted"`
	Open    uint64 `json:"open"` // transfers under way and not overdue
	// Kinds counts convictions, Convictions has the first of them.
	Kinds       map[Kind]uint64 `json:"kinds"`
	Convictions []Conviction    `json:"convictions"`
}

// ErrIdle is the error of a run in which no byte was served: it proved nothing.
var ErrIdle = errors.New("no byte was served, so nothing was proved")

// ErrIncomplete is matched by the error of a run of which the judge did not take
// every event.
var ErrIncomplete = errors.New("the judge could not take every event")

// Err is nil for a run that moved bytes, of which the judge heard everything, and
// in which nothing was found. It joins the convictions that were kept.
func (r Report) Err() error {
	var errs []error
	for i := range r.Convictions {
		errs = append(errs, &r.Convictions[i])
	}
	total := uint64(0)
	for _, n := range r.Kinds {
		total += n
	}
	if more := total - uint64(len(r.Convictions)); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more convictions", more))
	}
	if r.Refused > 0 {
		errs = append(errs, fmt.Errorf("%d events: %w", r.Refused, ErrIncomplete))
	}
	if r.Bytes == 0 {
		errs = append(errs, ErrIdle)
	}
	return errors.Join(errs...)
}

// String is one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d blocks acknowledged, %d served (%d bytes), %d absent, %d transfers open",
		r.Acked, r.Served, r.Bytes, r.Absent, r.Open)
	for _, k := range slices.Sorted(maps.Keys(r.Kinds)) {
		fmt.Fprintf(&b, ", %d %s", r.Kinds[k], k)
	}
	return b.String()
}

// convict counts a fault and keeps it while there is room.
func (l *Ledger) convict(c Conviction) *Conviction {
	l.report.add(c)
	return &c
}

func (r *Report) add(c Conviction) {
	r.Kinds[c.Kind]++
	if len(r.Convictions) < maxConvictions {
		r.Convictions = append(r.Convictions, c)
	}
}

// suspects returns the suspicions in a fixed order.
func (l *Ledger) suspects() []*entry {
	var list []*entry
	for _, n := range l.blocks {
		if n.early != nil || n.lost != nil {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return slices.Compare(cmp.Or(a.early, a.lost).Key[:], cmp.Or(b.early, b.lost).Key[:])
	})
	return list
}

// settle turns suspicions into convictions for good.
func (l *Ledger) settle() {
	for _, n := range l.suspects() {
		for _, c := range []*Conviction{n.early, n.lost} {
			if c != nil {
				l.report.add(*c)
			}
		}
		n.early, n.lost = nil, nil
	}
}

// reportNow is the report as it is if no other event comes: suspicions, overdue
// transfers and counts that are not zero are in it, and stay open in the ledger.
func (l *Ledger) reportNow() Report {
	r := l.report
	r.Kinds = maps.Clone(r.Kinds)
	r.Convictions = slices.Clone(r.Convictions)
	r.Blocks = uint64(len(l.blocks))
	for _, n := range l.suspects() {
		for _, c := range []*Conviction{n.early, n.lost} {
			if c != nil {
				r.add(*c)
			}
		}
	}
	now := l.opt.Now()
	ids := slices.SortedFunc(maps.Keys(l.transfers), func(a, b transferID) int {
		return cmp.Or(cmp.Compare(a.who, b.who), cmp.Compare(a.id, b.id))
	})
	for _, id := range ids {
		t := l.transfers[id]
		if late := now.Sub(t.due) - l.opt.Grace; late > 0 {
			r.add(stuck(id, t, late))
		} else {
			r.Open++
		}
	}
	names := slices.SortedFunc(maps.Keys(l.counts), func(a, b countID) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name))
	})
	for _, id := range names {
		if n := l.counts[id]; n != 0 {
			r.add(Conviction{Kind: Leak, At: id.at, Text: fmt.Sprintf("%s is %d, and has to be 0", id.name, n)})
		}
	}
	return r
}

// Report judges what has been heard so far. Called at the end, when every
// process has reported, it is the verdict.
func (l *Ledger) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reportNow()
}
