package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// BlockTokens is how many tokens one hash id of the FAST '25 traces stands for.
const BlockTokens = 512

// maxLine bounds one request's line; the longest of the published traces has 3 KB.
const maxLine = 1 << 20

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

// Read parses the published JSON lines; n <= 0 reads all of them.
func Read(r io.Reader, n int) ([]Request, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	var out []Request
	for line := 1; sc.Scan() && (n <= 0 || len(out) < n); line++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var row struct {
			Timestamp    *int64 `json:"timestamp"`
			InputLength  int    `json:"input_length"`
			OutputLength int    `json:"output_length"`
			HashIDs      []int  `json:"hash_ids"`
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("trace line %d: %w", line, err)
		}
		if row.Timestamp == nil || *row.Timestamp < 0 || row.InputLength < 0 || row.OutputLength < 0 {
			return nil, fmt.Errorf("trace line %d: timestamp and lengths must be there and not negative: %.80s", line, sc.Text())
		}
		out = append(out, Request{
			At:          time.Duration(*row.Timestamp) * time.Millisecond,
			InputTokens: row.InputLength, OutputTokens: row.OutputLength, Blocks: row.HashIDs,
		})
	}
	return out, sc.Err()
}
