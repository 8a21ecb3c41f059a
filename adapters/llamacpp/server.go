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
	"time"
)

// Bounds of the server's answers, in bytes.
const (
	maxAnswer = 64 << 20 // a probability for each token of a large vocabulary is 110 bytes
	maxLine   = maxAnswer
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
	http *http.Client
	base string
}

// NewServer is a client of the server at addr: http://host:port, or the path of
// its Unix socket.
func NewServer(addr string) *Server {
	t := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true}
	s := &Server{http: &http.Client{Transport: t}, base: strings.TrimRight(addr, "/")}
	if !strings.Contains(addr, "://") {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		}
		s.base = "http://localhost"
	}
	return s
}

// Close drops idle connections.
func (s *Server) Close() { s.http.CloseIdleConnections() }

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
		return nil, errorOf(resp)
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

func errorOf(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	var out struct {
		Error struct{ Type, Message string }
	}
	if err == nil && json.Unmarshal(b, &out) == nil && out.Error.Message != "" {
		return &Error{Status: resp.StatusCode, Type: out.Error.Type, Message: out.Error.Message}
	}
	text := strings.ToValidUTF8(string(b[:min(len(b), 200)]), "?")
	return &Error{Status: resp.StatusCode, Type: "unknown", Message: fmt.Sprintf("%s: %q", resp.Status, text)}
}

// call sends a request and reads the answer into out.
func (s *Server) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := s.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return gone(ctx, err)
	case len(b) > maxAnswer:
		return fmt.Errorf("llama-server: %s: the answer is longer than %d bytes", path, maxAnswer)
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
	Context    int // tokens a slot
	Slots      int
	Vocabulary int
	Build      string
	ModelPath  string
}

// Props asks for it.
func (s *Server) Props(ctx context.Context) (Props, error) {
	var p struct {
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Slots int    `json:"total_slots"`
		Build string `json:"build_info"`
		Path  string `json:"model_path"`
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
	if p.Settings.Context < 1 || p.Slots < 1 || p.Build == "" || len(m.Data) == 0 || m.Data[0].Meta.Vocabulary < 1 {
		return Props{}, fmt.Errorf("llama-server: /props and /v1/models do not name the context, the slots, the build and the vocabulary: %+v", p)
	}
	return Props{Context: p.Settings.Context, Slots: p.Slots, Vocabulary: m.Data[0].Meta.Vocabulary, Build: p.Build, ModelPath: p.Path}, nil
}

// Tokenize turns text into ids. special adds what the model's tokenizer puts in
// front; parse reads markers such as <|im_start|> as the tokens that they name.
func (s *Server) Tokenize(ctx context.Context, text string, special, parse bool) ([]int32, error) {
	var out struct{ Tokens []int32 }
	err := s.call(ctx, http.MethodPost, "/tokenize", map[string]any{"content": text, "add_special": special, "parse_special": parse}, &out)
	return out.Tokens, err
}

// Detokenize turns ids into text. Bytes that are no UTF-8 come as U+FFFD.
func (s *Server) Detokenize(ctx context.Context, tokens []int32) (string, error) {
	var out struct{ Content string }
	err := s.call(ctx, http.MethodPost, "/detokenize", map[string]any{"tokens": tokens}, &out)
	return out.Content, err
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ApplyTemplate renders a chat by the model's template, up to where the assistant
// answers.
func (s *Server) ApplyTemplate(ctx context.Context, messages []Message) (string, error) {
	var out struct{ Prompt string }
	err := s.call(ctx, http.MethodPost, "/apply-template", map[string]any{"messages": messages}, &out)
	return out.Prompt, err
}

// SaveSlot writes a slot's state to a file in the server's folder, and returns
// how many tokens it has.
func (s *Server) SaveSlot(ctx context.Context, slot int, file string) (int, error) {
	var out struct {
		N int `json:"n_saved"`
	}
	err := s.slot(ctx, slot, "save", map[string]string{"filename": file}, &out)
	return out.N, err
}

// RestoreSlot reads a state into a slot. On an error the slot is empty.
func (s *Server) RestoreSlot(ctx context.Context, slot int, file string) (int, error) {
	var out struct {
		N int `json:"n_restored"`
	}
	err := s.slot(ctx, slot, "restore", map[string]string{"filename": file}, &out)
	return out.N, err
}

// EraseSlot empties a slot.
func (s *Server) EraseSlot(ctx context.Context, slot int) error {
	return s.slot(ctx, slot, "erase", struct{}{}, &struct{}{})
}

func (s *Server) slot(ctx context.Context, slot int, action string, in, out any) error {
	return s.call(ctx, http.MethodPost, fmt.Sprintf("/slots/%d?action=%s", slot, action), in, out)
}
