package engine_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
	"meridian/wire/link"
)

func init() { roles["member"] = memberRole }

var groupSecret = [link.GroupSecret]byte{1, 2, 3}

func groupOptions(agent byte) client.Options {
	return client.Options{Group: &client.Group{Agent: [16]byte{agent}, Inc: 1, Secret: &groupSecret}}
}

// stages are where a member can be when it is killed. Each returns when the daemon
// has what the stage is about.
var stages = map[string]func(e *client.Engine, ns client.NS) error{
	"joined": func(*client.Engine, client.NS) error { return nil },
	"opened": func(*client.Engine, client.NS) error { return nil },
	"holds": func(e *client.Engine, ns client.NS) error {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{Hold: true})
		return errors.Join(err, l.Blocks[0].Err)
	},
	"leases": func(e *client.Engine, ns client.NS) error {
		l, err := e.Acquire(ctx, ns, []wire.Key{keyOf("a")}, client.AcquireOptions{})
		return errors.Join(err, l.Blocks[0].Err)
	},
	"reserves": func(e *client.Engine, ns client.NS) error {
		_, err := e.Reserve(ctx, []client.Block{{NS: ns, Key: keyOf("reserved"), Body: body(1, 100<<10)}}, 0)
		return err
	},
	"waits": func(e *client.Engine, ns client.NS) error {
		_, err := e.Load(ctx, ns, []wire.Key{keyOf("never"), keyOf("a")}, client.LoadOptions{Wait: true})
		return errors.Join(err, e.Ping(ctx))
	},
	"fetches": func(e *client.Engine, ns client.NS) error {
		go func() { _, _ = e.Acquire(ctx, ns, []wire.Key{keyOf("far")}, client.AcquireOptions{Fetch: true}) }()
		return nil
	},
	"puts": func(e *client.Engine, ns client.NS) error {
		put := func(i int) error {
			return e.Put(ctx, []client.Block{{NS: ns, Key: keyOf(fmt.Sprint(os.Getpid(), i)), Body: body(5, 300<<10)}})[0]
		}
		err := put(0)
		go func() {
			for i := 1; put(i) == nil; i++ {
			}
		}()
		return err
	},
	"generates": func(e *client.Engine, ns client.NS) error {
		req, err := e.Begin(ctx, client.Begin{Model: "thinker"})
		if err != nil {
			return err
		}
		return e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("of a request"), Tier: wire.OutputCritical, Req: req, Body: body(1, 100)}})[0]
	},
}

// memberRole joins a group, goes to a stage and waits to be killed.
func memberRole(args []string) {
	e, err := client.DialEngine(ctx, args[0], groupOptions(7))
	childFail(err)
	var ns client.NS
	if args[1] != "joined" {
		ns, err = e.Open(ctx, manifest("acme"))
		childFail(err)
	}
	childFail(stages[args[1]](e, ns))
	say("there")
	untilTold()
}

// counts is what engines have, in words.
func (n *node) counts() string {
	st, b := n.srv.Stats(), n.store.Stats()
	quotas := 0
	for _, q := range n.store.Quota() {
		quotas += q.Holders
	}
	return fmt.Sprintf("%d engines, %d sessions, %d in flight, %d requests; %d owners, %d orphans, %d leases, %d holds, %d reserved, %d staging bytes, %d transient; %d holders; %d namespaces",
		st.Engines, st.Sessions, st.InFlight, running(st), b.Owners, b.Orphans, b.Leases, b.Holds, b.Reserved, b.StagingBytes, b.Transient, quotas, n.host.open.Load())
}

// A member that is killed, wherever it is, takes what was its own with it and nothing
// of its group: leases and requests go on, and another one takes its place. The same
// holds whichever member it is, the first or a later one. With the last one all is gone.
func TestAMemberIsKilledAtEachStage(t *testing.T) {
	for stage := range stages {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first %v", stage, first), func(t *testing.T) {
				n := startNode(t, nil)
				n.host.mu.Lock()
				n.host.gate = make(chan struct{}) // what is fetched never comes
				n.host.mu.Unlock()
				feeder, ns := n.open(t)
				put(t, feeder, client.Block{NS: ns, Key: keyOf("a"), Tier: wire.OutputCritical, Body: body(1, 1000)})
				_ = feeder.Close()
				n.wait(1)
				empty := n.counts()
				files := descriptors(t) - 2*n.store.Stats().Segments // bytes and generations

				var c *child
				if first {
					c = spawn(t, "member", n.path, stage)
					c.expect(t, "there")
				}
				e := n.dial(t, groupOptions(7))
				if ns, err := e.Open(ctx, manifest("acme")); err != nil {
					t.Fatal(err)
				} else if !first {
					c = spawn(t, "member", n.path, stage)
					c.expect(t, "there")
					_ = ns
				}
				if stage == "fetches" {
					<-n.host.fetching
				}
				mine := acquire(t, e, ns, client.AcquireOptions{}, "a")
				c.kill()
				n.wait(1)
				for n.store.Stats().Orphans > 0 {
					n.store.Step(blocks.Input{})
				}
				st, b := n.srv.Stats(), n.store.Stats()
				left := map[string]int{"leases": 1}[stage] // timed leases are the group's
				if st.Engines != 1 || st.Sessions != 1 || st.InFlight != 0 || b.Leases != 1+left || b.Reserved != 0 || b.StagingBytes != 0 {
					t.Errorf("after the kill: %s", n.counts())
				}
				if running(st) != uint64(map[string]int{"generates": 1}[stage]) {
					t.Errorf("%d requests run", running(st))
				}
				if err := mine.Blocks[0].CopyTo(make([]byte, 1000)); err != nil {
					t.Errorf("a lease of the member that lives: %v", err)
				}
				again := spawn(t, "member", n.path, "opened")
				again.expect(t, "there")
				again.kill()
				mine.Release()
				_ = e.Close()
				n.wait(2)
				if got := n.counts(); got != empty {
					t.Errorf("at the end: %s\nat the start: %s", got, empty)
				}
				if got := descriptors(t) - 2*n.store.Stats().Segments; got > files {
					t.Errorf("%d descriptors, %d before", got, files)
				}
			})
		}
	}
}

// The daemon is started anew under two ranks that know their secret: whichever comes
// first makes the group, and the other joins it. Who does not know it stays out.
func TestADaemonStartsAnewUnderTwoRanks(t *testing.T) {
	n := startNode(t, nil)
	for round := range 2 {
		var ranks [2]*client.Engine
		for i := range ranks {
			ranks[i] = n.dial(t, groupOptions(7))
			if _, err := ranks[i].Open(ctx, manifest("acme")); err != nil {
				t.Fatal(err)
			}
		}
		next := n.again(t)
		for _, r := range ranks {
			<-r.Gone()
		}
		for i := range ranks {
			i = (i + round) % 2
			ranks[i] = next.dial(t, groupOptions(7))
			if _, err := ranks[i].Open(ctx, manifest("acme")); err != nil {
				t.Fatal(err)
			}
		}
		if st := next.srv.Stats(); st.Engines != 1 || st.Sessions != 2 {
			t.Errorf("round %d: %s", round, next.counts())
		}
		wrong := groupOptions(7)
		wrong.Group.Secret = &[link.GroupSecret]byte{9}
		_, err := client.DialEngine(ctx, next.path, wrong)
		is(t, err, wire.CodeAuth)
		n = next
	}
}

// again is a daemon of the same store and socket after this one has ended.
func (n *node) again(t *testing.T) *node {
	t.Helper()
	if err := n.srv.Close(); err != nil {
		t.Fatal(err)
	}
	srv, err := engine.Listen(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return &node{store: n.store, host: n.host, srv: srv, path: n.path, cfg: n.cfg, owners: n.owners}
}

// A member that lies about numbers and leases of another group changes nothing there:
// they are looked up among its own.
func TestALiarHarmsNoOtherGroup(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	honest, _ := n.join(t, member{agent: 7, inc: 1})
	num := honest.open(1, "acme")
	_, lease := honest.lease(3, num, "a", false)
	if _, e := honest.ask(5, message(link.TypeBegin, 5, link.Begin{Req: 9})); e.Code != wire.CodeOK {
		t.Fatal(e.Code)
	}
	before := n.counts()
	liar, _ := n.join(t, member{agent: 8, inc: 1})
	liar.open(1, "acme")
	liar.write(message(link.TypeTokens, 0, link.Tokens{Req: []uint32{9}, N: []uint8{1}, Tok: []int32{2}}))
	for i, m := range [][]byte{
		message(link.TypeFinish, 3, link.Finish{Req: 9, Reason: link.FinishAbort}),
		message(link.TypeHandoff, 5, link.Handoff{Req: 9, KeepMS: 1000}),
		message(link.TypeRelease, 7, link.Release{Leases: [][16]byte{lease}}),
		message(link.TypeRenew, 9, link.Renew{Lease: lease, MS: 1}),
		message(link.TypeFill, 11, link.Fill{Rsv: 1, Last: true}),
	} {
		liar.ask(uint64(3+2*i), m)
	}
	_ = liar.c.Close()
	n.wait(1)
	if got := n.counts(); got != before {
		t.Errorf("after the liar: %s\nbefore: %s", got, before)
	}
	if code := honest.renew(7, lease); code != wire.CodeOK {
		t.Errorf("the lease: %s", code)
	}
}

// Another user with the same agent and incarnation is another engine, and needs no
// secret for its own.
func TestAnotherUserIsNeverOfTheGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const other = 12345
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.UIDs = []uint32{0, other} })
	if err := os.Chmod(strings.TrimSuffix(n.path, "/s"), 0o755); err != nil {
		t.Fatal(err)
	}
	mine := n.dial(t, groupOptions(7))
	if _, err := mine.Open(ctx, manifest("acme")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var theirs *client.Engine
	var err error
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its user
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), other, ^uintptr(0)); e != 0 {
			err = e
			return
		}
		o := groupOptions(7)
		o.Group.Secret = nil
		theirs, err = client.DialEngine(ctx, n.path, o)
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if all := n.srv.Engines(); len(all) != 2 || all[0].Sessions != 1 || all[1].Sessions != 1 || !strings.HasSuffix(all[1].Name, "of user 12345") || all[1].Namespaces != 0 {
		t.Errorf("%+v", all)
	}
}
