package llamacpp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// Bounds of the server's answers, in bytes.
const (
	maxAnswer = 64 << 20 // also of an event; a probability for each token of a large vocabulary is 110 bytes
	maxError  = 64 << 10
)

// ErrGone says that the server cannot be reached, or ended in the middle of an
// answer.
var ErrGone = errors.New("llama-server cannot be reached")

// Error is what the server says of a request that it refused.
type Error struct {
	Status  int
	Type    string // such as exceed_context_size_error
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("llama-server: %s (%s, status %d)", e.Message, e.Type, e.Status)
}

// Server is a client of one llama-server. It is safe for concurrent use.
type Server struct {
	http  *http.Client
	base  string
	slots atomic.Int32 // 0 until Props has been asked for
	limit int          // of an answer and of an event
}

// NewServer is a client of the server at addr: http://host:port, or the path of
// its Unix socket. A server that is started again with another number of slots
// needs a new one.
func NewServer(addr string) *Server {
	// A connection a request: the server says Keep-Alive and closes the connection
	// after each stream, and others after 5 s or 100 requests. A POST that meets that
	// moment is lost, since it is not sent twice.
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	s := &Server{http: &http.Client{Transport: t, CheckRedirect: asItIs}, base: strings.TrimRight(addr, "/"), limit: maxAnswer}
	if !strings.Contains(addr, "://") {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		}
		s.base = "http://localhost"
	}
	return s
}

// asItIs has a redirection returned, which no llama-server sends.
func asItIs(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// do sends a request. The caller closes the body.
func (s *Server) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, gone(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, errorOf(ctx, resp)
	}
	return resp, nil
}

// gone is ctx's own end, or ErrGone.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

// errorOf is what an answer says that is not 200.
func errorOf(ctx context.Context, resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return gone(ctx, err)
	}
	var out struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal(b, &out) == nil && out.Error.Message != "" {
		return &Error{Status: resp.StatusCode, Type: out.Error.Type, Message: out.Error.Message}
	}
	start := strings.ToValidUTF8(string(b[:min(len(b), 200)]), "?")
	return &Error{Status: resp.StatusCode, Type: "unknown", Message: fmt.Sprintf("%s: %q", resp.Status, start)}
}

// call sends a request and reads the answer into out.
func (s *Server) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := s.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(s.limit)+1))
	switch {
	case err != nil:
		return gone(ctx, err)
	case len(b) > s.limit:
		return fmt.Errorf("llama-server: %s: the answer is longer than %d bytes", path, s.limit)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("llama-server: %s: the answer is not what is understood: %w", path, err)
	}
	return nil
}

// Health returns nil when the model is loaded.
func (s *Server) Health(ctx context.Context) error {
	var out struct{ Status string }
	if err := s.call(ctx, http.MethodGet, "/health", nil, &out); err != nil {
		return err
	}
	if out.Status != "ok" {
		return fmt.Errorf("llama-server: health is %q", out.Status)
	}
	return nil
}

// Props is what a server says of itself.
type Props struct {
	Context    int // tokens a slot; a prompt must have fewer
	Slots      int
	Vocabulary int
	Build      string
	Template   string // the source of the chat template; empty: not told
	Model      string // path of its file; empty: it does not say
}

// Props asks for it.
func (s *Server) Props(ctx context.Context) (Props, error) {
	var p struct {
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Slots    int    `json:"total_slots"`
		Template string `json:"chat_template"`
		Build    string `json:"build_info"`
		Model    string `json:"model_path"`
	}
	if err := s.call(ctx, http.MethodGet, "/props", nil, &p); err != nil {
		return Props{}, err
	}
	var m struct {
		Data []struct {
			Meta struct {
				Vocabulary int `json:"n_vocab"`
			}
		}
	}
	if err := s.call(ctx, http.MethodGet, "/v1/models", nil, &m); err != nil {
		return Props{}, err
	}
	if p.Settings.Context < 1 || p.Slots < 1 || p.Slots > maxStreams || p.Build == "" || len(m.Data) == 0 || m.Data[0].Meta.Vocabulary < 1 {
		return Props{}, fmt.Errorf("llama-server: /props and /v1/models name no context, slots (at most %d), build or vocabulary: %d, %d, %q, %v",
			maxStreams, p.Settings.Context, p.Slots, p.Build, m.Data)
	}
	s.slots.Store(int32(p.Slots))
	return Props{Context: p.Settings.Context, Slots: p.Slots, Vocabulary: m.Data[0].Meta.Vocabulary, Build: p.Build, Template: p.Template, Model: p.Model}, nil
}

// Adapter is a LoRA adapter that a server has loaded.
type Adapter struct {
	Path  string
	Scale float64
}

// Adapters lists those that the server applies, or could. A build that does not
// know the request has none.
func (s *Server) Adapters(ctx context.Context) ([]Adapter, error) {
	const path = "/lora-adapters"
	var out []Adapter
	err := s.call(ctx, http.MethodGet, path, nil, &out)
	var said *Error
	if errors.As(err, &said) && said.Status == http.StatusNotFound {
		return nil, nil
	}
	if err == nil && out == nil {
		err = lacks(path, "list")
	}
	return out, err
}

// has refuses a slot that there is not. The server itself would take another.
func (s *Server) has(ctx context.Context, slot int) error {
	n := int(s.slots.Load())
	if n == 0 {
		p, err := s.Props(ctx)
		if err != nil {
			return err
		}
		n = p.Slots
	}
	if slot < 0 || slot >= n {
		return fmt.Errorf("llama-server: slot %d of %d", slot, n)
	}
	return nil
}

// text refuses what JSON cannot carry: it would be changed on the way.
func text(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("llama-server: %s is not valid UTF-8", what)
	}
	return nil
}

// lacks is the error of an answer in which a field is missing.
func lacks(path, field string) error {
	return fmt.Errorf("llama-server: %s: the answer has no %s", path, field)
}

// Tokenize turns text into ids. special adds what the model's tokenizer puts in
// front; parse reads markers such as <|im_start|> as the tokens that they name.
func (s *Server) Tokenize(ctx context.Context, content string, special, parse bool) ([]int32, error) {
	const path = "/tokenize"
	if err := text("text to tokenize", content); err != nil {
		return nil, err
	}
	var out struct{ Tokens []int32 }
	err := s.call(ctx, http.MethodPost, path, map[string]any{"content": content, "add_special": special, "parse_special": parse}, &out)
	if err == nil && out.Tokens == nil {
		err = lacks(path, "tokens")
	}
	return out.Tokens, err
}

// Detokenize turns ids into text. Bytes that are no UTF-8 come as U+FFFD, and
// markers as they are written.
func (s *Server) Detokenize(ctx context.Context, tokens []int32) (string, error) {
	const path = "/detokenize"
	var out struct{ Content *string }
	if err := s.call(ctx, http.MethodPost, path, map[string]any{"tokens": tokens}, &out); err != nil {
		return "", err
	}
	if out.Content == nil {
		return "", lacks(path, "content")
	}
	return *out.Content, nil
}

// Message is one turn of a chat.
type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"` // of an assistant; the template keeps it or leaves it out
}

// ApplyTemplate renders a chat by the model's template, up to where the assistant
// answers. kwargs are variables of the template, in JSON.
func (s *Server) ApplyTemplate(ctx context.Context, messages []Message, kwargs map[string]json.RawMessage) (string, error) {
	const path = "/apply-template"
	for _, m := range messages {
		if err := errors.Join(text("a message's role", m.Role), text("a message", m.Content), text("a message's reasoning", m.Reasoning)); err != nil {
			return "", err
		}
	}
	in := map[string]any{"messages": messages}
	if len(kwargs) > 0 {
		in["chat_template_kwargs"] = kwargs
	}
	var out struct{ Prompt *string }
	if err := s.call(ctx, http.MethodPost, path, in, &out); err != nil {
		return "", err
	}
	if out.Prompt == nil {
		return "", lacks(path, "prompt")
	}
	return *out.Prompt, nil
}

// SaveSlot writes a slot's state to a file in the server's folder, and returns
// how many tokens it has.
func (s *Server) SaveSlot(ctx context.Context, slot int, file string) (int, error) {
	return s.slot(ctx, slot, "save", "n_saved", map[string]string{"filename": file})
}

// RestoreSlot reads a state into a slot, and returns how many tokens it has. On an
// error the slot is empty.
func (s *Server) RestoreSlot(ctx context.Context, slot int, file string) (int, error) {
	return s.slot(ctx, slot, "restore", "n_restored", map[string]string{"filename": file})
}

// EraseSlot empties a slot.
func (s *Server) EraseSlot(ctx context.Context, slot int) error {
	_, err := s.slot(ctx, slot, "erase", "n_erased", struct{}{})
	return err
}

// slot acts on a slot and returns the number of tokens that the named field of
// the answer has.
func (s *Server) slot(ctx context.Context, slot int, action, field string, in any) (int, error) {
	if err := s.has(ctx, slot); err != nil {
		return 0, err
	}
	path := fmt.Sprintf("/slots/%d?action=%s", slot, action)
	var out map[string]any
	if err := s.call(ctx, http.MethodPost, path, in, &out); err != nil {
		return 0, err
	}
	n, ok := out[field].(float64)
	if !ok || n < 0 || n > MaxTokens {
		return 0, lacks(path, field)
	}
	return int(n), nil
}
