package hub

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks/quota"
	"meridian/internal/invariants/leak"
	"meridian/wire"
)

func TestMain(m *testing.M) { leak.Main(m) }

// metadata is an agent's; another address is another life of it.
func metadata(agent, address string) []byte {
	field := func(tag, value string) string {
		return tag + string(binary.LittleEndian.AppendUint64(nil, uint64(len(value)))) + value + "|"
	}
	number := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	return []byte("nixlSerDes|" + field("Agent", agent) + field("Conns", number(1)) + field("t", "UCX") + field("c", address) + field("", "MemSection") + field("nixlSecElms", number(0)))
}

// of is a connection from an address.
func of(addr string, pid uint32) *client {
	a := netip.MustParseAddrPort(addr)
	return &client{source: quota.SourceOf(a.Addr()), from: addr, pid: pid}
}

func whole(agent string) plane.Key { return plane.Key{Label: plane.Whole, Agent: agent} }

func (t *table) mustPut(tt *testing.T, c *client, k plane.Key, b []byte) {
	tt.Helper()
	if changed, err := t.put(time.Time{}, c, k, b); err != nil || !changed {
		tt.Fatal(changed, err)
	}
}

func (t *table) names() (out []string) {
	for _, e := range t.entries() {
		out = append(out, e.Label+" "+e.Name)
	}
	return out
}

func TestAnEntryEndsWithItsOwner(t *testing.T) {
	book := &quota.Book{}
	tb := newTable(book)
	a := of("10.0.0.1:1", 1)
	tb.mustPut(t, a, whole("x"), metadata("x", "1"))
	tb.mustPut(t, a, plane.Key{Label: "half", Agent: "x"}, metadata("x", "1"))
	if changed, err := tb.put(time.Time{}, a, whole("x"), metadata("x", "1")); changed || err != nil {
		t.Error("said again:", changed, err)
	}
	tb.went(100, a)
	if got := tb.entries(); len(got) != 2 || got[0].Alive || got[0].From != "10.0.0.1:1" {
		t.Errorf("%+v", got)
	}
	if gone := tb.expire(100 + Grace - 1); len(gone) != 0 || tb.get(whole("x")) == nil {
		t.Error("it ended too soon")
	}
	if gone := tb.expire(100 + Grace); len(gone) != 1 || tb.get(whole("x")) != nil {
		t.Error("it stays:", tb.names())
	}
	for _, r := range []quota.Resource{quota.MetadataEntries, quota.MetadataBytes} {
		if n := book.Used(r, quota.Total); n != 0 {
			t.Errorf("%v: %d are still used", r, n)
		}
	}
}

func TestAProcessThatConnectsAgainKeepsItsEntries(t *testing.T) {
	for name, c := range map[string]struct {
		again *client
		keeps bool
	}{
		"the same process":         {of("10.0.0.1:2", 7), true},
		"another process":          {of("10.0.0.1:2", 8), false},
		"another host's with a 7 ": {of("10.0.0.2:2", 7), false},
	} {
		tb := newTable(&quota.Book{})
		a := of("10.0.0.1:1", 7)
		tb.mustPut(t, a, whole("x"), metadata("x", "1"))
		tb.went(0, a)
		if again := tb.came(c.again); again != c.keeps {
			t.Errorf("%s: it comes again: %v", name, again)
		}
		tb.expire(2 * Grace)
		if got := tb.get(whole("x")) != nil; got != c.keeps {
			t.Errorf("%s: the entry is there: %v", name, got)
		}
	}
}

func TestANameIsItsOwnersUntilItsConnectionEnds(t *testing.T) {
	tb := newTable(&quota.Book{})
	a, b := of("10.0.0.1:1", 1), of("10.0.0.2:1", 1)
	tb.mustPut(t, a, whole("x"), metadata("x", "1"))
	for _, c := range []*client{b, of("10.0.0.1:2", 1)} {
		for _, k := range []plane.Key{whole("x"), {Label: "half", Agent: "x"}} {
			if _, err := tb.put(time.Time{}, c, k, metadata("x", "2")); !errors.Is(err, wire.CodeExists) {
				t.Errorf("%s puts %v: %v", c.from, k, err)
			}
		}
		if _, err := tb.remove(c, whole("x")); !errors.Is(err, wire.CodeExists) {
			t.Errorf("%s deletes it: %v", c.from, err)
		}
	}
	tb.mustPut(t, a, plane.Key{Label: "half", Agent: "x"}, metadata("x", "1"))
	tb.went(0, a)
	if _, err := tb.remove(b, whole("x")); !errors.Is(err, wire.CodeDenied) {
		t.Error("somebody else deletes what is about to end:", err)
	}
	tb.mustPut(t, b, whole("x"), metadata("x", "2"))
	if got := tb.names(); !slices.Equal(got, []string{"metadata x"}) {
		t.Error("of the one before there is still:", got)
	}
	if there, err := tb.remove(b, whole("x")); !there || err != nil || len(tb.owners) != 0 {
		t.Error(there, err)
	}
	if there, err := tb.remove(b, whole("x")); there || err != nil {
		t.Error("a second time:", there, err)
	}
}

func TestMetadataThatAreNotTheAgentsAreRefused(t *testing.T) {
	all := metadata("x", "1")
	for n := range all {
		if err := check(whole("x"), all[:n]); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if err := check(whole("y"), all); !errors.Is(err, wire.CodeInvalid) || !strings.Contains(err.Error(), `"y"`) {
		t.Error("under another name:", err)
	}
	if err := check(whole("x"), all); err != nil {
		t.Error(err)
	}
}

func TestOneSourceCannotTakeAllEntries(t *testing.T) {
	book := &quota.Book{}
	book.SetLimit(quota.MetadataEntries, quota.Source, 2)
	book.SetLimit(quota.MetadataBytes, quota.Source, 1000)
	tb := newTable(book)
	a, b := of("10.0.0.1:1", 1), of("10.0.0.2:1", 1)
	tb.mustPut(t, a, whole("x"), metadata("x", "1"))
	tb.mustPut(t, a, whole("y"), metadata("y", "1"))
	if _, err := tb.put(time.Time{}, a, whole("z"), metadata("z", "1")); !errors.Is(err, wire.CodeTooMany) {
		t.Error("a third entry:", err)
	}
	if _, err := tb.put(time.Time{}, a, whole("y"), metadata("y", strings.Repeat("1", 1000))); !errors.Is(err, wire.CodeFull) {
		t.Error("too many bytes:", err)
	}
	if string(tb.get(whole("y"))) != string(metadata("y", "1")) {
		t.Error("a refused change has changed it")
	}
	tb.mustPut(t, a, whole("y"), metadata("y", "2"))
	tb.mustPut(t, b, whole("z"), metadata("z", "1"))
	if n := book.Used(quota.MetadataEntries, quota.Total); n != 3 {
		t.Errorf("%d entries are counted, want 3", n)
	}
}
