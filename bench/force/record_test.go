package force

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"meridian/internal/realpart/llamanode"
)

// The recordings that are part of the program say what they are, and are small.
func TestTheRecordingsSayWhatTheyAre(t *testing.T) {
	all, err := Recordings()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d recordings, %v", len(all), err)
	}
	for _, r := range all {
		h := &r.Header
		if h.Kind != Recorded || h.Model == "" || h.Engine == "" || h.Sampling == "" || h.NotThinking == "" || h.Requests != len(r.Requests) {
			t.Errorf("%s: %+v", h.Name, h)
		}
		if h.Top == 0 || h.Vocabulary == 0 || !(h.LeastMass > 0.5) {
			t.Errorf("%s: of %d tokens of %d, at least %v of the probability", h.Name, h.Top, h.Vocabulary, h.LeastMass)
		}
		for _, q := range r.Requests {
			if len(q.Entropy) == 0 || len(q.PEnd) == 0 || len(q.PEOS) == 0 || q.Prompt == "" {
				t.Errorf("%s %s: %d of entropy, %d of p_end, %d of p_eos", h.Name, q.ID, len(q.Entropy), len(q.PEnd), len(q.PEOS))
			}
		}
	}
	size := int64(0)
	err = fs.WalkDir(recorded, ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, e := d.Info()
			if e != nil {
				return e
			}
			size += info.Size()
		}
		return err
	})
	if err != nil || size > 300<<10 {
		t.Errorf("%d bytes, %v: at most 300 KiB", size, err)
	}
}

// With a real model: the same seed records the same, and more tokens of a distribution
// give no less entropy.
func TestTheSignalsOfARealModelAreRecorded(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	o := RecordDefaults()
	o.Server = llamanode.Options(t)
	o.Prompts, o.Tokens, o.EATEvery = Prompts()[:1], 16, 8
	o.Hold = true // a model that ends at once would leave nothing to compare
	record := func(top int) Recording {
		t.Helper()
		o.Top = top
		r, err := Record(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	few := record(50)
	if again := record(50); !reflect.DeepEqual(few, again) {
		t.Errorf("the same seed recorded two things:\n%+v\n%+v", few, again)
	}
	many := record(1 << 20)
	h := &many.Header
	if h.Top != h.Vocabulary || h.LeastMass < 0.99 || few.Header.LeastMass >= h.LeastMass || h.EndTokens < 1 || h.Model == "" {
		t.Errorf("%+v, and of 50 tokens %+v", h, few.Header)
	}
	a, b := few.Requests[0], many.Requests[0]
	if a.Tokens() != o.Tokens || b.Tokens() != o.Tokens || len(b.EAT) == 0 {
		t.Fatalf("%d and %d tokens, eat at %v", a.Tokens(), b.Tokens(), b.EATAt)
	}
	for i := range o.Tokens {
		if a.Entropy[i] > b.Entropy[i]+0.01 {
			t.Errorf("token %d: entropy %v of 50 tokens, %v of all", i+1, a.Entropy[i], b.Entropy[i])
		}
	}
	var w bytes.Buffer
	if err := Write(&w, many); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(&w); err != nil || !reflect.DeepEqual(again, many) {
		t.Errorf("written and read: %v\n%+v\n%+v", err, many, again)
	}
}

// Recording takes long: what is whole is kept when it is interrupted.
func TestAnInterruptedRecordingHasWhatIsWhole(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	o := RecordDefaults()
	o.Server = llamanode.Options(t)
	o.Prompts, o.Tokens, o.Top, o.EATEvery = Prompts()[:3], 4, 50, 0
	o.Progress = func(string) { cancel() } // after the first prompt
	r, err := Record(ctx, o)
	if !errors.Is(err, context.Canceled) || len(r.Requests) != 1 || r.Header.Requests != 1 || !strings.HasSuffix(r.Header.Source, "interrupted after 1 prompts") {
		t.Fatalf("%d requests, %v, %q", len(r.Requests), err, r.Header.Source)
	}
	var w bytes.Buffer
	if err := Write(&w, r); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&w); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfASentenceIsSeen(t *testing.T) {
	for _, c := range []struct {
		before, token string
		ends          bool
	}{
		{"It is so", ".", true},
		{"Is it so", "?\"", true},
		{"It is", " so", false},
		{"It costs 1", ".5", false},
		{"First", ":\n", true},
		{"", "", false},
		{"Wow", "!!", true},
	} {
		if got := endsSentence(c.before+c.token, len(c.before)); got != c.ends {
			t.Errorf("%q after %q: %v", c.token, c.before, got)
		}
	}
}

func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	for name, change := range map[string]func(*RecordOptions){
		"no prompt":      func(o *RecordOptions) { o.Prompts = nil },
		"an empty one":   func(o *RecordOptions) { o.Prompts = []string{"a", ""} },
		"no tokens":      func(o *RecordOptions) { o.Tokens = 0 },
		"too many":       func(o *RecordOptions) { o.Tokens = maxTokens },
		"top of 1":       func(o *RecordOptions) { o.Top = 1 },
		"temperature 0":  func(o *RecordOptions) { o.Temperature = 0 },
		"no marker":      func(o *RecordOptions) { o.End = "" },
		"eat each -1":    func(o *RecordOptions) { o.EATEvery = -1 },
		"a huge prompt":  func(o *RecordOptions) { o.Prompts = []string{string(make([]byte, maxText+1))} },
		"a huge top":     func(o *RecordOptions) { o.Top = 1 << 30 },
		"no temperature": func(o *RecordOptions) { o.Temperature = 1e9 },
	} {
		o := RecordDefaults()
		change(&o)
		if _, err := Record(t.Context(), o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
