package link

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/internal/realpart"
	"meridian/wire"
)

// holderVerdicts is what a pull of the holder's right answers ends with. After the
// others it ends with some error, unless the body had come whole by then.
var holderVerdicts = map[string]error{
	"whole": nil, "in pieces": nil, "without statuses": nil, "an unknown frame between": nil, "END a second time": nil,
	"another body": wire.CodeChecksum, "ABSENT": wire.CodeAbsent, "an unknown status": wire.Code(199), "DENIED": wire.CodeAbsent,
	"DRAINING": wire.CodeDraining, "given up half-way": wire.CodeDeadline,
	"push": nil, "push of what is there": wire.CodeExists, "push without room": wire.CodeFull, "push refused": wire.CodeDraining,
	"push that did not match": wire.CodeChecksum,
	"delivered":               nil, "delivered, and there": wire.CodeExists, "delivered, turned away": wire.CodeDraining,
	"delivered, did not match": wire.CodeChecksum, "homeless": nil,
}

// A holder that was written from docs/spec alone, in another language, is pulled
// from and pushed to. What it does wrongly is refused with the code that the page says, and
// costs its lane alone: the next request goes by another.
func TestAHolderMadeFromTheProtocolPageIsUnderstood(t *testing.T) {
	python := realpart.Python(t)
	noLeaks(t)
	psk := []byte("pXq8yT5VQm3rWz1sLk7Jb0NcEuHdRgAf")
	secret := filepath.Join(t.TempDir(), "psk")
	if err := os.WriteFile(secret, psk, 0o600); err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, 100)
	for i := range whole {
		whole[i] = byte(i)
	}
	cases := holderCases(t, python)
	addr, lines := startHolder(t, python, secret)
	a := start(t, 1, 10, "", func(c *Config) {
		c.Lanes, c.Insecure = 1, false
		c.Peers = []PeerConfig{{Name: "holder", Addr: addr, PSK: psk, Tenants: []string{"t"}}}
	})
	p := a.Peer("holder")
	defer hurry(p)()
	ns, err := a.ns.Add(testManifest("t"))
	if err != nil {
		t.Fatal(err)
	}
	// A lane may end between ready and the request, when the case before has ended it: such a
	// request never comes to the holder, and its case is tried again.
	said := map[string]int{}
	for left := cases; len(left) > 0; {
		before := len(left)
		tryHolder(t, p, ns, whole, left)
		verdicts(t, lines, said, said["whole"]+2)
		left = slices.DeleteFunc(slices.Clone(left), func(name string) bool { return said[name] > 0 })
		if len(left) == before {
			t.Fatalf("the holder has not tried %q", left)
		}
	}
}

// tryHolder asks the holder for each case, and then twice for a whole block: what became
// of a lane that goes on is said when its next request comes.
func tryHolder(t *testing.T, p *Peer, ns wire.Namespace, whole []byte, cases []string) {
	t.Helper()
	for _, name := range append(slices.Clone(cases), "whole", "whole") {
		ready(t, p)
		it := []fabric.Item{{NS: ns, Key: wire.KeyOf(ns, []byte(name)), M: fabric.Mem{B: make([]byte, wire.HeaderLen+100)}}}
		push := strings.HasPrefix(name, "push") || strings.HasPrefix(name, "delivered") || name == "homeless"
		if push {
			it[0].M = payload(t, wire.ThinkComplete, whole)
			p.Push(testContext(t), it)
		} else {
			p.Pull(testContext(t), it)
		}
		err := it[0].Err
		want, right := holderVerdicts[name]
		right = right || strings.HasPrefix(name, "push, before")
		if push && !right && err == nil {
			t.Errorf("%s: OK", name)
		}
		if right && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if body := it[0].M.B[wire.HeaderLen:]; err == nil && (!bytes.Equal(body, whole) || it[0].Head.Check(body) != nil) {
			t.Errorf("%s: OK with another body", name)
		}
	}
}

// verdicts reads what the holder says until it has told of so many whole blocks.
func verdicts(t *testing.T, lines <-chan string, said map[string]int, wholes int) {
	t.Helper()
	for said["whole"] < wholes {
		select {
		case line := <-lines:
			verdict, rest, _ := strings.Cut(line, "  ")
			name, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
			if said[name]++; verdict != "ok" {
				t.Error(line)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the holder said no more than %v", said)
		}
	}
}

// startHolder gives the holder's address, and the lines that it prints.
func startHolder(t *testing.T, python, secret string) (addr string, lines <-chan string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "../../conformance/python/holder.py", "--name", "holder", "--psk-file", secret)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 1000)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range all {
		}
		_ = cmd.Wait()
	})
	go func() {
		defer close(all)
		for s := bufio.NewScanner(out); s.Scan(); {
			all <- s.Text()
		}
	}()
	addr, found := strings.CutPrefix(<-all, "listening on ")
	if !found {
		t.Fatal("the holder does not listen")
	}
	return addr, all
}

func holderCases(t *testing.T, python string) []string {
	t.Helper()
	b, err := exec.Command(python, "../../conformance/python/holder.py", "--list").CombinedOutput()
	if err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, b))
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// hurry lets the dialler try again at once, until stop.
func hurry(p *Peer) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
			select {
			case p.kick <- struct{}{}:
			default:
			}
		}
	}()
	return func() { close(end); <-ended }
}
