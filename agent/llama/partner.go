package llama

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"meridian/agent/openai"
)

// How long a partner may be silent, and when one that was is tried again.
const (
	// silence is how long this node waits for the next sign of life: a whole line
	// of an answer, since single bytes are none. It waits as long for the next sign of
	// progress, beyond what the partner says that its step may take. A prompt waits so
	// long once; while the partner is away, later ones are this node's from the start.
	silence = 2 * time.Second

	firstProbe = time.Second
	lastProbe  = 30 * time.Second
	// A partner that is lost again within relapse after it came back is left alone
	// for twice as long as before.
	relapse = time.Minute
	maxHold = 5 * time.Minute
)

var (
	errSilent = fmt.Errorf("the partner has given no sign of life for %v", silence)
	errIdle   = fmt.Errorf("the partner lives, and has made no progress for %v beyond what its step may take", silence)
	errStuck  = errors.New("the partner lives, and is not done within llama.partner_timeout")
	errLost   = errors.New("the partner prefilled, and its blocks cannot be had")
)

// partner is the other node of a split.
type partner struct {
	url     string
	token   string
	bound   time.Duration // for a prompt, and for the next token
	http    *http.Client
	remote  *openai.Remote
	log     *slog.Logger
	run     context.Context                // ends with the node
	spawn   func(func())                   // runs a function that the node's end waits for
	blocked func(partner string) error     // why blocks cannot be had from the partner; nil: they can
	count   func(operation, reason string) // of prompts that the partner should have had

	mu   sync.Mutex
	name string        // its daemon's; empty: not known yet
	away error         // why it is not asked; nil: it is
	back time.Time     // when it last came back
	hold time.Duration // the first wait before it is tried again
	said string        // of its blocks, in the log
}

func newPartner(n *Node) *partner {
	url, token := strings.TrimRight(n.cfg.Partner, "/"), n.cfg.Token
	t := &http.Transport{MaxIdleConnsPerHost: MaxSlots, MaxConnsPerHost: MaxSlots + waitingPerNode, IdleConnTimeout: time.Minute}
	if path, ok := strings.CutPrefix(url, "unix://"); ok {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		url = "http://localhost"
	}
	p := &partner{url: url, token: token, bound: cmp.Or(n.cfg.PartnerTimeout, DefaultPartnerTimeout), log: n.log, run: n.run, spawn: n.wg.Go, blocked: n.cfg.Blocked, count: n.stats.fallback}
	p.connect(t)
	return p
}

func (p *partner) connect(t http.RoundTripper) {
	p.http = &http.Client{Transport: t}
	p.remote = openai.NewRemote(openai.ClientConfig{URL: p.url, Token: p.token, HTTP: p.http, Silence: silence, Stalled: silence, Stuck: p.bound})
}

func (p *partner) close() { p.http.CloseIdleConnections() }

// The reasons of fallbacks, as metric labels use them.
const (
	fellAway    = "away"    // it was lost before, and has not come back
	fellPeer    = "peer"    // its daemon is no peer that is ready, so its blocks could not be had
	fellSilent  = "silent"  // no sign of life for as long as silence
	fellStuck   = "stuck"   // signs of life, and no progress, or not done within llama.partner_timeout
	fellRefused = "refused" // it answered with an error
	fellGone    = "unreachable"
	fellLost    = "lost" // it prefilled, and its blocks could not be had
)

var (
	// FallbackReasons are all of them.
	FallbackReasons = []string{fellAway, fellPeer, fellSilent, fellStuck, fellRefused, fellGone, fellLost}
	// FallbackOperations are what a partner is asked for.
	FallbackOperations = []string{"prefill", "decode"}
)

// worth says why the partner is not worth asking now; nil: it is. The reason was
// counted.
func (p *partner) worth(operation string) error {
	if why := p.state(); why != nil {
		p.count(operation, map[bool]string{true: fellAway, false: fellPeer}[p.isAway()])
		return why
	}
	return nil
}

func (p *partner) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away != nil
}

// state is why the partner is not asked, and is told in the log when it changes.
func (p *partner) state() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return p.away
	}
	if p.blocked == nil {
		return nil
	}
	err, said := p.blocked(p.name), ""
	if err != nil {
		said = err.Error()
	}
	if said != p.said {
		p.said = said
		if err != nil {
			p.log.Warn("the partner is not asked: its blocks could not be had, and each prompt would be computed twice", "why", err)
		} else {
			p.log.Info("blocks of the partner can be had, so it is asked again")
		}
	}
	return err
}

// knows notes the partner's name, by which its daemon is found among the peers.
func (p *partner) knows(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

// failed acts on what asking the partner has come to, and counts it. One that is
// silent or cannot be reached is away until a probe finds it well.
func (p *partner) failed(operation string, err error) {
	reason, gone := fellGone, true
	var said *openai.Error
	switch {
	case errors.Is(err, errSilent), errors.Is(err, openai.ErrSilent):
		reason = fellSilent
	case errors.Is(err, errStuck), errors.Is(err, errIdle), errors.Is(err, openai.ErrStuck), errors.Is(err, openai.ErrStalled):
		reason = fellStuck
	case errors.Is(err, errLost):
		reason = fellLost
	case errors.As(err, &said) && said.Code != openai.CodeUnreachable && said.Code != openai.CodeBroken:
		reason, gone = fellRefused, false
	}
	p.count(operation, reason)
	if gone {
		p.lose(err, errors.Is(err, errStuck) || errors.Is(err, openai.ErrStuck))
		return
	}
	p.log.Warn("the partner refused, so this node goes on by itself", "operation", operation, "err", err)
}

// lose stops asking the partner, and has it probed in the background. A probe finds
// one well that works and is never done, so that is left alone for longer than it
// has cost.
func (p *partner) lose(err error, never bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil || p.run.Err() != nil {
		return
	}
	p.away = err
	switch {
	case never:
		p.hold = max(min(2*max(p.hold, p.bound), maxHold), p.bound)
	case time.Since(p.back) < relapse:
		p.hold = min(2*p.hold, maxHold)
	default:
		p.hold = firstProbe
	}
	p.log.Warn("the partner is away: this node goes on by itself until it is well again", "err", err, "next_try_in", p.hold)
	hold := p.hold
	p.spawn(func() { p.recover(hold) })
}

// recover probes the partner until it is well.
func (p *partner) recover(pause time.Duration) {
	for {
		sleep(p.run, pause, nil)
		if p.run.Err() != nil {
			return
		}
		err := p.probe(p.run)
		if err == nil {
			break
		}
		p.log.Debug("the partner is still away", "err", err)
		pause = max(pause, min(2*pause, lastProbe))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.back = nil, time.Now()
	p.log.Info("the partner is well again, so it is asked again")
}

// silenceOf is err, or errSilent, errIdle or errStuck for the end of a context that
// a watchdog ended.
func silenceOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errSilent) || errors.Is(cause, errIdle) || errors.Is(cause, errStuck)) {
		return cause
	}
	return err
}

// watched is a context that ends when heard is not called for as long as silence,
// or tells of no progress.
func watched(ctx context.Context) (_ context.Context, heard func(*openai.Progress), stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	life := time.AfterFunc(silence, func() { cancel(errSilent) })
	work := openai.NewWatchdog(silence, func() { cancel(errIdle) })
	heard = func(p *openai.Progress) {
		life.Reset(silence)
		if p == nil { // it says nothing of its work
			p = &openai.Progress{}
		}
		work.Saw(*p)
	}
	return ctx, heard, func() { life.Stop(); work.Stop(); cancel(nil) }
}

// probe asks the partner whether it could prefill. An older one that does not
// know the question is well if it answers at all.
func (p *partner) probe(ctx context.Context) error {
	ctx, _, stop := watched(ctx)
	defer stop()
	resp, err := p.ask(ctx, http.MethodGet, nil)
	if err != nil {
		return silenceOf(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	switch {
	case err != nil:
		return silenceOf(ctx, err)
	case resp.StatusCode >= 500:
		return openai.ErrorOf(resp.StatusCode, body)
	}
	var r PrefillReply
	if json.Unmarshal(body, &r) == nil && r.Agent != "" {
		p.knows(r.Agent)
	}
	return nil
}

// maxReply bounds a line of a partner's answer.
const maxReply = 64 << 10

// ask sends a request to the partner's PrefillPath.
func (p *partner) ask(ctx context.Context, method string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+PrefillPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", linesType+", application/json")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	return p.http.Do(req)
}

// prefill asks the partner and waits until the prompt's blocks can be pulled, as
// long as it makes progress, and no longer than its bound.
func (p *partner) prefill(ctx context.Context, q PrefillRequest) (out PrefillReply, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.bound, errStuck)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return out, err
	}
	ctx, heard, stop := watched(ctx)
	defer stop()
	defer func() { err = silenceOf(ctx, err) }()
	resp, err := p.ask(ctx, http.MethodPost, body)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == linesType && resp.StatusCode == http.StatusOK {
		return lastLine(resp.Body, heard)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return out, err
	}
	if resp.StatusCode != http.StatusOK {
		return out, openai.ErrorOf(resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("the partner's answer: %w", err)
	}
	return out, nil
}

// lastLine reads signs of life until the line that is the answer.
func lastLine(r io.Reader, heard func(*openai.Progress)) (PrefillReply, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxReply)
	for lines.Scan() {
		var line prefillLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return PrefillReply{}, fmt.Errorf("a line of the partner's answer: %w", err)
		}
		heard(line.Progress)
		switch {
		case line.Reply != nil:
			return *line.Reply, nil
		case line.Error != nil:
			return PrefillReply{}, openai.ErrorOf(line.Status, lines.Bytes())
		}
	}
	return PrefillReply{}, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// Partner is what is known of the other node of a split.
type Partner struct {
	URL  string
	Name string // its daemon's; empty: not known yet
	Why  error  // why it is not asked now; nil: it is
}

// Partner tells about the partner; false without one.
func (n *Node) Partner() (Partner, bool) {
	if n.partner == nil {
		return Partner{}, false
	}
	why := n.partner.state()
	n.partner.mu.Lock()
	defer n.partner.mu.Unlock()
	return Partner{URL: n.cfg.Partner, Name: n.partner.name, Why: why}, true
}
