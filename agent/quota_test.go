package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
)

// ruleCase is how one limit is set, what it comes to, and how it is met.
type ruleCase struct {
	value string // of its key
	limit uint64
	meet  func(t *testing.T, n *testNode) error          // the refusal
	come  func(t *testing.T, n *testNode) (leave func()) // others that have to be there
}

const quotaArena = 16 << 20

var (
	quotaNS = testManifest("acme")
	quotaPs = []quota.Holder{{Kind: quota.Peer, Name: "a"}, {Kind: quota.Peer, Name: "b"}, {Kind: quota.Peer, Name: "c"}}
)

// takeMore asks for more at once than any limit of this test allows.
func takeMore(r quota.Rule) func(*testing.T, *testNode) error {
	return func(_ *testing.T, n *testNode) error {
		_, err := n.quota.Take(r.Resource, 1<<30, quota.Holder{Kind: r.Kind, Name: "somebody"})
		return err
	}
}

// reserve takes blocks for holders, one after the other, until one is refused.
func reserve(who ...quota.Holder) func(*testing.T, *testNode) error {
	return func(t *testing.T, n *testNode) error {
		var err error
		for _, w := range who {
			o := n.store.NewOwnerFor(w, 0)
			defer n.store.Drop(o)
			for range quotaArena / (256 << 10) / len(who) * 2 {
				if _, err = n.store.Reserve(o, quotaNS.Namespace(), []uint32{250 << 10}, time.Minute); err != nil {
					break
				}
			}
			if e, ok := errors.AsType[*quota.Error](err); !ok || e.Holder != w {
				break
			}
		}
		return err
	}
}

func twoEngines(_ *testing.T, n *testNode) func() {
	a := n.store.NewOwnerFor(quota.Holder{Kind: quota.Engine, Name: "1"}, 0)
	b := n.store.NewOwnerFor(quota.Holder{Kind: quota.Engine, Name: "2"}, 0)
	return func() { n.store.Drop(a); n.store.Drop(b) }
}

func twoTenants(t *testing.T, n *testNode) func() {
	var list []wire.Namespace
	for _, name := range []string{"b", "c"} {
		m := testManifest(name)
		if err := n.store.AddNamespace(m.Namespace(), m.TenantID()); err != nil {
			t.Fatal(err)
		}
		list = append(list, m.Namespace())
	}
	return func() {
		for _, ns := range list {
			n.store.RemoveNamespace(ns)
		}
	}
}

// holdAgain holds a block, ends the session, and asks for more in another one.
func holdAgain(t *testing.T, n *testNode) error {
	o := n.store.NewOwner(0)
	defer n.store.Drop(o)
	room, err := n.store.Reserve(o, quotaNS.Namespace(), []uint32{250 << 10}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c := blocks.Commit{Slot: room[0].Ref.Slot, Key: wire.Key{1}}
	if err := n.store.Ingest(o, make([]byte, 250<<10), &c); err != nil {
		t.Fatal(err)
	}
	hold := func() (blocks.Owner, blocks.Lease, error) {
		o := n.store.NewOwner(os.Getpid())
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := blocks.ProcessOf(fd)
		if err != nil {
			t.Fatal(err)
		}
		n.store.SetProcess(o, p)
		n.store.SetUser(o, quota.Holder{Kind: quota.Source, Name: "user 7"})
		l, err := n.store.Acquire(o, slices.Repeat([]blocks.View{{NS: quotaNS.Namespace(), Key: wire.Key{1}}}, 5), time.Minute, true)
		return o, l, err
	}
	first, l, err := hold()
	n.store.Drop(first)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := hold()
	n.store.Release(second, l)
	n.store.Drop(second)
	return err
}

// ring asks for a staging ring larger than anybody may have.
func ring(who ...quota.Holder) func(*testing.T, *testNode) error {
	return func(_ *testing.T, n *testNode) error {
		o := n.store.NewOwner(0)
		defer n.store.Drop(o)
		_, err := n.store.Staging(o, quotaArena, quotaArena, who...)
		return err
	}
}

// ruleCases has an entry for every limit: a new one cannot come without.
var ruleCases = map[quota.Rule]ruleCase{
	{Resource: quota.ArenaBytes, Kind: quota.Peer}:        {"0.125", quotaArena / 8, reserve(quotaPs[0]), nil},
	{Resource: quota.ArenaBytes, Kind: quota.Peers}:       {"0.25", quotaArena / 4, reserve(quotaPs...), nil},
	{Resource: quota.ArenaBytes, Kind: quota.Tenant}:      {"0.75", quotaArena / 4 * 3, reserve(quota.Total), nil},
	{Resource: quota.ArenaBytes, Kind: quota.Engine}:      {"0.5", quotaArena / 2, reserve(quota.Holder{Kind: quota.Engine, Name: "process 1"}), nil},
	{Resource: quota.GuaranteedBytes, Kind: quota.Engine}: {"1", quotaArena / 2, reserve(quotaPs[0]), twoEngines},
	{Resource: quota.GuaranteedBytes, Kind: quota.Tenant}: {"0.9", quotaArena * 9 / 10 / 3, reserve(quota.Total), twoTenants},
	{Resource: quota.EndedBytes, Kind: quota.Source}:      {"0.125", quotaArena / 8, holdAgain, nil},
	{Resource: quota.StagingBytes, Kind: quota.All}:       {"0.4", quotaArena * 4 / 10, ring(), nil},
	{Resource: quota.StagingBytes, Kind: quota.Tenant}:    {"0.75", quotaArena * 4 / 10 * 3 / 4, ring(quota.Holder{Kind: quota.Tenant, Name: "acme"}), nil},
	{Resource: quota.StagingBytes, Kind: quota.Engine}:    {"0.25", quotaArena * 4 / 10 / 4, ring(quota.Holder{Kind: quota.Engine, Name: "process 1"}), nil},
	{Resource: quota.Namespaces, Kind: quota.All}:         {"512", 512, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Peers}:       {"300", 300, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Peer}:        {"17", 17, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Tenant}:      {"18", 18, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Engine}:      {"19", 19, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Process}:     {"40", 40, nil, nil},
	{Resource: quota.Namespaces, Kind: quota.Source}:      {"41", 41, nil, nil},
	{Resource: quota.Engines, Kind: quota.All}:            {"", 32, nil, nil},
	{Resource: quota.Engines, Kind: quota.Process}:        {"5", 5, nil, nil},
	{Resource: quota.Engines, Kind: quota.Source}:         {"6", 6, nil, nil},
	{Resource: quota.Sessions, Kind: quota.Peer}:          {"5", 5, nil, nil},
	{Resource: quota.Sessions, Kind: quota.Source}:        {"6", 6, nil, nil},
	{Resource: quota.HalfOpen, Kind: quota.Source}:        {"7", 7, nil, nil},
	{Resource: quota.HalfOpen, Kind: quota.All}:           {"20", 20, nil, nil},
	{Resource: quota.HTTPConns, Kind: quota.Source}:       {"300", 300, nil, nil},
	{Resource: quota.HTTPConns, Kind: quota.All}:          {"400", 400, nil, nil},
	{Resource: quota.FrontConns, Kind: quota.Source}:      {"11", 11, nil, nil},
	{Resource: quota.FrontConns, Kind: quota.All}:         {"24", 24, nil, nil},
	{Resource: quota.MetadataConns, Kind: quota.Source}:   {"8", 8, nil, nil},
	{Resource: quota.MetadataConns, Kind: quota.All}:      {"21", 21, nil, nil},
	{Resource: quota.MetadataEntries, Kind: quota.Source}: {"9", 9, nil, nil},
	{Resource: quota.MetadataEntries, Kind: quota.All}:    {"22", 22, nil, nil},
	{Resource: quota.MetadataBytes, Kind: quota.Source}:   {`"3 MiB"`, 3 << 20, nil, nil},
	{Resource: quota.MetadataBytes, Kind: quota.All}:      {`"5 MiB"`, 5 << 20, nil, nil},
	{Resource: quota.DataConns, Kind: quota.Source}:       {"31", 31, nil, nil},
	{Resource: quota.DataConns, Kind: quota.All}:          {"62", 62, nil, nil},
	{Resource: quota.DataReads, Kind: quota.Source}:       {"33", 33, nil, nil},
	{Resource: quota.DataReads, Kind: quota.All}:          {"66", 66, nil, nil},
	{Resource: quota.HandshakeConns, Kind: quota.Source}:  {"35", 35, nil, nil},
	{Resource: quota.HandshakeConns, Kind: quota.All}:     {"70", 70, nil, nil},
	{Resource: quota.HandshakeBytes, Kind: quota.Source}:  {`"3 MiB"`, 3 << 20, nil, nil},
	{Resource: quota.HandshakeBytes, Kind: quota.All}:     {`"7 MiB"`, 7 << 20, nil, nil},
	{Resource: quota.RelayBytes, Kind: quota.Source}:      {`"4 MiB"`, 4 << 20, nil, nil},
	{Resource: quota.RelayBytes, Kind: quota.All}:         {`"9 MiB"`, 9 << 20, nil, nil},
	{Resource: quota.RelayCalls, Kind: quota.Source}:      {"37", 37, nil, nil},
	{Resource: quota.RelayCalls, Kind: quota.All}:         {"74", 74, nil, nil},
}

// Every limit has a configuration key with a default, shows in the metrics as it
// is set, at the start or by a reload, and a refusal names its key and counts.
func TestEveryLimitHasAKeyADefaultAMetricAndItsNameInTheRefusal(t *testing.T) {
	dir := shortDir(t)
	text := otherLimits(t)
	defaults := startNode(t, dir, "defaults", "")
	t.Run("at the start", func(t *testing.T) { limitsAreKept(t, defaults, startNode(t, dir, "set", text)) })
	t.Run("by a reload", func(t *testing.T) {
		n := startReloadable(t, dir, "reloaded", "")
		n.to(text)
		limitsAreKept(t, defaults, n.testNode)
		n.to("")
		for r := range ruleCases {
			labels := fmt.Sprintf(`{kind=%q,resource=%q}`, r.Kind, r.Resource)
			want, _ := defaults.series(t, "meridian_quota_limit"+labels)
			if got, _ := n.series(t, "meridian_quota_limit"+labels); got != want {
				t.Errorf("%s: back at its default the metric says %q, want %q", r.Key(), got, want)
			}
		}
	})
}

// otherLimits sets every limit to something else than its default.
func otherLimits(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("[quota]\n")
	for _, r := range quota.Rules() {
		c, ok := ruleCases[r]
		if !ok {
			t.Fatalf("%s of %s (%s) has no case in this test", r.Resource, r.Kind, r.Key())
		}
		if name, ok := strings.CutPrefix(r.Key(), "quota."); ok {
			fmt.Fprintf(&text, "%s = %s\n", name, c.value)
		}
	}
	return text.String()
}

func limitsAreKept(t *testing.T, defaults, n *testNode) {
	t.Helper()
	for _, x := range []*testNode{defaults, n} { // the self-test's tenant is guaranteed a part until it is through
		x.ready(t)
	}
	if err := n.store.AddNamespace(quotaNS.Namespace(), quotaNS.TenantID()); err != nil {
		t.Fatal(err)
	}
	whole := map[string]bool{"quota.tenant_arena_share": true, "quota.engine_arena_share": true, "quota.tenant_staging_share": true}
	for r, c := range ruleCases {
		leave := func() {}
		if c.come != nil {
			leave = c.come(t, n)
		}
		labels := fmt.Sprintf(`{kind=%q,resource=%q}`, r.Kind, r.Resource)
		if v, ok := n.series(t, "meridian_quota_limit"+labels); !ok || v != floatText(c.limit) {
			t.Errorf("%s = %s: the metric says %q, want %s", r.Key(), c.value, v, floatText(c.limit))
		}
		if v, ok := defaults.series(t, "meridian_quota_limit"+labels); ok == whole[r.Key()] || v == "0" {
			t.Errorf("%s: the default's metric is %q", r.Key(), v)
		}
		if _, ok := defaults.series(t, "meridian_quota_used"+labels); !ok {
			t.Errorf("%s: what is used does not show", r.Key())
		}
		meet := c.meet
		if meet == nil {
			meet = takeMore(r)
		}
		err := meet(t, n)
		if e, ok := errors.AsType[*quota.Error](err); !ok || e.Rule != r || !strings.Contains(err.Error(), r.Key()) || !strings.Contains(err.Error(), e.Holder.String()) {
			t.Errorf("%s: the refusal is %v", r.Key(), err)
		}
		if v, _ := n.series(t, "meridian_quota_refused_total"+labels); v == "0" || v == "" {
			t.Errorf("%s: refusals are %q", r.Key(), v)
		}
		leave()
	}
}

// floatText is a number as /metrics writes it.
func floatText(v uint64) string { return fmt.Sprint(float64(v)) }
