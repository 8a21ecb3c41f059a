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
		`[0] -> ` + strings.Repeat("[", maxLine): `line 3: bufio.Scanner: token too long; a request has at most 1048576 bytes`,
	} {
		from, to, _ := strings.Cut(change, " -> ")
		bad := strings.Replace(goodLine, from, to, 1)
		if _, err := Read(strings.NewReader(goodLine+"\n\n"+bad), 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.80s: error %.200v, want %s", bad, err, want)
		}
	}
}

func TestReadStopsAfterN(t *testing.T) {
	got, err := Read(strings.NewReader(goodLine+"\n\n"+strings.Replace(goodLine, "[0]", "[1, 2]", 1)+"\nnot reached"), 2)
	if err != nil || len(got) != 2 || len(got[1].Blocks) != 2 || got[1].Line != 3 || got[1].InputTokens != 3 || got[1].OutputTokens != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
}
