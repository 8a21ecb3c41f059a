package bridgetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"meridian/adapters/mooncake/realengine"
	"meridian/agent/adminpb"
	"meridian/internal/testbed"
	"meridian/wire"
)

// helperOf is the process of the NIXL helper of this process's daemons.
func helperOf(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, rest, _ := strings.Cut(string(b), " (")
		name, rest, _ := strings.Cut(rest, ") ")
		f := strings.Fields(rest)
		if name == "meridian-ffi" && len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(os.Getpid()) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// stored are the blocks that an application was told of, and how often; who told of the last
// one is the daemon's agent from then on.
func (a *nixlApp) stored(told map[string]int, last wire.Key) {
	for _, n := range append(a.told, a.Notifs()...) {
		for line := range strings.Lines(n[1]) {
			if f := strings.Fields(line); len(f) == 6 && f[1] == "stored" {
				told[f[3]]++
				if f[3] == last.String() {
					a.house = n[0] // the helper of now
				}
			}
		}
	}
	a.told = nil
}

// The NIXL helper is killed in the middle of a stream of blocks from Mooncake: each
// block arrives once, over the next helper.
func TestEachBlockArrivesOnceWhenTheHelperIsKilled(t *testing.T) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := start(t, "house", mooncakeTable(m.Engine)+nixlTable(t, n)+route("mooncake", "nixl"))
	n.meet()
	const blocks = 40
	payloads := map[string][]byte{}
	for i := range blocks {
		if i == 10 || i == 25 {
			testbed.Until(t, "some blocks have arrived", func() bool {
				got, _ := strconv.Atoi(h.metric(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"}`))
				return got > i/2
			})
			pid := 0
			testbed.Until(t, "a helper runs", func() bool { pid = helperOf(t); return pid != 0 })
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		key, payload := keyOf(fmt.Sprint("b", i)), payloadOf(t, wire.ThinkActive, testbed.Content(20_000+i, uint64(i)))
		payloads[key.String()] = payload
		m.gives(h, key, payload)
	}
	h.shows(fmt.Sprintf(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"} %d`, blocks))
	told := map[string]int{}
	testbed.Until(t, "the application was told of all blocks", func() bool {
		n.stored(told, keyOf(fmt.Sprint("b", blocks-1)))
		return len(told) == blocks
	})
	for key, times := range told {
		if times != 1 || payloads[key] == nil {
			t.Errorf("the application was told %d times of %s", times, key)
		}
	}
	for key, payload := range payloads {
		k, err := wire.ParseKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.asks(k, len(payload)); !bytes.Equal(got, payload) {
			t.Error("other bytes")
		}
	}
	if again := h.metric(`meridian_gateway_blocks_total{from="mooncake",outcome="expired",to="nixl"}`); again != "0" {
		t.Error(again, "blocks expired")
	}
	for line := range strings.Lines(h.page("/metrics")) {
		if strings.HasPrefix(line, "meridian_gateway_") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// The application of the first route is killed: what comes after goes by the next route,
// and what it had acknowledged does not.
func TestTheNextRouteIsTakenWhenAPeerIsKilled(t *testing.T) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := start(t, "house", listens("edge")+mooncakeTable(m.Engine)+nixlTable(t, n)+route("mooncake", "nixl")+route("mooncake", "link"))
	edge := start(t, "edge", dials(h))
	edge.meets("house")
	h.meets("edge")
	n.meet()
	const half = 10
	payload := func(i int) (wire.Key, []byte) {
		return keyOf(fmt.Sprint("b", i)), payloadOf(t, wire.ThinkActive, testbed.Content(20_000, uint64(i)))
	}
	for i := range half {
		key, p := payload(i)
		m.gives(h, key, p)
	}
	h.shows(fmt.Sprintf(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"} %d`, half))
	n.Kill()
	for i := half; i < 2*half; i++ {
		key, p := payload(i)
		m.gives(h, key, p)
	}
	h.shows(fmt.Sprintf(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="link"} %d`, half))
	for i := half; i < 2*half; i++ {
		key, p := payload(i)
		if got := edge.holds(key); !bytes.Equal(got, p) {
			t.Error("other bytes")
		}
	}
	for i := range half {
		key, _ := payload(i)
		if b, err := edge.admin.StatBlock(t.Context(), &adminpb.StatBlockRequest{Key: key.String()}); err == nil {
			t.Error("a block that the first route had taken went by the next one too:", b)
		}
	}
	if v := h.metric(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"}`); v != fmt.Sprint(half) {
		t.Error(v, "blocks went by the first route")
	}
}

// Daemons in a ring send on what the one before brings: it ends, and the daemon that
// notices says so. Two daemons that send on to each other do not even begin.
func TestARingOfDaemonsEnds(t *testing.T) {
	toPeer := func(peer string) string {
		return fmt.Sprintf("[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = %q\n", peer)
	}
	t.Run("3", func(t *testing.T) {
		c := start(t, "c", listens("a", "b")+toPeer("a"))
		b := start(t, "b", dials(c)+"[[link.peer]]\nname = \"a\"\ntenants = [\"acme\"]\n"+toPeer("c"))
		a := start(t, "a", dials(b, c)+"[[route]]\npeer = \"b\"\nfabric = \"link\"\n"+toPeer("b")+"[disagg]\nenabled = true\nfabric = \"link\"\nwrite_through = true\n")
		a.meets("b")
		a.meets("c")
		b.meets("c")
		c.meets("a")
		body := testbed.Content(30_000, 1)
		a.store(keyOf("ring"), body)
		if got := c.holds(keyOf("ring")); !bytes.Equal(got, payloadOf(t, wire.OutputCritical, body)) {
			t.Error("other bytes at the end of the ring")
		}
		b.shows(`meridian_gateway_blocks_total{from="link",outcome="loop",to="link"} 1`)
		found := ""
		list, err := b.admin.Doctor(t.Context(), &adminpb.DoctorRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list.GetFindings() {
			if f.GetId() == "gateway.loop" {
				found = fmt.Sprint(f.GetSeverity(), " ", f.GetReason())
			}
		}
		if found != "SEVERITY_WARN routes of several daemons lead in a circle, the last one by link/a" {
			t.Error("mrdn doctor:", found)
		}
		for _, h := range []*house{a, b, c} {
			if v := h.metric(`meridian_gateway_attempts_total{from="link",reason="OK",to="link"}`); v != "1" && v != "0" {
				t.Errorf("%s pushed %s times", h.name, v)
			}
		}
	})
	t.Run("2", func(t *testing.T) {
		b := start(t, "b", listens("a")+toPeer("a"))
		a := start(t, "a", dials(b)+"[[route]]\npeer = \"b\"\nfabric = \"link\"\n"+toPeer("b")+writesThrough)
		a.meets("b")
		b.meets("a")
		a.store(keyOf("pair"), testbed.Content(30_000, 1))
		b.holds(keyOf("pair"))
		for _, h := range []*house{a, b} {
			if v := h.metric(`meridian_gateway_attempts_total{from="link",reason="OK",to="link"}`); v != "0" {
				t.Errorf("%s pushed %s times", h.name, v)
			}
		}
	})
}
