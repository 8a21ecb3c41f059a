package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/wire"
)

func init() { roles["counting daemon"] = countingRole }

// countingRole serves on the socket args[0], and says at each line of its stdin what
// it has counted.
func countingRole(args []string) {
	store, err := blocks.Open(blocks.Config{Capacity: 8 << 20})
	childFail(err)
	srv, err := engine.Listen(engine.Config{Path: args[0], Tenants: []string{"acme"}, Store: store, Host: newHost(store)})
	childFail(err)
	go func() { childFail(srv.Serve()) }()
	say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		st := srv.Stats()
		say(counted(st.Scheduler.Arrived, st.Scheduler.OutputTokens, st.Sessions))
	}
}

func counted(arrived, tokens uint64, sessions int) string {
	return fmt.Sprintf("%d requests, %d tokens, %d sessions", arrived, tokens, sessions)
}

// stopped sends SIGSTOP to a child and waits until it stands still.
func (c *child) stopped(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var s unix.WaitStatus
	for {
		_, err := unix.Wait4(c.cmd.Process.Pid, &s, unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || !s.Stopped() {
			t.Fatalf("%v, %v", s, err)
		}
		return
	}
}

// An engine decodes while its daemon stands still: no step waits for it, whatever the
// step does. What the socket does not take is dropped and counted, and afterwards both
// sides have counted the same.
func TestNoStepWaitsForADaemonThatIsStopped(t *testing.T) {
	const rows, steps, others = 256, 10_000, 20
	path := tempDir(t) + "/s"
	d := spawn(t, "counting daemon", path)
	d.expect(t, "ready")
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ns, err := e.Open(ctx, manifest("acme"))
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf("leased")
	put(t, e, client.Block{NS: ns, Key: key, Tier: wire.OutputCritical, Body: body(1, 100)})
	reqs, n, tok := make([]uint32, rows), make([]uint8, rows), make([]int32, rows)
	for i := range reqs {
		if reqs[i], err = e.Begin(ctx, client.Begin{Model: "m"}); err != nil {
			t.Fatal(err)
		}
		n[i], tok[i] = 1, int32(i)
	}
	leases := make([]*client.Lease, others)
	for i := range leases {
		if leases[i], err = e.Acquire(ctx, ns, []wire.Key{key}, client.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	d.stopped(t)
	var ends []<-chan error
	waits, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := make(chan error)
	go func() {
		done <- func() error {
			for step := range steps {
				if err := e.Tokens(reqs, n, tok); err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
				if step%(steps/others) != 0 {
					continue
				}
				leases[step/(steps/others)].Release()
				req, began, err := e.BeginAsync(client.Begin{Model: "m"})
				if err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
				finished, err := e.FinishAsync(req, false)
				if err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
				ends = append(ends, began, finished)
			}
			return nil
		}()
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-waits.Done():
		t.Fatal("a step waits for a daemon that is stopped")
	}
	dropped := e.Dropped()
	if dropped == 0 || dropped >= steps {
		t.Fatalf("%d of %d steps were dropped", dropped, steps)
	}

	if err := d.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i, c := range ends {
		if err := <-c; err != nil {
			t.Errorf("request %d that nobody waited for: %v", i, err)
		}
	}
	if err := e.Ping(ctx); err != nil { // behind all that was sent
		t.Fatal(err)
	}
	if _, err := d.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	d.expect(t, counted(rows+others, rows*(steps-dropped), 1))
	if e.Dropped() != dropped {
		t.Errorf("%d dropped, %d before the daemon went on", e.Dropped(), dropped)
	}
	if err := e.Tokens(reqs, n, tok); err != nil {
		t.Fatal(err)
	}
	l, err := e.Acquire(ctx, ns, []wire.Key{key}, client.AcquireOptions{})
	if err != nil || l.Blocks[0].Err != nil {
		t.Fatalf("afterwards: %v", err)
	}
	l.Release()
	_, _ = d.in.Write([]byte("\n"))
	d.expect(t, counted(rows+others, rows*(steps-dropped+1), 1))
}
