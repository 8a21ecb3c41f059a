package llama_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"meridian/internal/realpart"
)

// The client is the real one, of PyPI. A client that breaks off costs two more tokens at
// most: those that are on their way.
func TestTheOpenAIClientStreamsAndCancelsWithinTwoTokens(t *testing.T) {
	packages := realpart.Packages(t, "openai")
	p := startPair(t, nil)
	c := exec.Command("python3", "testdata/client.py", p.Decode.URL)
	c.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	var out, words bytes.Buffer
	c.Stdout, c.Stderr = &out, &words
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, words.String())
	}
	var said struct {
		Text string
		Seen int
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	if strings.TrimSpace(said.Text) == "" || said.Seen != 5 {
		t.Errorf("%+v; want a streamed text, and five chunks of another", said)
	}
	eventually(t, func() string { return idle(t, p.Decode) })
	decoded := series(t, p.Decode, "meridian_llama_decoded_tokens_total")
	// The client reads what is in its buffer at once, so its fifth chunk may be
	// older than the newest token.
	if limit := float64(12 + 5 + 2); decoded > limit {
		t.Errorf("%g tokens were decoded for 12 and 5 that were read; want at most %g", decoded, limit)
	}
}
