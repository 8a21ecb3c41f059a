package engine_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/blocks/quota"
	"meridian/wire"
	"meridian/wire/link"
)

func init() {
	roles["opener"] = func(args []string) {
		e, err := client.DialEngine(ctx, args[0], client.Options{})
		childFail(err)
		_, err = e.Open(ctx, manifest("acme"))
		childFail(err)
		say("open")
		untilTold()
	}
}

// shared is a node whose book has these limits.
func shared(t *testing.T, uids []uint32, limits map[quota.Rule]uint64) *node {
	return startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.UIDs = uids
		c.Quota = &quota.Book{}
		for r, n := range limits {
			c.Quota.SetLimit(r.Resource, r.Kind, n)
		}
	})
}

// A process that begins all engines it can leaves a part to the next process, and the
// refusal says whose limit it is, and both amounts. What it gives back it can have again.
func TestOneProcessCannotHaveAllEngines(t *testing.T) {
	n := shared(t, nil, map[quota.Rule]uint64{
		{Resource: quota.Engines, Kind: quota.All}: 8, {Resource: quota.Engines, Kind: quota.Process}: 100,
	})
	var all []*raw
	begin := func() *raw {
		r, _ := n.join(t, member{agent: 1, inc: uint64(len(all) + 1)})
		all = append(all, r)
		return r
	}
	for range 4 {
		begin().open(1, "acme")
	}
	r := begin()
	r.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	e := r.refusedWith(wire.CodeTooMany)
	want := fmt.Sprintf("process %d may have 4 engines, as many as are free, and has 4; 1 more would exceed that (engine.max_sessions)", os.Getpid())
	if e.Text != want {
		t.Errorf("ERROR says %q, want %q", e.Text, want)
	}
	spawn(t, "opener", n.path).expect(t, "open")
	all[0].c.Close()
	n.wait(2)
	begin().open(1, "acme")
}

// Nor all namespaces, however many engines it makes of itself.
func TestOneProcessCannotHaveAllNamespaces(t *testing.T) {
	n := shared(t, nil, map[quota.Rule]uint64{{Resource: quota.Namespaces, Kind: quota.Process}: 5})
	open := func(r *raw, i int) link.End {
		m := manifest("acme")
		m.Model = fmt.Sprint(i)
		_, e := r.ask(uint64(2*i+1), message(link.TypeOpen, uint64(2*i+1), link.Open{Manifest: m.Append(nil)}))
		return e
	}
	a, _ := n.join(t, member{agent: 1, inc: 1})
	b, _ := n.join(t, member{agent: 1, inc: 2})
	for i := range 5 {
		if e := open([]*raw{a, b}[i%2], i); e.Code != wire.CodeOK {
			t.Fatalf("%d: %s (%s)", i, e.Code, e.Text)
		}
	}
	for _, r := range []*raw{a, b} {
		want := fmt.Sprintf("process %d may have 5 namespaces and has 5; 1 more would exceed that (quota.process_namespaces)", os.Getpid())
		if e := open(r, 5); e.Code != wire.CodeTooMany || e.Text != want {
			t.Errorf("END %s %q, want %q", e.Code, e.Text, want)
		}
	}
	if e := open(a, 0); e.Code != wire.CodeOK {
		t.Errorf("one that it has open already: %s", e.Code)
	}
	a.c.Close()
	n.wait(1)
	if e := open(b, 6); e.Code != wire.CodeOK {
		t.Errorf("after its other engine has gone: %s (%s)", e.Code, e.Text)
	}
}

// Where several users may connect, one of them leaves the others a part.
func TestOneUserCannotHaveAllEngines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const other = 12345
	n := shared(t, []uint32{0, other}, map[quota.Rule]uint64{
		{Resource: quota.Engines, Kind: quota.All}: 4, {Resource: quota.Engines, Kind: quota.Source}: 100,
	})
	if err := os.Chmod(strings.TrimSuffix(n.path, "/s"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // processes of their own
		spawn(t, "opener", n.path).expect(t, "open")
	}
	r, _ := n.join(t, member{agent: 1, inc: 3})
	r.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	if e := r.refusedWith(wire.CodeTooMany); !strings.Contains(e.Text, "user 0 may have 2 engines") {
		t.Errorf("ERROR says %q", e.Text)
	}
	if err := n.asUser(other, func(*client.Engine, client.NS) error { return nil }); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// asUser opens a namespace as another user, and calls f.
func (n *node) asUser(uid uintptr, f func(*client.Engine, client.NS) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its user
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); e != 0 {
			done <- e
			return
		}
		e, err := client.DialEngine(ctx, n.path, client.Options{})
		if err != nil {
			done <- err
			return
		}
		defer e.Close()
		ns, err := e.Open(ctx, manifest("acme"))
		if err == nil {
			err = f(e, ns)
		}
		done <- err
	}()
	return <-done
}

// Where several users may connect, one of them has no more of the bytes of staging rings
// than it leaves, however many engines it begins. Where there is one user, it has all;
// one that is named twice is one.
func TestOneUserCannotHaveAllStagingRings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const other = 12345
	for _, uids := range [][]uint32{{0, other}, {0, 0}} {
		n := startNode(t, func(b *blocks.Config, c *engine.Config) {
			b.StagingBytes, c.UIDs = 2<<20, uids // of two full blocks
		})
		if err := os.Chmod(strings.TrimSuffix(n.path, "/s"), 0o755); err != nil {
			t.Fatal(err)
		}
		ring := func(inc uint64) link.End {
			r, _ := n.join(t, member{agent: 1, inc: inc})
			r.open(1, "acme")
			_, e := r.ask(3, message(link.TypeMap, 3, link.Map{Segs: []link.Seg{{Kind: link.SegStaging, Size: 1 << 20}}}))
			return e
		}
		if e := ring(1); e.Code != wire.CodeOK {
			t.Fatalf("the first ring: %s (%s)", e.Code, e.Text)
		}
		e := ring(2)
		if uids[1] == 0 {
			if e.Code != wire.CodeOK {
				t.Errorf("the second ring of the only user: %s (%s)", e.Code, e.Text)
			}
			continue
		}
		if e.Code != wire.CodeBusy || !strings.Contains(e.Text, "user 0 may have 1 MiB of staging rings, as many as are free,") {
			t.Errorf("the second ring of a user: %s (%s)", e.Code, e.Text)
		}
		if err := n.asUser(other, func(e *client.Engine, ns client.NS) error {
			return e.Put(ctx, []client.Block{{NS: ns, Key: keyOf("a"), Body: body(1, 1<<20)}})[0]
		}); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
}

// An engine that is refused its place has no namespace either: what one of its sessions
// asked to open, no other one uses.
func TestAnEngineWithoutAPlaceHasNoNamespace(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Limits.Sessions = 1 })
	asks, _ := n.join(t, member{agent: 7, inc: 1})
	stays, _ := n.join(t, member{agent: 7, inc: 1})
	e, ns := n.open(t) // the only place
	put(t, e, client.Block{NS: ns, Key: keyOf("a"), Body: body(1, 1000)})
	asks.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest("acme").Append(nil)}))
	asks.refusedWith(wire.CodeTooMany)
	if code, _ := stays.lease(1, 0, "a", false); code != wire.CodeNSUnknown {
		t.Errorf("another session of the engine that was refused: a lease in namespace 0 is %s", code)
	}
	if open := n.host.open.Load(); open != 1 {
		t.Errorf("%d namespaces are open, want that of the engine that has a place", open)
	}
}
