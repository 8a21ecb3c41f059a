package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	tracespb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"meridian/agent/finding"
	"meridian/agent/transfer"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// receiver takes traces as a collector does.
type receiver struct {
	mu    sync.Mutex
	spans []*otlp.Span
	names []string // of services
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, err := io.ReadAll(req.Body)
	var m tracespb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &m)
	}
	if err != nil || req.URL.Path != "/base/v1/traces" {
		http.Error(w, fmt.Sprint(req.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range m.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				r.names = append(r.names, a.GetValue().GetStringValue())
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
}

// tree has a line for each span of a name: its attributes of these keys, and below it
// those of its children.
func (r *receiver) tree(name, child string, keys ...string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := func(s *otlp.Span) string {
		var words []string
		for _, k := range keys {
			for _, a := range s.GetAttributes() {
				if a.GetKey() == k {
					words = append(words, a.GetValue().GetStringValue())
				}
			}
		}
		return strings.Join(words, " ")
	}
	for _, s := range r.spans {
		if s.GetName() != name {
			continue
		}
		line := []string{text(s)}
		for _, c := range r.spans {
			if c.GetName() == child && string(c.GetParentSpanId()) == string(s.GetSpanId()) && string(c.GetTraceId()) == string(s.GetTraceId()) {
				line = append(line, text(c))
			}
		}
		out = append(out, strings.Join(line, ": "))
	}
	slices.Sort(out)
	return out
}

func tracesTo(url string) string {
	return fmt.Sprintf("[telemetry]\notlp_enabled = true\notlp_endpoint = %q\n", url)
}

// What a collector answers is logged, so that it has a bound: a refusal of a megabyte would
// fill the log, or be too long for it and never be read.
func TestARefusalOfTheCollectorIsLoggedWithinABound(t *testing.T) {
	var body atomic.Pointer[string]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, *body.Load())
	}))
	t.Cleanup(srv.Close)
	n := startNode(t, shortDir(t), "alone", tracesTo(srv.URL))
	e := n.engine(t)
	for i, c := range []struct{ body, want string }{
		{"no such tenant", "no such tenant"}, {strings.Repeat("\x1b[31m", 50_000), "too large"}, {strings.Repeat("\x1b[31m", 500_000), "too large"},
	} {
		body.Store(&c.body)
		before := len(n.log.String())
		if errs := e.fetch(t, e.keys(fmt.Sprint("absent", i), 1)); len(errs) != 1 || errs[0] == nil {
			t.Error("it is there:", errs)
		}
		until(t, "the refusal is logged", func() bool {
			return strings.Contains(n.log.String()[before:], "the collector does not take traces")
		})
		for line := range strings.Lines(n.log.String()[before:]) {
			if strings.Contains(line, "collector") && (!strings.Contains(line, c.want) || len(line) > 4*spansAnswer) {
				t.Errorf("a line of %d bytes without %q: %.300s", len(line), c.want, line)
			}
		}
	}
}

// A load, and a block that goes on to another fabric, are spans at a real collector, with
// a child for each attempt.
func TestTracesHaveAChildForEachAttempt(t *testing.T) {
	r := &receiver{}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	dir := shortDir(t)
	prefill := startNode(t, dir, "prefill", listener("tcp://127.0.0.1:0", "decode"))
	decode := startNode(t, dir, "decode", dialler(prefill.Ports()["link"][0], "prefill")+tracesTo(srv.URL+"/base"))
	decode.ready(t)
	a, b := prefill.engine(t), decode.engine(t)
	prompt := a.keys("prompt", 2)
	a.put(t, prompt, 64<<10, wire.OutputCritical, 0)
	b.mustFetch(t, prompt)

	small := synthetic.New(synthetic.Options{Capacity: 16 << 10})
	for name, f := range map[string]fabric.Fabric{"small": small, "large": synthetic.New(synthetic.Options{})} {
		if err := decode.fabrics.Add(name, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := decode.routes.Replace([]fabric.Route{{From: linkFabric, Fabric: "small"}, {From: linkFabric, Fabric: "large"}}); err != nil {
		t.Fatal(err)
	}
	keys := b.keys("bridged", 1)
	b.put(t, keys, 32<<10, wire.ThinkActive, 0)
	pass, err := decode.mover.Bring(fabric.Hop{Fabric: linkFabric, Peer: "prefill"}, fabric.Brought{NS: b.ns, Key: keys[0], Tier: wire.ThinkActive, Bytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	pass.End(nil)
	until(t, "the block went on", func() bool { return decode.mover.BridgeStats().Forwarded == 1 })
	until(t, "the spans came", func() bool { return len(r.tree("meridian.forward", "")) == 1 && len(r.tree("meridian.load", "")) > 0 })
	if got, want := r.tree("meridian.forward", "meridian.attempt", "from", "to", "outcome", "fabric", "code"), "[link large forwarded: small FULL: large OK]"; fmt.Sprint(got) != want && fmt.Sprint(got) != "[link large forwarded: small TOO_LARGE: large OK]" {
		t.Errorf("%v, want %s", got, want)
	}
	if got := r.tree("meridian.load", "meridian.transfer", "fabric", "peer", "transport", "code"); fmt.Sprint(got) != "[: link prefill tcp OK]" {
		t.Error(got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.names, func(n string) bool { return n != "decode" }) {
		t.Error("spans of", r.names)
	}
}

// A collector that answers nothing, and one that is not there, hold up nobody; what they
// do not take is logged.
func TestACollectorThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(hang) })
	for name, url := range map[string]string{"silent": srv.URL, "gone": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			n := startNode(t, dir, "one", tracesTo(url)+linkTable)
			e := n.engine(t)
			for i := range 2 * spansWaiting {
				if errs := e.fetch(t, e.keys(fmt.Sprint("absent", i), 1)); errs[0] == nil {
					t.Fatal("a block that nobody has")
				}
			}
			if name == "gone" {
				until(t, "the loss is logged", func() bool { return strings.Contains(n.log.String(), "the collector does not take traces") })
				if f := n.traces.findings(url); len(f) != 1 || f[0].Severity != finding.Warn || !strings.Contains(f[0].Reason, "refused") || f[0].Fix == "" {
					t.Errorf("the findings are %+v", f)
				}
				if v, _ := n.series(t, `meridian_trace_spans_total{outcome="dropped"}`); v == "0" || v == "" {
					t.Errorf("%q spans are counted as dropped", v)
				}
			}
			if err := n.Close(); err != nil { // while the collector is still silent
				t.Error(err)
			}
		})
	}
}

// A block that goes on while it comes is shown as such: by its span and that of its attempt,
// in the list of transfers, and by a counter.
func TestTracesShowWhatGoesOnWhileItComes(t *testing.T) {
	r := &receiver{}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	dir := shortDir(t)
	edge := startNode(t, dir, "edge", listener("tcp://127.0.0.1:0", "gate")+"[disagg]\nenabled = true\nfabric = \"link\"\nwrite_through = true\n")
	far := startNode(t, dir, "far", listener("tcp://127.0.0.1:0", "gate"))
	gate := startNode(t, dir, "gate", dialler(far.Ports()["link"][0], "far")+fmt.Sprintf("[[link.peer]]\nname = \"edge\"\naddress = %q\ntenants = [\"acme\"]\n", edge.Ports()["link"][0])+
		"[gateway]\ncut_through_bytes = 1024\n[[route]]\nfrom = \"link\"\nfabric = \"link\"\npeer = \"far\"\n"+tracesTo(srv.URL+"/base"))
	gate.ready(t)
	edge.ready(t)
	e := edge.engine(t)
	gate.engine(t)
	e.put(t, e.keys("cut", 1), 64<<10, wire.OutputCritical, 0)
	until(t, "the block went on", func() bool { return gate.mover.BridgeStats().CutThrough == 1 })
	until(t, "the spans came", func() bool { return len(r.tree("meridian.forward", "")) == 1 })
	if got, want := r.tree("meridian.forward", "meridian.attempt", "outcome", "cut_through", "op", "code"), "[forwarded forwarded: cut-through OK]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	list := gate.mover.Log.List(100, "far", false)
	if !slices.ContainsFunc(list, func(x transfer.Record) bool { return x.Op == transfer.OpThrough && x.Bytes == 64<<10 && x.Via == "tcp" }) {
		t.Errorf("%+v", list)
	}
	if v, _ := gate.series(t, `meridian_gateway_cut_through_total{from="link",outcome="forwarded",to="link"}`); v != "1" {
		t.Errorf("the counter is at %q", v)
	}
}
