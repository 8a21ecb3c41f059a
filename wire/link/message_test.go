package link

import (
	"errors"
	"runtime"
	"testing"

	"meridian/wire"
)

var (
	commitKind  = newKind[Empty](TypeCommit, sample{"commit", Frame{Req: 31}, Empty{}})
	pingKind    = newKind[Empty](TypePing, sample{"ping", Frame{Req: 0x0102030405060708}, Empty{}})
	cancelKind  = newKind[Empty](TypeCancel, sample{"cancel", Frame{Req: 21}, Empty{}})
	processKind = newKind[Empty](TypeProcess, sample{"process", Frame{Req: 41}, Empty{}})
	abortKind   = newKind[Empty](TypeAbort, sample{"abort", Frame{Req: 31}, Empty{}})
)

func TestMessagesWithoutFields(t *testing.T) {
	for _, k := range []*kind{commitKind, pingKind, cancelKind, abortKind, processKind} {
		k.check(t)
	}
}

func TestEveryControlTypeHasSpecimens(t *testing.T) {
	for v := range 256 {
		if ty := Type(v); ty.Known() && ty != TypeData && kindOf(ty) == nil {
			t.Errorf("%v has none", ty)
		}
	}
}

// Counts are the attacker's: each is set to its limit, with the bytes of one
// record, and the parser must refuse it without memory for the rest.
func TestCountsAreCheckedAgainstTheBytesBeforeAllocating(t *testing.T) {
	for _, c := range []struct {
		k          *kind
		fixed, off int
		limit      uint32
	}{
		{hasKind, hasFixed, 4, MaxItems}, {pullKind, pullFixed, 8, MaxItems}, {tableKind, tableFixed, 16, MaxItems},
		{pushKind, pushFixed, 4, MaxItems}, {grantKind, grantFixed, 0, MaxItems}, {endKind, endFixed, 8, MaxItems},
		{releaseKind, releaseFixed, 0, MaxLeases}, {mapKind, mapFixed, 0, MaxSegs}, {acquireKind, acquireFixed, 12, MaxItems},
		{acquiredKind, acquiredFixed, 16, MaxItems}, {putKind, putFixed, 4, MaxItems}, {beginKind, beginFixed, 20, MaxPrompt},
		{tokensKind, tokensFixed, 4, MaxTokens}, {windowKind, windowFixed, 8, MaxRanges}, {windowEndKind, windowEndFixed, 12, MaxItems},
		{loadKind, loadFixed, 12, MaxItems}, {loadedKind, loadedFixed, 20, MaxItems}, {reserveKind, reserveFixed, 8, MaxItems},
		{reservedKind, reservedFixed, 8, MaxItems}, {fillKind, fillFixed, 12, MaxItems}, {putAtKind, putAtFixed, 4, MaxItems},
		{resumeKind, resumeFixed, 24, MaxPrompt}, {resumeKind, resumeFixed, 28, MaxPrompt}, {evictedKind, evictedFixed, 0, MaxItems},
	} {
		for _, n := range []uint32{c.limit, c.limit + 1, 1<<32 - 1} {
			b := make([]byte, c.fixed+pushItemLen)
			le.PutUint32(b[c.off:], n)
			var err error
			used := allocated(func() { _, err = c.k.parse(b) })
			var fe *FrameError
			if !errors.As(err, &fe) || fe.Code != wire.CodeLength && fe.Code != wire.CodeInvalid {
				t.Errorf("%v with %d records: %v", c.k.t, n, err)
			}
			if used > 4096 {
				t.Errorf("%v with %d records: %d bytes allocated", c.k.t, n, used)
			}
		}
	}
}

// allocated is how many bytes f takes from the heap, at most.
func allocated(f func()) uint64 {
	least := ^uint64(0)
	for range 3 { // another goroutine of the runtime may allocate meanwhile
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		f()
		runtime.ReadMemStats(&b)
		least = min(least, b.TotalAlloc-a.TotalAlloc)
	}
	return least
}
