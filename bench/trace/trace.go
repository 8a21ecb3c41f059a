package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// BlockTokens is how many tokens one hash id of the FAST '25 traces stands for.
const BlockTokens = 512

// Bounds of a trace. The published ones have 12,031 lines of at most 3 KB, and 288,500 ids.
const (
	maxLine   = 128 << 10 // bytes: twice what the ids of maxTokens take
	maxLines  = 1 << 18   // empty ones too, so that reading ends
	maxBlocks = 1 << 22   // ids of all requests
)

//go:embed conversation_trace.jsonl.gz
var conversation []byte

//go:embed synthetic_trace.jsonl.gz
var synthetic []byte

// Request is one request of a trace.
type Request struct {
	At           time.Duration // since the trace began
	InputTokens  int
	OutputTokens int
	// Blocks are the prompt's block ids, first to last; equal ids mean equal
	// tokens up to and including that block. The last block is usually partial.
	Blocks []int
	Line   int // of the file
}

// Conversation returns the first n requests of the FAST '25 conversation
// trace; n <= 0 returns all 12,031.
func Conversation(n int) ([]Request, error) { return unpack(conversation, n) }

// Synthetic returns the first n requests of the FAST '25 synthetic trace; n <= 0
// returns all 3,993.
func Synthetic(n int) ([]Request, error) { return unpack(synthetic, n) }

func unpack(b []byte, n int) ([]Request, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return Read(z, n)
}

// Bounds of a request: no engine holds a million tokens of one, and a trace of more than
// a year is one whose times are not in milliseconds.
const (
	maxTokens    = 1 << 20
	maxTimestamp = 366 * 24 * 3600 * 1000
)

// Read parses the published JSON lines; n <= 0 reads all of them. An error names the line,
// the field and its value. Whatever comes, it reads and keeps no more than the bounds allow.
func Read(r io.Reader, n int) ([]Request, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	var out []Request
	line, blocks := 0, 0
	for (n <= 0 || len(out) < n) && sc.Scan() {
		if line++; line > maxLines {
			return nil, fmt.Errorf("line %d: a trace has at most %d lines", line, maxLines)
		}
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		q, err := request(sc.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if blocks += len(q.Blocks); blocks > maxBlocks {
			return nil, fmt.Errorf("line %d: hash_ids: with it there are %d of them, at most %d", line, blocks, maxBlocks)
		}
		q.Line = line
		out = append(out, q)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w; a request has at most %d bytes", line+1, err, maxLine)
	}
	return out, nil
}

func request(b []byte) (q Request, err error) {
	var row struct {
		Timestamp    json.RawMessage `json:"timestamp"`
		InputLength  json.RawMessage `json:"input_length"`
		OutputLength json.RawMessage `json:"output_length"`
		HashIDs      json.RawMessage `json:"hash_ids"`
	}
	if err := json.Unmarshal(b, &row); err != nil {
		return q, fmt.Errorf("%w: %.80s", err, b)
	}
	at := 0
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		to   *int
		most int
	}{
		{"timestamp", row.Timestamp, &at, maxTimestamp},
		{"input_length", row.InputLength, &q.InputTokens, maxTokens}, {"output_length", row.OutputLength, &q.OutputTokens, maxTokens},
	} {
		if f.raw == nil {
			return q, fmt.Errorf("%s is missing: %.80s", f.name, b)
		}
		if json.Unmarshal(f.raw, f.to) != nil || bytes.Equal(f.raw, []byte("null")) || *f.to < 0 || *f.to > f.most {
			return q, fmt.Errorf("%s: %.40s: a whole number from 0 to %d", f.name, f.raw, f.most)
		}
	}
	q.At = time.Duration(at) * time.Millisecond
	if row.HashIDs == nil {
		return q, fmt.Errorf("hash_ids is missing: %.80s", b)
	}
	if json.Unmarshal(row.HashIDs, &q.Blocks) != nil {
		return q, fmt.Errorf("hash_ids: %.40s: a list of whole numbers", row.HashIDs)
	}
	if most := (q.InputTokens + BlockTokens - 1) / BlockTokens; len(q.Blocks) > most {
		return q, fmt.Errorf("hash_ids: %d of them, and input_length %d is %d blocks of %d", len(q.Blocks), q.InputTokens, most, BlockTokens)
	}
	q.Blocks = slices.Clip(q.Blocks)
	return q, nil
}
