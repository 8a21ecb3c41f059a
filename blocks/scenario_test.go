package blocks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/blocks/quota"
	"meridian/wire"
)

// seeded is a random source for tests: the same seed, the same leases.
func seeded(n byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{n}) }

func nsOf(name string) (ns wire.Namespace) { copy(ns[:], "ns:"+name); return }
func keyOf(name string) (k wire.Key)       { copy(k[:], name); return }
func tenantOf(name string) (t [32]byte)    { copy(t[:], "tenant:"+name); return }
func nameOf(k wire.Key) string             { return strings.TrimRight(string(k[:]), "\x00") }
func tierOf(name string) (wire.Tier, error) {
	for t, n := range []string{"think-done", "think", "output"} {
		if n == name {
			return wire.Tier(t), nil
		}
	}
	return 0, fmt.Errorf("unknown tier %q", name)
}

func tierName(t wire.Tier) string { return [...]string{"think-done", "think", "output"}[t] }

// scenario runs the text files of testdata/scenario: a command, what it takes, and what
// the core answered. Segments are granted as the core asks for them.
type scenario struct {
	c      *Core
	now    time.Duration
	owners map[string]Owner
	leases map[string]Lease
	names  map[Lease]string
	slots  map[string]View // reservations, by the name given to each
	quiet  map[string]func()
	words  map[[2]uint32]uint64
}

func newScenario() *scenario {
	return &scenario{
		owners: map[string]Owner{}, leases: map[string]Lease{}, names: map[Lease]string{},
		slots: map[string]View{}, quiet: map[string]func(){}, words: map[[2]uint32]uint64{},
	}
}

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenario", func(t *testing.T, path string) {
		s := newScenario()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if s.c != nil {
				for _, g := range s.c.Gens() {
					s.words[[2]uint32{g.Seg, g.Off}] = g.Word
				}
				if err := s.c.check(); err != nil {
					d.Fatalf(t, "after %s: %v", d.Cmd, err)
				}
			}
			return out
		})
	})
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	commands := map[string]func(args) string{
		"new": s.open, "namespace": s.namespace, "owner": s.owner, "drop": s.drop, "gone": s.gone,
		"reserve": s.reserve, "room": s.room, "commit": s.commit, "begin": s.begin, "finish": s.finish,
		"abort": s.abort, "lookup": s.lookup, "touch": s.touch, "acquire": s.acquire, "renew": s.renew,
		"release": s.release, "retier": s.retier, "discard": s.discard,
		"forget": s.forget, "loose": s.loose, "quiet": s.endLoose, "moved": s.moved, "step": s.step,
		"verify": s.verify, "stats": s.stats, "stat": s.stat, "words": s.wordsOf, "segments": s.segments,
		"quota": s.quota, "watch": s.watch, "news": s.news, "follow": s.follow, "settle": s.settle,
		"pin": s.pin, "unpin": s.unpin, "detach": s.detach, "pulled": s.pulled,
	}
	f := commands[d.Cmd]
	if f == nil {
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	out := f(a)
	if out == "" {
		out = "ok"
	}
	return strings.TrimRight(out, "\n") + "\n"
}

func (s *scenario) open(a args) string {
	frac, err := strconv.ParseFloat(a.str("think", "1"), 64)
	if err != nil {
		a.d.Fatalf(a.t, "think: %v", err)
	}
	s.c, err = NewCore(CoreConfig{
		Capacity: a.num("capacity", 16384), ExtentBytes: a.num("extent", 8192), ThinkFraction: frac,
		HoldBytes: a.num("hold-bytes", 1<<20), RemoteBlocks: int(a.num("remote", 16)),
		Rand: seeded(1),
		Shares: Shares{
			Peer: a.share("peer-share"), Peers: a.share("peers-share"), Engine: a.share("engine-share"), Tenant: a.share("tenant-share"),
			UserEnded: a.share("user-ended"), EngineGuaranteed: a.share("engine-guaranteed"), TenantGuaranteed: a.share("tenant-guaranteed"),
			ReserveTime: a.dur("reserve-time", "0s"), LeaseAge: a.dur("lease-age", "0s"),
		},
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("extents=%d segment-extents=%d pitch=%d min-body=%d max-body=%d",
		s.c.geo.extents, s.c.geo.segExtents, s.c.geo.pitch, s.c.geo.minBody, s.c.geo.maxBody)
}

func (s *scenario) namespace(a args) string {
	return errText(s.c.AddNamespace(nsOf(a.d.CmdArgs[0].Key), tenantOf(a.str("tenant", "t"))))
}

// owner NAME... [process | process=NAME [user=NAME]] [peer=NAME | engine=NAME | of=OWNER]:
// who they work for, or the owner whose family they are of
func (s *scenario) owner(a args) string {
	who := quota.Total
	if name := a.str("peer", ""); name != "" {
		who = quota.Holder{Kind: quota.Peer, Name: name}
	}
	if name := a.str("engine", ""); name != "" {
		who = quota.Holder{Kind: quota.Engine, Name: name}
	}
	for _, arg := range a.d.CmdArgs {
		switch head := a.str("of", ""); {
		case arg.Key == "process" || arg.Key == "user" || arg.Key == "peer" || arg.Key == "engine" || arg.Key == "of":
		case head != "":
			s.owners[arg.Key] = s.c.NewMember(s.owners[head], a.d.HasArg("process"))
		default:
			s.owners[arg.Key] = s.c.NewOwnerFor(who, a.d.HasArg("process"))
		}
		if name := a.str("process", ""); name != "" {
			c := Client{Process: name}
			if user := a.str("user", ""); user != "" {
				c.User = quota.Holder{Kind: quota.Source, Name: "user " + user}
			}
			s.c.SetClient(s.owners[arg.Key], c)
		}
	}
	return ""
}

// quota says what the accounts say.
func (s *scenario) quota(args) string {
	var out strings.Builder
	for _, r := range s.c.Quota() {
		fmt.Fprintf(&out, "%s %s: most=%d holders=%d limit=%d refused=%d\n", r.Resource, r.Kind, r.Used, r.Holders, r.Limit, r.Refused)
	}
	return out.String()
}

func (s *scenario) drop(a args) string {
	if s.c.Drop(s.owners[a.d.CmdArgs[0].Key]) {
		return "holds stay"
	}
	return ""
}

func (s *scenario) gone(a args) string {
	s.c.Gone(s.owners[a.d.CmdArgs[0].Key])
	return ""
}

// reserve owner=o ns=n slots=(a,b) size=1000|sizes=(..) tier=output ttl=10s
func (s *scenario) reserve(a args) string {
	names := a.list("slots")
	sizes := make([]uint32, len(names))
	for i := range sizes {
		sizes[i] = uint32(a.num("size", 1000))
	}
	for i, v := range a.list("sizes") {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			a.d.Fatalf(a.t, "sizes: %v", err)
		}
		sizes[i] = uint32(n)
	}
	var out strings.Builder
	for {
		v, err := s.c.Reserve(s.now, s.owners[a.str("owner", "o")], nsOf(a.str("ns", "n")), a.tier("tier", "output"),
			sizes, a.dur("ttl", "10s"), true, nil)
		var g *GrowError
		if errors.As(err, &g) {
			n := s.c.SegmentExtents()
			fmt.Fprintf(&out, "segment %d of %d extents\n", s.c.AddSegment(g.Tenant, n), n)
			continue
		}
		if err != nil {
			return out.String() + errText(err)
		}
		for i := range v {
			s.slots[names[i]] = v[i]
			fmt.Fprintf(&out, "%s: slot=%d gen=%d seg=%d off=%d cap=%d\n", names[i], v[i].Ref.Slot, v[i].Ref.Gen, v[i].Seg, v[i].Off, v[i].Cap)
		}
		return out.String()
	}
}

func (s *scenario) room(a args) string {
	var out strings.Builder
	for _, n := range a.list("slots") {
		fmt.Fprintf(&out, "%s: %v\n", n, s.c.Room(s.slots[n]))
	}
	return out.String()
}

func (s *scenario) commits(a args) []Commit {
	var out []Commit
	keys := a.keys()
	for i, n := range a.list("slots") {
		key := keyOf(n)
		if i < len(keys) {
			key = keys[i]
		}
		k := Commit{
			Slot: s.slots[n].Ref.Slot, Gen: s.slots[n].Ref.Gen, Key: key, Tier: a.tier("tier", "output"),
			Len: uint32(a.num("len", 1000)), Att: wire.AttestProducer,
			Live: a.d.HasArg("live"), Transient: a.d.HasArg("transient"), Pin: s.pinOf(a, "pin"),
		}
		if ns := a.str("ns", ""); ns != "" {
			k.NS = nsOf(ns)
		}
		out = append(out, k)
	}
	return out
}

func commitText(a args, items []Commit) string {
	var out strings.Builder
	for i, n := range a.list("slots") {
		fmt.Fprintf(&out, "%s: %s\n", n, errText(items[i].Err))
	}
	return out.String()
}

func (s *scenario) commit(a args) string {
	items := s.commits(a)
	s.c.Commit(s.now, s.owners[a.str("owner", "o")], items)
	return commitText(a, items)
}

func (s *scenario) begin(a args) string {
	items := s.commits(a)
	for i := range items {
		items[i].Err = s.c.Begin(s.now, s.owners[a.str("owner", "o")], &items[i])
	}
	return commitText(a, items)
}

func (s *scenario) finish(a args) string {
	items := s.commits(a)
	for i := range items {
		var failed error
		if a.d.HasArg("bad") {
			failed = &wire.ChecksumError{}
		}
		s.c.Finish(s.now, &items[i], wire.Header{BodyLen: items[i].Len, Tier: items[i].Tier}, failed)
	}
	return commitText(a, items)
}

func (s *scenario) abort(a args) string {
	var ids []uint32
	for _, n := range a.list("slots") {
		ids = append(ids, s.slots[n].Ref.Slot)
	}
	s.c.Abort(s.owners[a.str("owner", "o")], ids)
	return ""
}

func viewText(v *View) string {
	out := nameOf(v.Key) + ":"
	if v.Err != nil {
		out += " " + errText(v.Err)
	} else {
		out += fmt.Sprintf(" slot=%d gen=%d %s refs=%d", v.Ref.Slot, v.Ref.Gen, tierName(v.Tier), v.Refs)
	}
	if v.Where != (Loc{}) {
		out += fmt.Sprintf(" copy=%s/%d", v.Where.Fabric, v.Where.H[0])
	}
	return out + "\n"
}

func (s *scenario) lookup(a args) string {
	keys := a.keys()
	v := make([]View, len(keys))
	var out strings.Builder
	fmt.Fprintf(&out, "hits=%d\n", s.c.Lookup(nsOf(a.str("ns", "n")), keys, v))
	for i := range v {
		v[i].Key = keys[i]
		out.WriteString(viewText(&v[i]))
	}
	return out.String()
}

// watch [off]: what is published is listed from now on, or not any more.
func (s *scenario) watch(a args) string {
	s.c.Watch(!a.d.HasArg("off"))
	return ""
}

// news says what was published since the last time.
func (s *scenario) news(args) string {
	var out strings.Builder
	for _, p := range s.c.News() {
		out.WriteString(nameOf(p.Key) + "\n")
	}
	return out.String()
}

func (s *scenario) touch(a args) string {
	return fmt.Sprintf("hits=%d", s.c.Touch(nsOf(a.str("ns", "n")), a.keys()))
}

// acquire lease=l owner=o keys=(a,b) ttl=10s [hold] [ref]: with ref, the keys
// name earlier reservations, and their published references are used.
func (s *scenario) acquire(a args) string {
	keys := a.keys()
	v := make([]View, len(keys))
	for i := range v {
		v[i] = View{NS: nsOf(a.str("ns", "n")), Key: keys[i]}
		if a.d.HasArg("ref") {
			v[i].Ref, v[i].Key = s.slots[nameOf(keys[i])].Ref, wire.Key{}
			v[i].Ref.Gen++
		}
	}
	l, err := s.c.Acquire(s.now, s.owners[a.str("owner", "o")], v, a.dur("ttl", "10s"), a.d.HasArg("hold"))
	if err != nil {
		return errText(err)
	}
	name := a.str("lease", "l")
	s.leases[name] = l
	var out strings.Builder
	if l == (Lease{}) {
		out.WriteString("no lease\n")
	} else {
		s.names[l] = name
	}
	for i := range v {
		v[i].Key = keys[i]
		out.WriteString(viewText(&v[i]))
	}
	return out.String()
}

func (s *scenario) renew(a args) string {
	return errText(s.c.Renew(s.now, s.owners[a.str("owner", "o")], s.leases[a.str("lease", "l")], a.dur("ttl", "10s")))
}

func (s *scenario) release(a args) string {
	s.c.Release(s.owners[a.str("owner", "o")], s.leases[a.str("lease", "l")])
	return ""
}

func (s *scenario) retier(a args) string {
	s.c.Retier(nsOf(a.str("ns", "n")), a.keys(), a.tier("tier", "think-done"))
	return ""
}

func (s *scenario) discard(a args) string {
	return fmt.Sprintf("freed=%d", s.c.Discard(nsOf(a.str("ns", "n")), a.keys()))
}

func (s *scenario) forget(a args) string {
	s.c.Forget(nsOf(a.str("ns", "n")), a.keys())
	return ""
}

func (s *scenario) loose(a args) string {
	var ids []uint32
	for _, n := range a.list("slots") {
		ids = append(ids, s.slots[n].Ref.Slot)
	}
	s.quiet[a.str("as", "q")] = s.c.Loose(ids)
	return ""
}

func (s *scenario) endLoose(a args) string {
	s.quiet[a.str("as", "q")]()
	return ""
}

// moved slots=(a) fabric=f h=7 [failed]
func (s *scenario) moved(a args) string {
	var list []Moved
	for _, n := range a.list("slots") {
		m := Moved{Slot: s.slots[n].Ref.Slot, Gen: s.slots[n].Ref.Gen + 1, Loc: Loc{Fabric: a.str("fabric", "f"), H: [32]byte{byte(a.num("h", 1))}}}
		if a.d.HasArg("failed") {
			m.Err = wire.CodeUnreachable
		}
		list = append(list, m)
	}
	s.c.Moved(list)
	return s.ready(Input{})
}

// step [after=1s] [free=bytes]
func (s *scenario) step(a args) string {
	s.now += a.dur("after", "0s")
	return s.ready(Input{Free: a.num("free", 0)})
}

func (s *scenario) ready(in Input) string {
	var r Ready
	s.c.Step(s.now, in, &r)
	var out strings.Builder
	for _, e := range r.Evicted {
		fmt.Fprintf(&out, "evicted slot=%d gen=%d %s live=%v\n", e.Ref.Slot, e.Ref.Gen, tierName(e.Tier), e.Live)
	}
	for _, l := range r.Lapsed {
		fmt.Fprintf(&out, "lapsed %s\n", s.names[l])
	}
	for _, l := range r.Aged {
		fmt.Fprintf(&out, "aged %s\n", s.names[l])
	}
	for _, seg := range s.c.Returned() {
		fmt.Fprintf(&out, "returned segment %d\n", seg)
	}
	out.WriteString(s.told())
	fmt.Fprintf(&out, "now=%v next=%v\n", s.now, r.Next)
	return out.String()
}

// verify keys=(a) [bad]
func (s *scenario) verify(a args) string {
	o := s.c.NewOwner(false)
	defer s.c.Drop(o)
	var out strings.Builder
	for _, k := range a.keys() {
		v := View{NS: nsOf(a.str("ns", "n")), Key: k}
		if err := s.c.Borrow(o, &v); err != nil {
			fmt.Fprintf(&out, "%s: %s\n", nameOf(k), errText(err))
			continue
		}
		out.WriteString(viewText(&v))
		s.c.GiveBack(v.Ref.Slot, a.d.HasArg("bad"))
	}
	return out.String()
}

func (s *scenario) stats(args) string {
	st := s.c.Stats()
	return fmt.Sprintf("used=%d free=%d segments=%d blocks=%v transient=%d reserved=%d quarantined=%d\n"+
		"leases=%d holds=%d hold-bytes=%d aged=%d owners=%d orphans=%d remote=%d leaked=%d\n"+
		"evictions=%v live=%d offloaded=%d commits=%d exists=%d expired=%d aborted=%d full=%d lapsed=%d bad=%d lookups=%d hits=%d\n",
		st.Used, st.Free, st.Segments, st.Blocks, st.Transient, st.Reserved, st.Quarantined,
		st.Leases, st.Holds, st.HoldBytes, st.AgedHolds, st.Owners, st.Orphans, st.Remote, st.Leaked,
		st.Evictions, st.LiveEvictions, st.Offloaded, st.Commits, st.Exists, st.ReservationsExpired,
		st.ReservationsAborted, st.Full, st.LeasesLapsed, st.ChecksumFailures, st.Lookups, st.Hits)
}

func (s *scenario) stat(a args) string {
	var out strings.Builder
	for _, k := range a.keys() {
		v, _ := s.c.Stat(k)
		out.WriteString(viewText(&v))
	}
	return out.String()
}

// words prints the generation words of slots named by reserve.
func (s *scenario) wordsOf(a args) string {
	for _, g := range s.c.Gens() {
		s.words[[2]uint32{g.Seg, g.Off}] = g.Word
	}
	var out strings.Builder
	for _, n := range a.list("slots") {
		v := s.slots[n]
		fmt.Fprintf(&out, "%s: reserved as %d, word %d\n", n, v.Ref.Gen, s.words[[2]uint32{v.Seg, v.GenOff}])
	}
	return out.String()
}

func (s *scenario) segments(a args) string {
	ids := s.c.Segments(tenantOf(a.str("tenant", "t")))
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return fmt.Sprint(ids)
}

func errText(err error) string {
	if err == nil {
		return "ok"
	}
	return fmt.Sprintf("%s (%v)", wire.CodeOf(err), err)
}
