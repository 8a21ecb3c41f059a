package fakeserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent/llama/fakeserver"
)

const long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "

var answers = fakeserver.Script{Template: "plain", Answer: []string{"yes"}}

// wedged is a partner that takes requests and never answers.
func wedged(t *testing.T) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL, asked
}

// prompt asks for an answer, and gives up after a minute.
func (n *node) prompt(t *testing.T, content string) reply {
	t.Helper()
	http.DefaultClient.Timeout = time.Minute
	return n.chat(t, content, "")
}

func TestADecodeNodeWithoutALinkPeerDoesNotLetItsPartnerPrefillInVain(t *testing.T) {
	url, asked := wedged(t)
	n := start(t, answers, fmt.Sprintf("role = \"decode\"\npartner = %q\nremote_prefill_tokens = 4\n", url), "")
	for i := range 3 {
		if r := n.prompt(t, fmt.Sprint(i, " ", long)); r.text != "yes" {
			t.Errorf("%s", r.body)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the partner was asked %d times for blocks that this node cannot pull", asked.Load())
	}
	if l := n.log.String(); !strings.Contains(l, "list its daemon as a peer") || !strings.Contains(l, "level=WARN") {
		t.Error("the log does not say what to do")
	}
	if n.metric(t, "meridian_llama_partner_up") != 0 || n.metric(t, `meridian_llama_partner_fallbacks_total{operation="prefill",reason="peer"}`) != 3 {
		t.Error("the metrics do not tell")
	}
}

// linked is a table for two daemons that reach each other by a Unix socket.
func linked(peer, socket string, listen bool) string {
	const table = "[link]\npsk = \"9f3c61d20b7ae84455d01c9e72fa36b8\"\n"
	if listen {
		return table + fmt.Sprintf("listen = [\"unix://%s\"]\n[[link.peer]]\nname = %q\ntenants = [\"default\"]\n", socket, peer)
	}
	return table + fmt.Sprintf("[[link.peer]]\nname = %q\naddress = \"unix://%s\"\ntenants = [\"default\"]\n", peer, socket)
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "l")
}

// The link is ready and the partner's front hangs: one prompt waits for it, once.
func TestAWedgedPartnerIsAskedOnce(t *testing.T) {
	for _, role := range []string{"decode", "prefill"} {
		at := socket(t)
		startAs(t, "other", answers, "", linked("one", at, true))
		url, asked := wedged(t)
		n := start(t, answers, fmt.Sprintf("role = %q\npartner = %q\nremote_prefill_tokens = 4\n", role, url), linked("other", at, false))
		n.await(t, "meridian_ready", 1)
		for i := range 4 {
			if r := n.prompt(t, fmt.Sprint(role, i, " ", long)); r.text != "yes" {
				t.Errorf("%s", r.body)
			}
		}
		if asked.Load() != 1 {
			t.Errorf("role %s: the wedged partner was asked %d times, want once", role, asked.Load())
		}
		operation := map[string]string{"decode": "prefill", "prefill": "decode"}[role]
		for reason, want := range map[string]float64{"silent": 1, "away": 3, "peer": 0, "refused": 0} {
			if got := n.metric(t, fmt.Sprintf(`meridian_llama_partner_fallbacks_total{operation=%q,reason=%q}`, operation, reason)); got != want {
				t.Errorf("role %s: %g fallbacks for %s, want %g", role, got, reason, want)
			}
		}
		if !strings.Contains(n.log.String(), "the partner is away") {
			t.Error("the log does not tell")
		}
	}
}

// A llama-server that answers everything and never ends a prompt: its node lives,
// and says that nothing goes on, so the node that asks gives it up, once.
func TestAPartnerWhoseModelIsStuckIsAskedOnce(t *testing.T) {
	at := socket(t)
	other := startAs(t, "other", answers, fmt.Sprintf("args = [\"--alias\", %q]\n", fakeserver.Stalls), linked("one", at, true))
	// llama.partner_timeout is far beyond what the client of this test waits.
	n := start(t, answers, fmt.Sprintf("role = \"decode\"\npartner = %q\npartner_timeout = \"1h\"\nremote_prefill_tokens = 4\n", other.url), linked("other", at, false))
	n.await(t, "meridian_ready", 1)
	for i := range 3 {
		if r := n.prompt(t, fmt.Sprint(i, " ", long)); r.text != "yes" {
			t.Errorf("%s", r.body)
		}
	}
	for reason, want := range map[string]float64{"stuck": 1, "away": 2, "silent": 0, "refused": 0} {
		if got := n.metric(t, fmt.Sprintf(`meridian_llama_partner_fallbacks_total{operation="prefill",reason=%q}`, reason)); got != want {
			t.Errorf("%g fallbacks for %s, want %g", got, reason, want)
		}
	}
	if served := other.metric(t, `meridian_llama_prefills_total{by="served"}`); served != 1 {
		t.Errorf("the partner was asked %g times", served)
	}
	other.await(t, `meridian_llama_slots{state="busy"}`, 0) // what was given up holds nothing
}

// A prefill that takes longer than a partner may be silent is waited for, since
// the partner shows that it works.
func TestALongPrefillOfAWorkingPartnerIsUsed(t *testing.T) {
	at := socket(t)
	slow := answers
	slow.PrefillMS = 3000
	other := startAs(t, "other", slow, "", linked("one", at, true))
	n := start(t, slow, fmt.Sprintf("role = \"decode\"\npartner = %q\nremote_prefill_tokens = 4\n", other.url), linked("other", at, false))
	n.await(t, "meridian_ready", 1)
	r := n.prompt(t, long)
	if r.text != "yes" || n.metric(t, `meridian_llama_prefills_total{by="partner"}`) != 1 || n.metric(t, "meridian_llama_partner_up") != 1 {
		t.Errorf("%s", r.body)
	}
	for reason, want := range map[string]float64{"silent": 0, "refused": 0, "unreachable": 0} {
		if got := n.metric(t, fmt.Sprintf(`meridian_llama_partner_fallbacks_total{operation="prefill",reason=%q}`, reason)); got != want {
			t.Errorf("%g fallbacks for %s", got, reason)
		}
	}
}
