package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"meridian/agent/openai"
	"meridian/wire"
)

const defaultChatURL = "http://127.0.0.1:8080"

// chat is a conversation with a server of the OpenAI API. Its answers are the
// one thing that goes to standard output while a command runs: a reader wants
// each word as it comes. As JSON or YAML an answer is a result like any other.
type chat struct {
	a       *app
	remote  *openai.Remote
	url     string
	model   string
	system  string
	request openai.Request // what all turns share

	history []openai.Message // after the system message
}

func newChatCmd(a *app) *cobra.Command {
	s := &chat{a: a}
	var token string
	var noThink bool
	c := &cobra.Command{
		Use:   "chat [PROMPT...]",
		Short: "Talk to a model over a node's OpenAI-compatible front",
		Long: `Sends PROMPT, or else what is piped in, and writes the answer as it comes. On a
terminal without PROMPT it is a conversation: /reset begins it anew, /quit or
the end of input leaves, and ctrl-C ends the answer that is running, or leaves
when none is.

Thinking is shown on a terminal only, dim where there is colour. A line on
standard error says at the end how many tokens came and how fast. --timeout is
the time of one answer, 10 minutes unless it is given.`,
		Example:     "  mrdn chat 'Why is the sky blue?'\n  mrdn chat --system 'Answer in one word.' < question.txt\n  mrdn chat --no-think --json Hello",
		Annotations: map[string]string{accessKey: readOnly},
	}
	f := c.Flags()
	f.StringVar(&s.url, "url", defaultChatURL, "the front, or any server of the OpenAI API [$"+variableNames["url"]+"]")
	f.StringVar(&token, "token", "", "bearer token of the front; the variable keeps it from the list of processes [$MERIDIAN_CLI_CHAT_TOKEN]")
	f.StringVar(&s.model, "model", "", "the model (default: the first that the server lists)")
	f.StringVar(&s.system, "system", "", "system message")
	f.IntVar(&s.request.MaxTokens, "max-tokens", 0, "the longest answer, in tokens (default: to the end of the context)")
	f.Float64Var(&s.request.Temperature, "temperature", 1, "0 to 2; 0 always takes the likeliest token")
	f.StringVar(&s.request.Tier, "service-tier", "", "service tier: "+strings.Join(openai.ServiceTiers, ", ")+"; flex lets others go first (default: the server's)")
	f.BoolVar(&noThink, "no-think", false, "ask the model not to think first")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := s.prepare(token, noThink); err != nil {
			return err
		}
		if len(args) == 0 && isTerminal(a.in) {
			if a.output == "json" || a.output == "yaml" {
				return usage("-o %s takes one answer: give a PROMPT", a.output)
			}
			return s.converse(c)
		}
		return a.longCommand(s.once)(c, args)
	}
	return c
}

func (s *chat) prepare(token string, noThink bool) error {
	switch r := &s.request; {
	case r.MaxTokens < 0:
		return usage("--max-tokens %d: it must not be below 0", r.MaxTokens)
	case !(r.Temperature >= 0 && r.Temperature <= 2):
		return usage("--temperature %v: it must be between 0 and 2", r.Temperature)
	case r.Tier != "" && !slices.Contains(openai.ServiceTiers, r.Tier):
		return usage("--service-tier: %q is none of %s", r.Tier, strings.Join(openai.ServiceTiers, ", "))
	}
	if u, err := url.Parse(s.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage("--url %q: it must begin with http:// or https:// and name a host", s.url)
	}
	s.request.Chat, s.request.TopP, s.request.LogProbs = true, 1, -1
	if noThink {
		think := false
		s.request.Think = &think
	}
	s.remote = openai.NewRemote(openai.ClientConfig{URL: s.url, Token: token})
	return nil
}

// once is one prompt and its answer.
func (s *chat) once(ctx context.Context, args []string) (result, error) {
	prompt := strings.Join(args, " ")
	if len(args) == 0 {
		in := func() (io.ReadCloser, error) { return io.NopCloser(s.a.in), nil }
		b, err := readUntil(ctx, "standard input", openai.MaxBody, in)
		if err != nil {
			return nil, err
		}
		if len(b) > openai.MaxBody {
			return nil, usage("the prompt on standard input is longer than %d bytes", openai.MaxBody)
		}
		prompt = string(b)
	}
	if strings.TrimSpace(prompt) == "" {
		return nil, usage("the prompt is empty")
	}
	if s.a.output == "json" || s.a.output == "yaml" {
		r, err := s.ask(ctx, prompt, nil)
		if err != nil {
			return nil, s.failure(err)
		}
		return r, nil
	}
	p := s.printer()
	r, err := s.ask(ctx, prompt, p)
	if e := p.end(); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, s.failure(err)
	}
	_, err = fmt.Fprintln(s.a.err, r.summary())
	return nil, err
}

// ask runs one turn. What comes goes to p, unless that is nil. A turn that
// fails is not part of the conversation.
func (s *chat) ask(ctx context.Context, prompt string, p *printer) (*chatResult, error) {
	if !utf8.ValidString(prompt) || !utf8.ValidString(s.system) {
		return nil, usage("the prompt and --system must be UTF-8")
	}
	if err := s.chooseModel(ctx); err != nil {
		return nil, err
	}
	req := s.request
	req.Model = s.model
	if s.system != "" {
		req.Messages = append(req.Messages, openai.Message{Role: "system", Content: s.system})
	}
	turn := append(s.history[:len(s.history):len(s.history)], openai.Message{Role: "user", Content: prompt})
	req.Messages = append(req.Messages, turn...)

	var text, reasoning strings.Builder
	start := time.Now()
	var first time.Time
	res, err := s.remote.Generate(ctx, &req, func(t openai.Token) error {
		if first.IsZero() {
			first = time.Now()
		}
		if t.Thinking {
			reasoning.Write(t.Bytes)
		} else {
			text.Write(t.Bytes)
		}
		if p == nil {
			return nil
		}
		return p.token(t)
	})
	if err != nil {
		return nil, err
	}
	r := &chatResult{
		Model: req.Model, Text: text.String(), Reasoning: reasoning.String(), Finish: res.Finish,
		PromptTokens: res.Prompt, CachedTokens: res.Cached, Tokens: res.Completion, ThinkingTokens: res.Thinking, Forced: res.Forced, Node: res.Node,
	}
	if !first.IsZero() {
		r.TTFT = first.Sub(start).Seconds()
		if rest := time.Since(first).Seconds(); r.Tokens > 1 && rest > 0 {
			r.Rate = float64(r.Tokens-1) / rest
		}
	}
	s.history = append(turn, openai.Message{Role: "assistant", Content: r.Text})
	return r, nil
}

func (s *chat) chooseModel(ctx context.Context) error {
	if s.model != "" {
		return nil
	}
	all, err := s.remote.Models(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return failed("wait until its engine is ready", "%s lists no model", s.url)
	}
	s.model = all[0].ID
	return nil
}

// failure gives an error of the server its exit code and hint.
func (s *chat) failure(err error) error {
	var said *openai.Error
	if !errors.As(err, &said) {
		return err
	}
	f := &failure{err: errors.New(said.Message), exit: exitFailed}
	switch {
	case said.Code == openai.CodeUnreachable:
		f.err = errors.Unwrap(said)
		f.hint, f.exit, f.code = "is a front there? --url or "+variableNames["url"]+" names it", exitUnreachable, wire.CodeUnreachable
	case said.Code == openai.CodeBroken:
		f.err = errors.Unwrap(said)
		f.exit, f.code = exitUnreachable, wire.CodeLaneLost
	case said.Code == "model_not_found":
		f.hint, f.code = "without --model it is the first that the server lists", wire.CodeAbsent
	case said.Status == http.StatusUnauthorized:
		f.hint, f.exit, f.code = "--token or MERIDIAN_CLI_CHAT_TOKEN gives the bearer token", exitRefused, wire.CodeAuth
	case said.Status == http.StatusForbidden:
		f.exit, f.code = exitRefused, wire.CodeDenied
	case said.Status == http.StatusTooManyRequests:
		f.hint, f.exit, f.code = "try again when fewer requests run", exitRefused, wire.CodeBusy
	case said.Status == http.StatusServiceUnavailable, said.Status == http.StatusBadGateway, said.Status == http.StatusGatewayTimeout:
		f.hint, f.exit, f.code = "the node's log says what is with its engine", exitUnreachable, wire.CodeUnreachable
	case said.Status < 500:
		f.exit, f.code = exitUsage, wire.CodeInvalid
	}
	return f
}

// chatResult is one answer.
type chatResult struct {
	Model          string         `json:"model"`
	Text           string         `json:"text"`
	Reasoning      string         `json:"reasoning,omitempty"`
	Finish         string         `json:"finish_reason"`
	PromptTokens   int            `json:"prompt_tokens"`
	CachedTokens   int            `json:"cached_tokens"`
	Tokens         int            `json:"completion_tokens"`
	ThinkingTokens int            `json:"reasoning_tokens"`
	Forced         string         `json:"forced,omitempty"`
	TTFT           float64        `json:"ttft_seconds"`
	Rate           float64        `json:"tokens_per_second"`
	Node           map[string]any `json:"node,omitempty"`
}

func (r *chatResult) grid(bool) grid { return grid{rows: [][]string{{r.Text}}} }

// summary is the line at the end. The time of the first token is the client's;
// the rate is of those after it.
func (r *chatResult) summary() string {
	parts := []string{count(r.Tokens, "token")}
	if r.ThinkingTokens > 0 {
		parts[0] += fmt.Sprintf(" (%d thinking)", r.ThinkingTokens)
	}
	if r.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.1f tok/s", r.Rate))
	}
	if r.TTFT > 0 {
		parts = append(parts, "TTFT "+duration(time.Duration(r.TTFT*float64(time.Second))))
	}
	parts = append(parts, fmt.Sprintf("%d of %d prompt tokens cached", r.CachedTokens, r.PromptTokens))
	if r.Forced != "" {
		parts = append(parts, "thinking was ended: "+printable(r.Forced))
	}
	if r.Finish != "stop" {
		parts = append(parts, "ended by "+printable(r.Finish))
	}
	return strings.Join(parts, ", ")
}

// printer writes an answer as it comes.
type printer struct {
	out      io.Writer
	terminal bool
	colour   bool

	thinking bool // the last that was written is
	wrote    bool
	newline  bool // the last byte written is one
}

func (s *chat) printer() *printer {
	return &printer{out: s.a.out, terminal: s.a.terminal, colour: s.a.terminal && !s.a.noColor}
}

const (
	dim      = "\x1b[2m"
	undimmed = "\x1b[0m"
)

// token writes one. In a pipe there is the answer alone, as it is; on a terminal
// thinking stands before it, and control characters that a model or a server
// has chosen stay away.
func (p *printer) token(t openai.Token) error {
	text := string(t.Bytes)
	if t.Thinking && !p.terminal || text == "" {
		return nil
	}
	if p.terminal {
		text = plain(text)
	}
	var b strings.Builder
	switch {
	case t.Thinking && !p.thinking && p.colour:
		b.WriteString(dim)
	case !t.Thinking && p.thinking:
		b.WriteString(p.afterThinking())
	}
	p.thinking = t.Thinking
	b.WriteString(text)
	p.wrote, p.newline = true, strings.HasSuffix(text, "\n")
	_, err := io.WriteString(p.out, b.String())
	return err
}

func (p *printer) afterThinking() string {
	s := "\n\n"
	if p.newline {
		s = "\n"
	}
	if p.colour {
		s = undimmed + s
	}
	return s
}

// end leaves the terminal as it was, at the beginning of a line.
func (p *printer) end() error {
	s := ""
	if p.thinking && p.colour {
		s = undimmed
	}
	if p.wrote && !p.newline {
		s += "\n"
	}
	_, err := io.WriteString(p.out, s)
	return err
}
