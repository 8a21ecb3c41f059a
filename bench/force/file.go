package force

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"meridian/internal/safefile"
)

// ReadFile reads a recording from a file. One without a name gets the file's.
func ReadFile(path string) (Recording, error) {
	f, err := safefile.Input(path)
	if err != nil {
		return Recording{}, err
	}
	defer func() { _ = f.Close() }() // it was read only
	r, err := Read(f)
	if err != nil {
		return Recording{}, fmt.Errorf("%s: %w", path, err)
	}
	if r.Header.Name == "" {
		base, _, _ := strings.Cut(filepath.Base(path), ".")
		r.Header.Name = base
	}
	return r, nil
}

// Read reads a recording. It takes no more memory than the bounds of a recording
// allow, whatever comes, and says in which line what is wrong.
func Read(in io.Reader) (Recording, error) {
	b := bufio.NewReader(in)
	var src io.Reader = b
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return Recording{}, fmt.Errorf("gzip: %w", err)
		}
		src = z
	}
	limited := &io.LimitedReader{R: src, N: maxBytes + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	rd := reader{ids: map[string]int{}}
	for lines.Scan() {
		if rd.line++; limited.N <= 0 {
			return Recording{}, fmt.Errorf("line %d: the recording has more than %d MiB", rd.line, maxBytes>>20)
		}
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
			if err := rd.take(text); err != nil {
				return Recording{}, fmt.Errorf("line %d: %w", rd.line, err)
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return Recording{}, fmt.Errorf("line %d is longer than %d MiB", rd.line+1, maxLine>>20)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Recording{}, fmt.Errorf("line %d: the file is truncated: its gzip stream has no end", rd.line+1)
	case err != nil:
		return Recording{}, fmt.Errorf("line %d: %w", rd.line+1, err)
	case rd.r.Header.Version == 0:
		return Recording{}, errors.New("the recording is empty: its first line says its version")
	case len(rd.r.Requests) == 0:
		return Recording{}, errors.New("the recording has no request")
	case rd.r.Header.Requests > 0 && rd.r.Header.Requests != len(rd.r.Requests):
		return Recording{}, fmt.Errorf("the file is truncated: it has %d requests, and its first line says %d", len(rd.r.Requests), rd.r.Header.Requests)
	}
	return rd.r, nil
}

// reader is a recording that is being read.
type reader struct {
	r     Recording
	line  int
	total int // thinking tokens
	ids   map[string]int
}

func (rd *reader) take(text []byte) error {
	if rd.r.Header.Version == 0 {
		if err := unmarshal(text, &rd.r.Header); err != nil {
			return err
		}
		return rd.r.Header.check()
	}
	if len(rd.r.Requests) == maxRequests {
		return fmt.Errorf("more than %d requests", maxRequests)
	}
	var q Request
	if err := unmarshal(text, &q); err != nil {
		return err
	}
	if err := q.check(&rd.r.Header); err != nil {
		return fmt.Errorf("request %.80q: %w", q.ID, err)
	}
	if before, ok := rd.ids[q.ID]; ok {
		return fmt.Errorf("request %.80q is in line %d too", q.ID, before)
	}
	rd.ids[q.ID] = rd.line
	if rd.total += q.Tokens(); rd.total > maxTotalTokens {
		return fmt.Errorf("request %.80q: with it there are %d thinking tokens, at most %d", q.ID, rd.total, maxTotalTokens)
	}
	rd.r.Requests = append(rd.r.Requests, q)
	return nil
}

// unmarshal reads one line, in which nothing may be that has no meaning here, and
// shows the place of what is no JSON: NaN, above all.
func unmarshal(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		at := int(bad.Offset)
		return fmt.Errorf("%w, at byte %d: %.48q", err, at, text[min(max(at-17, 0), len(text)):])
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the line is truncated, it ends with %q", text[max(len(text)-24, 0):])
	}
	if err == nil && dec.More() {
		err = fmt.Errorf("something follows the object, at byte %d: %.48q", dec.InputOffset(), text[dec.InputOffset():])
	}
	return err
}

// Write writes a recording, gzip'd.
func Write(out io.Writer, r Recording) error {
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	r.Header.Version, r.Header.Requests = Version, len(r.Requests)
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&r.Header); err != nil {
		return err
	}
	for i := range r.Requests {
		if err := enc.Encode(&r.Requests[i]); err != nil {
			return err
		}
	}
	return z.Close()
}
