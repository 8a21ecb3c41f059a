package trace

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestTheTracesAreThoseThatSourceMdNames(t *testing.T) {
	doc, err := os.ReadFile("SOURCE.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"conversation": conversation, "synthetic": synthetic} {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		if _, err := io.Copy(h, z); err != nil {
			t.Fatal(err)
		}
		reqs, err := unpack(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := LRU(reqs, 0)
		row := fmt.Sprintf("| %s | %d | %d | %d | `%s` |", name, len(reqs), got.Lookups, got.Distinct, hex.EncodeToString(h.Sum(nil)))
		if !bytes.Contains(bytes.ReplaceAll(doc, []byte(","), nil), []byte(row)) {
			t.Errorf("SOURCE.md has no row %s", row)
		}
	}
}

// The published figures: 0.3664 without bound, and plain LRU by cache size.
func TestIdealHitRatiosOfTheConversationTrace(t *testing.T) {
	reqs, err := Conversation(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(reqs) != 12031 {
		t.Fatalf("%d requests, want 12031", len(reqs))
	}
	for _, c := range []struct {
		blocks int
		want   float64
		tol    float64
	}{{0, 0.3664, 0.00005}, {1000, 0.044, 0.002}, {10000, 0.211, 0.002}, {50000, 0.355, 0.002}, {100000, 0.364, 0.002}} {
		got := LRU(reqs, c.blocks)
		if math.Abs(got.Ratio()-c.want) > c.tol {
			t.Errorf("capacity %d: ratio %.4f, want %.4f", c.blocks, got.Ratio(), c.want)
		}
		if got.Lookups != 288500 || got.Distinct != 182790 {
			t.Errorf("capacity %d: %d lookups of %d distinct blocks, want 288500 of 182790", c.blocks, got.Lookups, got.Distinct)
		}
	}
}

const goodLine = `{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [0]}`

func TestReadNamesTheLineTheFieldAndTheValue(t *testing.T) {
	for change, want := range map[string]string{
		`0, -> `:                                 `line 3: `,
		`"timestamp": 0, -> `:                    `line 3: timestamp is missing: { "input_length"`,
		`0, -> "0", `:                            `line 3: timestamp: "0": a whole number from 0`,
		`0, -> null, `:                           `line 3: timestamp: null: a whole number`,
		`0, -> 99999999999999, `:                 `line 3: timestamp: 99999999999999: a whole number`,
		`"input_length": 3, -> `:                 `line 3: input_length is missing`,
		`3 -> -1`:                                `line 3: input_length: -1: a whole number from 0 to 1048576`,
		`3 -> 3.5`:                               `line 3: input_length: 3.5: a whole number`,
		`3 -> 1e30`:                              `line 3: input_length: 1e30: a whole number`,
		`1, -> 1048577,`:                         `line 3: output_length: 1048577: a whole number from 0 to 1048576`,
		`, "hash_ids": [0] -> `:                  `line 3: hash_ids is missing`,
		`[0] -> [0, "x"]`:                        `line 3: hash_ids: [0, "x"]: a list of whole numbers`,
		`[0] -> ` + strings.Repeat("[", maxLine): `line 3: bufio.Scanner: token too long; a request has at most 131072 bytes`,
		`[0] -> [0, 1]`:                          `line 3: hash_ids: 2 of them, and input_length 3 is 1 blocks of 512`,
		`3 -> 0`:                                 `line 3: hash_ids: 1 of them, and input_length 0 is 0 blocks of 512`,
	} {
		from, to, _ := strings.Cut(change, " -> ")
		bad := strings.Replace(goodLine, from, to, 1)
		if _, err := Read(strings.NewReader(goodLine+"\n\n"+bad), 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.80s: error %.200v, want %s", bad, err, want)
		}
	}
}

func TestReadStopsAfterN(t *testing.T) {
	got, err := Read(strings.NewReader(goodLine+"\n\n"+strings.NewReplacer("3", "513", "[0]", "[1, 2]").Replace(goodLine)+"\nnot reached"), 2)
	if err != nil || len(got) != 2 || len(got[1].Blocks) != 2 || got[1].Line != 3 || got[1].InputTokens != 513 || got[1].OutputTokens != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

// endless repeats a text for ever, and counts what was read of it.
type endless struct {
	text string
	at   int
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	e.read += len(p)
	return len(p), nil
}

// A trace without end is refused at the bound that it comes to first, and costs no more
// memory than that bound.
func TestATraceWithoutEndIsRefused(t *testing.T) {
	most := strings.Replace(goodLine, "3", fmt.Sprint(maxTokens), 1)
	ids := strings.TrimSuffix(strings.Repeat("7,", maxTokens/BlockTokens), ",")
	for name, c := range map[string]struct {
		line, want string
		most       uint64 // bytes that are kept
	}{
		"requests":    {goodLine + "\n", fmt.Sprintf("line %d: a trace has at most %d lines", maxLines+1, maxLines), 64 << 20},
		"empty lines": {"\n", fmt.Sprintf("line %d: a trace has at most %d lines", maxLines+1, maxLines), 1 << 20},
		"ids":         {strings.Replace(most, "[0]", "["+ids+"]", 1) + "\n", "line 2049: hash_ids: with it there are 4196352 of them, at most 4194304", 64 << 20},
		"surplus ids": {strings.Replace(goodLine, "[0]", "["+strings.Repeat("7,", 60000)+"7]", 1) + "\n", "line 1: hash_ids: 60001 of them, and input_length 3 is 1 blocks", 4 << 20},
		"a line":      {"7", "line 1: bufio.Scanner: token too long", 1 << 20},
	} {
		in := &endless{text: c.line}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := Read(in, 0)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || got != nil {
			t.Errorf("%s: %d requests, %v, want %s", name, len(got), err, c.want)
		}
		if most := uint64(len(c.line)*maxLines + 2*maxLine); uint64(in.read) > most {
			t.Errorf("%s: %d bytes were read, at most %d", name, in.read, most)
		}
		if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > int64(2*c.most) {
			t.Errorf("%s: %d bytes are held before the collector has run, at most %d", name, kept, 2*c.most)
		}
	}
}
