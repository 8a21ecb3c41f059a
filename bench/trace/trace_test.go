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

func TestReadRefusesWhatIsNoRequest(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON":         `{"timestamp": 1,`,
		"no timestamp":    `{"input_length": 3}`,
		"negative length": `{"timestamp": 0, "input_length": -1}`,
		"a string":        `{"timestamp": "0"}`,
	} {
		if _, err := Read(strings.NewReader(`{"timestamp":0}`+"\n"+line), 0); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: error %v does not name line 2", name, err)
		}
	}
}

func TestReadStopsAfterN(t *testing.T) {
	got, err := Read(strings.NewReader("{\"timestamp\":0}\n\n{\"timestamp\":5,\"hash_ids\":[1,2]}\nnot reached"), 2)
	if err != nil || len(got) != 2 || len(got[1].Blocks) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
}
