package metadata

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meridian/internal/stranger"
	"meridian/wire"
)

// What a metadata server is asked by.
const (
	HTTPPath = "/metadata" // of the URL; the query has the key

	// EpochHeader carries an owner's epoch to a server that knows of epochs. Others
	// do not look at it.
	EpochHeader = "Meridian-Epoch"
)

// Times of a call, as engines have them.
const (
	httpConnect = 1500 * time.Millisecond
	httpCall    = 5 * time.Second // 3 s of an engine, and what a server needs to ask an owner
)

// httpStore keeps values on a metadata server. Servers know no revisions: between a
// look and a change another owner may come, except where the server asks for itself.
type httpStore struct {
	base   string
	client *http.Client
}

func newHTTP(u *url.URL, t *tls.Config) (*httpStore, error) {
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("metadata server %s: want http://HOST:PORT/PATH: %w", stranger.Quote(u.Redacted()), wire.CodeConfig)
	}
	return &httpStore{base: u.String(), client: &http.Client{
		Timeout:       httpCall,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: httpConnect}).DialContext,
			TLSClientConfig: t, TLSHandshakeTimeout: httpConnect,
			MaxResponseHeaderBytes: 64 << 10, MaxConnsPerHost: 4, IdleConnTimeout: 10 * time.Second,
		},
	}}, nil
}

func (s *httpStore) get(ctx context.Context, k Key) (value, error) {
	key := k.String()
	status, body, err := s.call(ctx, http.MethodGet, key, nil, 0)
	switch {
	case err != nil:
		return value{}, err
	case status == http.StatusNotFound:
		return value{}, nil
	case status != http.StatusOK:
		return value{}, s.refusal(http.MethodGet, key, status, body)
	}
	return value{body: body, there: true}, nil
}

func (s *httpStore) put(ctx context.Context, k Key, body []byte, epoch uint64, was value) error {
	key := k.String()
	if was.there && k.Kind == KindEndpoint {
		// Servers refuse a second rpc_meta, the same one too.
		if bytes.Equal(bytes.TrimSpace(was.body), body) {
			return nil
		}
		if err := s.remove(ctx, k, epoch, was); err != nil {
			return err
		}
	}
	status, text, err := s.call(ctx, http.MethodPut, key, body, epoch)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return s.refusal(http.MethodPut, key, status, text)
	}
	return nil
}

func (s *httpStore) remove(ctx context.Context, k Key, epoch uint64, _ value) error {
	key := k.String()
	status, text, err := s.call(ctx, http.MethodDelete, key, nil, epoch)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK && status != http.StatusNotFound:
		return s.refusal(http.MethodDelete, key, status, text)
	}
	return nil
}

func (s *httpStore) close() error {
	s.client.CloseIdleConnections()
	return nil
}

// call sends one request. The key goes as engines write it: one of the servers
// compares it in this form, without decoding it.
func (s *httpStore) call(ctx context.Context, method, key string, body []byte, epoch uint64) (int, []byte, error) {
	target := s.base + "?key=" + strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("metadata server %s: %w: %w", s.base, wire.CodeInvalid, err)
	}
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
	}
	if epoch > 0 {
		req.Header.Set(EpochHeader, strconv.FormatUint(epoch, 10))
	}
	resp, err := s.client.Do(req)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		body, err = io.ReadAll(io.LimitReader(resp.Body, MaxBytes+1))
	}
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // its text repeats the whole URL
		}
		code := wire.CodeUnreachable
		if ctx.Err() != nil {
			code = wire.CodeOf(ctx.Err())
		}
		return 0, nil, fmt.Errorf("metadata server %s, %s %s: %w: %w", s.base, method, stranger.Quote(key), code, err)
	}
	if len(body) > MaxBytes {
		return 0, nil, &SizeError{Key: key, Bytes: len(body)}
	}
	return resp.StatusCode, body, nil
}

func (s *httpStore) refusal(method, key string, status int, text []byte) error {
	code := wire.CodeUnreachable
	if status >= 400 && status < 500 {
		code = wire.CodeDenied
	}
	return fmt.Errorf("metadata server %s, %s %s: status %d, %s: %w", s.base, method, stranger.Quote(key), status, stranger.Quote(strings.TrimSpace(string(text))), code)
}
