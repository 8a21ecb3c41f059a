package real

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/agent/openai"
	"meridian/bench/harness"
	"meridian/internal/safefile"
)

// Times of a node.
const (
	startTime = 3 * time.Minute // until it has loaded its model
	pageTime  = 10 * time.Second
	restTime  = 30 * time.Second // until what was cancelled has left it
	restEvery = 50 * time.Millisecond
	killAfter = 5 * time.Second // of a node that does not end, when the run was stopped
	maxPage   = 8 << 20
)

// node is one that is asked.
type node struct {
	arm   Arm
	url   string // of its front
	token string
	pages string // URL of its metrics; "": not known
	model string
	build string // of its llama-server; "": not known
	flex  bool   // it has tiers of service

	http *http.Client
	proc *harness.Process // nil: it is somebody else's
}

// start starts a daemon with a llama-server in a folder.
func start(ctx context.Context, opt *Options, arm Arm, dir string) (_ *node, err error) {
	o := &opt.Node
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	text, err := configuration(opt, arm, at)
	if err != nil {
		return nil, err
	}
	if err := safefile.Write(at("meridian.toml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := harness.Again(o.Self, at("meridian.toml"), at("ports.json"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C is for this process, which ends its nodes
	n := &node{arm: arm, model: o.Name, http: newHTTP()}
	if n.proc, err = harness.Start("the node of "+arm.Name, cmd, harness.Options{Log: at("log"), Term: true}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(ctx))
		}
	}()
	ports, err := n.proc.Ports(ctx, at("ports.json"))
	if err != nil {
		return nil, err
	}
	if len(ports["openai"]) == 0 || len(ports["http"]) == 0 {
		return nil, fmt.Errorf("%s has bound no front and no status page: %v", n.proc.Name, ports)
	}
	n.url, n.pages = ports["openai"][0], ports["http"][0]
	if err := n.ready(ctx); err != nil {
		return nil, err
	}
	props, err := llamacpp.NewServer(at("llama/run/llama.sock")).Props(ctx)
	n.build = props.Build
	return n, err
}

// configuration is the node's, as an operator would write it: its service levels are those
// by which the report judges.
func configuration(opt *Options, arm Arm, at func(string) string) (string, error) {
	o := &opt.Node
	args, err := json.Marshal(o.Args) // also a TOML list of basic strings
	if err != nil {
		return "", err
	}
	if o.Args == nil {
		args = []byte("[]")
	}
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p("[agent]\nname = %q\nstate_dir = %q", "bench", at("state"))
	p("[engine]\nsocket = %q\n[admin]\nsocket = %q", at("engine.sock"), at("admin.sock"))
	if o.Capacity > 0 {
		p("[kv_memory]\ncapacity_bytes = %d", o.Capacity)
	}
	p("[llama]\nmodel = %q\nserver = %q\nargs = %s\nname = %q\ndir = %q", o.Model, o.Server, args, o.Name, at("llama"))
	p("context = %d\nslots = %d\nthreads = %d", o.Context, o.Slots, o.Threads)
	p("think_start = \"<think>\"\nthink_end = \"</think>\"\nthink_open = true") // a model that does not think is made to
	p("%s\n[scheduler]\nmin_think_tokens = 0", o.Llama)
	p("first_answer_budget_ms = %g\nthink_tpot_budget_ms = %g\noutput_tpot_budget_ms = %g", ms(opt.FirstAnswer), ms(opt.ThinkPace), ms(opt.OutputPace))
	if arm.Policy != "" {
		p("policy = %s", strconv.Quote(arm.Policy))
	}
	p("%s", o.Extra)
	return b.String(), nil
}

// ready waits until the node serves, or says that it never will.
func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := harness.Poll(ctx, n.proc, func() error {
		code, text, err := n.page(ctx, "/readyz")
		switch why, never := cutLine(text, "llama.failed: "); {
		case err != nil || code == http.StatusOK:
			return err
		case never:
			cancel(fmt.Errorf("%s cannot serve: %s", n.proc.Name, why))
		}
		return fmt.Errorf("it waits for this: %s", strings.TrimSpace(text))
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}
	if err != nil {
		return fmt.Errorf("%s does not serve: %w%s", n.proc.Name, err, n.proc.Tail())
	}
	return nil
}

// cutLine is what follows prefix in the line that begins with it.
func cutLine(text, prefix string) (string, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// use is a node that runs already, of which only the front is known.
func use(ctx context.Context, arm Arm, token string) (*node, error) {
	n := &node{arm: arm, url: arm.Front, token: token, http: newHTTP()}
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	list, err := openai.NewClient(openai.ClientConfig{URL: n.url, Token: token, HTTP: n.http}).Models(ctx)
	if err == nil && len(list) == 0 {
		err = errors.New("it has no model")
	}
	if err != nil {
		n.http.CloseIdleConnections()
		return nil, fmt.Errorf("the front of %s, %s: %w", arm.Name, arm.Front, err)
	}
	n.model = list[0].ID
	return n, nil
}

func newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxClients}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// probe asks short questions, so that the model is warm, and finds out whether the node
// has tiers of service, and whether it can be told how long to think.
func (n *node) probe(ctx context.Context, thinks bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	q := request{prompt: "Say hello.", answer: 2, flex: true}
	n.flex = true
	s := n.ask(ctx, q)
	var said *openai.Error
	if errors.As(s.err, &said) && said.Param == "service_tier" {
		n.flex = false
		s = n.ask(ctx, q)
	}
	if s.err == nil && thinks {
		q.think = 2
		if s = n.ask(ctx, q); errors.As(s.err, &said) && said.Status == http.StatusBadRequest {
			return fmt.Errorf("%s does not think as it is told: %w; a reasoning ratio of 0 asks for no thinking", n.arm.Name, s.err)
		}
	}
	if s.err != nil {
		return fmt.Errorf("%s does not answer: %w", n.arm.Name, s.err)
	}
	return nil
}

// page reads one of the operator's pages.
func (n *node) page(ctx context.Context, path string) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.pages+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	return resp.StatusCode, string(b), err
}

// series are the values of a metrics page by name and labels.
type series map[string]float64

// metrics reads what the daemon counts; nil where its pages are not known.
func (n *node) metrics(ctx context.Context) (series, error) {
	if n.pages == "" {
		return nil, nil
	}
	code, text, err := n.page(ctx, "/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("the metrics of %s: %w", n.arm.Name, err)
	}
	return parseSeries(text), nil
}

func parseSeries(text string) series {
	all := series{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = v
		}
	}
	return all
}

// sum adds up the series of a name, with whatever labels; ok says whether there is any.
func (s series) sum(name string) (v float64, ok bool) {
	for k, x := range s {
		if k == name || strings.HasPrefix(k, name+"{") {
			v, ok = v+x, true
		}
	}
	return v, ok
}

// rest waits until the node runs no request: what was cancelled may go on for a moment.
func (n *node) rest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	t := time.NewTicker(restEvery)
	defer t.Stop()
	for {
		m, err := n.metrics(ctx)
		if err != nil {
			return err
		}
		busy, known := m.sum(`meridian_llama_slots{state="busy"}`)
		if !known || busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still runs %v requests that were cancelled: %w", n.arm.Name, busy, ctx.Err())
		case <-t.C:
		}
	}
}

// close ends the node, if it was started here: at once, where the run was stopped.
func (n *node) close(ctx context.Context) error {
	n.http.CloseIdleConnections()
	if n.proc == nil {
		return nil
	}
	if ctx.Err() != nil {
		t := time.AfterFunc(killAfter, n.proc.Kill)
		defer t.Stop()
	}
	return n.proc.Stop()
}
