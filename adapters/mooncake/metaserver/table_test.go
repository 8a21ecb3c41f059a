package metaserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/blocks/quota"
)

// bench is a table with a clock of its own.
type bench struct {
	*table
	t   *testing.T
	now time.Duration
}

func newBench(t *testing.T) *bench { return &bench{table: newTable(&quota.Book{}), t: t} }

func endpointOf(name string) metadata.Key {
	return metadata.Key{Kind: metadata.KindEndpoint, Name: name}
}

func rpc(host string, port int) string {
	return fmt.Sprintf(`{"ip_or_host_name":%q,"rpc_port":%d}`, host, port)
}

// says is a PUT, with what became of the owner that it asks about.
func (b *bench) says(source string, k metadata.Key, body string, epoch uint64, is metadata.Outcome) error {
	b.t.Helper()
	c := change{source: source, key: k, epoch: epoch}
	if err := c.says([]byte(body)); err != nil {
		return err
	}
	q, err := b.put(b.now, c)
	if q == nil {
		return err
	}
	if !is.Gone() {
		return taken(q, is)
	}
	c.gone = q
	if q, err = b.put(b.now, c); q != nil {
		b.t.Fatal("asked a second time about the same owner")
	}
	return err
}

func status(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Status
	}
	return 0
}

func TestWhoMayHaveANameThatIsTaken(t *testing.T) {
	old, seg := rpc("10.0.0.1", 1000), `{"name":"n"}`
	for _, c := range []struct {
		what   string
		source string
		kind   metadata.Kind
		body   string
		epoch  uint64
		is     metadata.Outcome
		want   int
		reason string
	}{
		{"the same words again", "a", metadata.KindEndpoint, old, 0, metadata.Answers, 200, ""},
		{"the same words from another address of the node", "b", metadata.KindEndpoint, old, 0, metadata.Answers, 200, ""},
		{"another process of the host, the first answers", "a", metadata.KindEndpoint, rpc("10.0.0.1", 1001), 0, metadata.Answers, 409, "owned"},
		{"another process of the host, the first is silent", "a", metadata.KindEndpoint, rpc("10.0.0.1", 1001), 0, metadata.Silent, 409, "owned"},
		{"another process of the host, the first is gone", "a", metadata.KindEndpoint, rpc("10.0.0.1", 1001), 0, metadata.Refused, 200, ""},
		{"another host, the first answers", "b", metadata.KindEndpoint, rpc("10.0.0.2", 1000), 0, metadata.Answers, 409, "owned"},
		{"another host, the first cannot be reached", "b", metadata.KindEndpoint, rpc("10.0.0.2", 1000), 0, metadata.Unreachable, 200, ""},
		{"another host's segment, the first answers", "b", metadata.KindSegment, seg, 0, metadata.Answers, 409, "owned"},
		{"its own segment", "a", metadata.KindSegment, seg, 0, metadata.Answers, 200, ""},
		{"its own segment in the words of an earlier start", "a", metadata.KindSegment, seg, 4, metadata.Answers, 409, "stale"},
		{"an earlier start of a dead owner", "a", metadata.KindEndpoint, `{"ip_or_host_name":"10.0.0.1","rpc_port":1,"meridian_epoch":4}`, 0, metadata.Refused, 409, "stale"},
		{"a later start at the same address", "a", metadata.KindEndpoint, `{"ip_or_host_name":"10.0.0.1","rpc_port":1000,"meridian_epoch":6}`, 0, metadata.Answers, 200, ""},
		{"a later start that takes the name of one that answers", "a", metadata.KindEndpoint, `{"ip_or_host_name":"10.0.0.1","rpc_port":1,"meridian_epoch":6}`, 0, metadata.Answers, 409, "owned"},
		{"an endpoint without a port", "b", metadata.KindEndpoint, `{"ip_or_host_name":"10.0.0.1"}`, 0, metadata.Refused, 400, "invalid"},
		{"a segment of another name", "a", metadata.KindSegment, `{"name":"m"}`, 0, metadata.Answers, 400, "invalid"},
		{"a segment that is no object", "a", metadata.KindSegment, `["n"]`, 0, metadata.Answers, 400, "invalid"},
		{"a segment that is cut off", "a", metadata.KindSegment, `{"name":"n"`, 0, metadata.Answers, 400, "invalid"},
	} {
		b := newBench(t)
		if err := b.says("a", endpointOf("n"), old, 5, metadata.Answers); err != nil {
			t.Fatal(err)
		}
		err := b.says(c.source, metadata.Key{Kind: c.kind, Name: "n"}, c.body, c.epoch, c.is)
		if got := status(err); got != c.want {
			t.Errorf("%s: %d (%v), want %d", c.what, got, err, c.want)
		}
		if r, ok := errors.AsType[*Refusal](err); ok && r.Reason != c.reason {
			t.Errorf("%s: refused for %s, want %s", c.what, r.Reason, c.reason)
		}
		now, there := b.get(metadata.Key{Kind: c.kind, Name: "n"})
		if changed := there && string(now) == c.body; changed != (c.want == 200) {
			t.Errorf("%s: status %d, and the value is %s", c.what, c.want, now)
		}
	}
}

func TestANewOwnerDoesNotInheritTheSegmentOfTheOld(t *testing.T) {
	b := newBench(t)
	_ = b.says("a", endpointOf("n"), rpc("h", 1), 0, metadata.Answers)
	_ = b.says("a", metadata.Key{Name: "n"}, `{"name":"n"}`, 0, metadata.Answers)
	if err := b.says("a", endpointOf("n"), rpc("h", 2), 0, metadata.Refused); err != nil {
		t.Fatal(err)
	}
	if v, there := b.get(metadata.Key{Name: "n"}); there {
		t.Errorf("the old segment is still there: %s", v)
	}
	if b.ended["replaced"] != 1 {
		t.Error(b.ended)
	}
}

// A port that a dead engine had is another engine's now: who asks the dead one would
// hear that it lives.
func TestAPortHasOneOwnerAHost(t *testing.T) {
	b := newBench(t)
	_ = b.says("a", endpointOf("dead"), rpc("h", 1), 0, metadata.Answers)
	_ = b.says("b", endpointOf("elsewhere"), rpc("h", 1), 0, metadata.Answers)
	if err := b.says("a", endpointOf("n"), rpc("h", 1), 0, metadata.Answers); err != nil {
		t.Fatal(err)
	}
	if _, there := b.get(endpointOf("dead")); there {
		t.Error("two names of one host have one port")
	}
	if _, there := b.get(endpointOf("elsewhere")); !there {
		t.Error("a stranger's word ended another host's entry")
	}
}

func TestWhoMayDelete(t *testing.T) {
	for _, c := range []struct {
		what, source string
		epoch        uint64
		gone         bool
		want         int
	}{
		{"its own host", "a", 0, false, 200},
		{"an earlier start", "a", 4, false, 409},
		{"another host while it lives", "b", 0, false, 0},
		{"another host when it is gone", "b", 0, true, 200},
	} {
		b := newBench(t)
		_ = b.says("a", endpointOf("n"), rpc("h", 1), 5, metadata.Answers)
		ch := change{source: c.source, key: endpointOf("n"), epoch: c.epoch}
		q, err := b.remove(ch)
		if q != nil && c.gone {
			ch.gone = q
			q, err = b.remove(ch)
		}
		if (q != nil) != (c.want == 0) || q == nil && status(err) != c.want {
			t.Errorf("%s: question %v, %v, want %d", c.what, q, err, c.want)
		}
	}
	if _, err := newBench(t).remove(change{source: "a", key: endpointOf("n")}); status(err) != 404 {
		t.Error(err)
	}
}

// expiry plays answers that come AskEvery apart, and returns how many it took.
func (b *bench) expiry(is metadata.Outcome, alone bool, most int) int {
	for i := range most {
		b.now += AskEvery
		due := b.due(b.now)
		if len(due) != 1 {
			b.t.Fatalf("%d to ask, want 1", len(due))
		}
		if b.heard(b.now, due[0], is, alone) {
			return i + 1
		}
	}
	return 0
}

func TestAnEntryEndsForWhatItsOwnerDoesNotSayAndNeverForItsAge(t *testing.T) {
	for _, c := range []struct {
		is    metadata.Outcome
		alone bool
		want  int
	}{
		{metadata.Answers, false, 0}, {metadata.Refused, false, maxRefused}, {metadata.Silent, false, maxSilent},
		{metadata.Unreachable, false, maxUnreachable}, {metadata.Unreachable, true, 0}, // it is rather we who have no network
	} {
		b := newBench(t)
		_ = b.says("a", endpointOf("n"), rpc("h", 1), 0, metadata.Answers)
		if got := b.expiry(c.is, c.alone, 1000); got != c.want {
			t.Errorf("it %s, alone %v: ended after %d answers, want %d", c.is, c.alone, got, c.want)
		}
	}
	b := newBench(t)
	_ = b.says("a", endpointOf("n"), rpc("h", 1), 0, metadata.Answers)
	for range 100 { // an answer between wipes out what was before
		if b.expiry(metadata.Refused, false, maxRefused-1)+b.expiry(metadata.Answers, false, 1) != 0 {
			t.Fatal("it ended though it answered")
		}
	}
}

func TestAnAnswerForAnEarlierOwnerCountsForNothing(t *testing.T) {
	b := newBench(t)
	_ = b.says("a", endpointOf("n"), rpc("h", 1), 0, metadata.Answers)
	b.now += AskEvery
	q := b.due(b.now)[0]
	_ = b.says("a", endpointOf("n"), rpc("h", 2), 0, metadata.Refused)
	for range 10 {
		if b.heard(b.now, q, metadata.Refused, false) {
			t.Fatal("the new owner ended for the old one's silence")
		}
	}
	c := change{source: "b", key: endpointOf("n"), gone: &q}
	if err := c.says([]byte(rpc("h", 3))); err != nil {
		t.Fatal(err)
	}
	if q, _ := b.put(b.now, c); q == nil {
		t.Error("what was found out about the old owner took the new one's name")
	}
}

func TestASourceTakesItsShareAndLeavesTheRest(t *testing.T) {
	b := newBench(t)
	b.book.SetLimit(quota.MetadataEntries, quota.Source, 3)
	b.book.SetLimit(quota.MetadataEntries, quota.All, 5)
	b.book.SetLimit(quota.MetadataBytes, quota.Source, 1000)
	fill := func(source string) (n int, err error) {
		for ; err == nil; n++ {
			err = b.says(source, endpointOf(fmt.Sprint(source, n)), rpc("h"+source, n+1), 0, metadata.Answers)
		}
		return n - 1, err
	}
	n, err := fill("a")
	if n != 3 || status(err) != http.StatusInsufficientStorage || !strings.Contains(err.Error(), "quota.source_metadata_entries") {
		t.Errorf("a source got %d, then %v", n, err)
	}
	if n, _ := fill("b"); n != 2 {
		t.Errorf("the next source got %d of what all may have, want 2", n)
	}
	big := `{"name":"a0","x":"` + strings.Repeat("x", 1000) + `"}`
	if _, err := b.remove(change{source: "a", key: endpointOf("a1")}); err != nil {
		t.Fatal(err)
	}
	if err := b.says("a", metadata.Key{Name: "a0"}, big, 0, metadata.Answers); !strings.Contains(fmt.Sprint(err), "quota.source_metadata_bytes") {
		t.Error("bytes:", err)
	}
	if _, there := b.get(endpointOf("a0")); !there {
		t.Error("a refused value changed something")
	}
}

// Whatever happens: a value's share is held exactly as long as the value is there.
func TestSharesAreWhatIsThere(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	b := newBench(t)
	b.book.SetLimit(quota.MetadataEntries, quota.Source, 4)
	b.book.SetLimit(quota.MetadataBytes, quota.All, 400)
	for range 20000 {
		name, source := fmt.Sprint("n", rng.IntN(5)), string('a'+rune(rng.IntN(3)))
		k := metadata.Key{Kind: metadata.Kind(rng.IntN(2)), Name: name}
		body := rpc("h"+source, 1+rng.IntN(3))
		if k.Kind == metadata.KindSegment {
			body = fmt.Sprintf(`{"name":%q,"x":%q}`, name, strings.Repeat("x", rng.IntN(40)))
		}
		switch rng.IntN(4) {
		case 0:
			c := change{source: source, key: k}
			if q, _ := b.remove(c); q != nil && rng.IntN(2) == 0 {
				c.gone = q
				_, _ = b.remove(c)
			}
		case 1:
			b.now += AskEvery
			for _, q := range b.due(b.now) {
				b.heard(b.now, q, metadata.Outcome(rng.IntN(int(metadata.Outcomes))), rng.IntN(2) == 0)
			}
		default:
			_ = b.says(source, k, body, uint64(rng.IntN(3)), metadata.Outcome(rng.IntN(int(metadata.Outcomes))))
		}
		entries, bytes := 0, 0
		for _, o := range b.owners {
			for kind, v := range o.values {
				if v != nil {
					entries, bytes = entries+1, bytes+len(v.body)+len(metadata.Key{Kind: metadata.Kind(kind), Name: o.node.name}.String())
				}
			}
			if o.values == ([2]*value{}) {
				t.Fatal("an owner of nothing")
			}
		}
		if e, n := b.book.Used(quota.MetadataEntries, quota.Total), b.book.Used(quota.MetadataBytes, quota.Total); e != uint64(entries) || n != uint64(bytes) {
			t.Fatalf("%d entries with %d bytes are there, %d with %d are counted", entries, bytes, e, n)
		}
	}
}
