package think

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"meridian/bench/trace"
)

func read(t *testing.T, kind, name string) *Dataset {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := ReadDataset(kind, name, f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The files have the published field names, and lines of our own.
func TestDataSetsAreReadByTheirPublishedNames(t *testing.T) {
	d := read(t, ShareGPT, "sharegpt.json")
	want := []row{{line: 2, prompt: 10, answer: 17}, {line: 18, prompt: 6, answer: 2}, {line: 35, prompt: 1, answer: 1}}
	if !reflect.DeepEqual(d.rows, want) || d.Entries != 3 || d.Skipped != 2 {
		t.Errorf("%+v", d)
	}
	d = read(t, Math500, "math500.jsonl")
	want = []row{{line: 1, prompt: 9, answer: 21}, {line: 3, prompt: 13, answer: 15}}
	if !reflect.DeepEqual(d.rows, want) || d.Entries != 2 || d.Skipped != 0 {
		t.Errorf("%+v", d)
	}
	d = read(t, Fast25, "fast25.jsonl")
	want = []row{
		{line: 1, prompt: 600, answer: 20, content: []int{0, 1}}, {line: 2, prompt: 512, answer: 5, content: []int{0}, at: 3 * time.Second},
		{line: 4, prompt: 700, answer: 9, content: []int{0, 2}, at: 6 * time.Second},
	}
	if !reflect.DeepEqual(d.rows, want) || d.span != 9*time.Second {
		t.Errorf("%+v", d)
	}
	d, err := Conversation()
	if err != nil || d.Entries != 12031 || d.most() < 126_195 {
		t.Errorf("%v: %d entries, the longest has %d", err, d.Entries, d.most())
	}
}

func TestADataSetThatCannotBeNamesLineFieldAndValue(t *testing.T) {
	const turns = `"conversations": [{"from": "human", "value": "hello you"}, {"from": "gpt", "value": "hello"}]`
	const good = `{"id": "a", ` + turns + "}\n"
	const line = `{"timestamp": 5, "input_length": 10, "output_length": 3, "hash_ids": [0]}` + "\n"
	for _, c := range []struct{ kind, text, want string }{
		{ShareGPT, "", "f: it is empty"},
		{ShareGPT, " \n \t ", "f: it is empty"},
		{ShareGPT, "[]", "f: no request in it (0 entries were skipped)"},
		{ShareGPT, `[{"conversations": []}]`, "f: no request in it (1 entries"},
		{ShareGPT, good + "{\"id\": 3}\n", `f: line 2: conversations is missing`},
		{ShareGPT, good + "\n\n" + `{"conversations": 7}`, `f: line 4: conversations: 7: a list of turns`},
		{ShareGPT, good + `{"conversations": null}`, `f: line 2: conversations: null: a list of turns`},
		{ShareGPT, "[" + good + ",\n" + `{"conversations": ["x", "y"]}]`, `f: line 3: conversations[0]: "x": a turn is an object`},
		{ShareGPT, good + strings.Replace(good, `"value": "hello"`, `"value": 12`, 1), `f: line 2: conversations[1].value: 12: a text`},
		{ShareGPT, strings.Replace(good, `"from": "human", `, "", 1), `f: line 1: conversations[0].from is missing`},
		{ShareGPT, good + "7", `f: line 2: 7: an entry is an object`},
		{ShareGPT, good + "null", `f: line 2: null: an entry is an object`},
		{ShareGPT, "[" + good, `f: line 2: the list does not end`},
		{ShareGPT, "[" + good + "] x", `f: line 2: something stands behind the end`},
		{ShareGPT, good + `{"conversations": [`, `f: line 2: unexpected EOF`},
		{ShareGPT, good + `}`, `f: line 2: invalid character '}'`},
		{ShareGPT, good + `{"id": "` + strings.Repeat("x", maxEntry) + `"}`, fmt.Sprintf("f: line 2: an entry of more than %d bytes", maxEntry)},
		{Math500, `{"problem": "What is it?"}`, `f: line 1: solution is missing`},
		{Math500, "{\"problem\": \"a\", \"solution\": \"b\"}\n{\"problem\": [1], \"solution\": \"b\"}", `f: line 2: problem: [1]: a text`},
		{Math500, `{"problem": "", "solution": "b"}`, `f: line 1: problem: "": a request has at least one token`},
		{Fast25, "", "f: no request in it"},
		{Fast25, line + strings.Replace(line, `"input_length": 10`, `"input_length": 99999999`, 1), `f: line 2: input_length: 99999999: a whole number from 0 to 1048576`},
		{Fast25, line + strings.Replace(line, `"output_length": 3`, `"output_length": 0`, 1), `f: line 2: output_length: 0: a request has at least one token`},
		{Fast25, line + strings.Replace(line, `5`, `4`, 1), `f: line 2: timestamp: 4: the line before has 5`},
		{Fast25, line + line, `f: timestamp: all 2 requests came at 5 ms`},
		{Fast25, line + strings.Replace(line, `10`, `1025`, 1), `f: line 2: hash_ids: 1 of them, and input_length 1025 is 3 blocks of 512`},
		{"alpaca", line, `f: "alpaca" is no kind of data set`},
	} {
		_, err := ReadDataset(c.kind, "f", strings.NewReader(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %.100q: error %.200v, want %s", c.kind, c.text, err, c.want)
		}
	}
}

// A reader that fails is not the end of the file.
func TestADataSetWhoseFileCannotBeRead(t *testing.T) {
	const good = `{"problem": "a", "solution": "b"}` + "\n"
	if _, err := ReadDataset(Math500, "f", &failing{text: good}); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("error %v", err)
	}
}

type failing struct{ text string }

func (f *failing) Read(p []byte) (int, error) {
	if f.text == "" {
		return 0, fmt.Errorf("the disk is gone")
	}
	n := copy(p, f.text)
	f.text = f.text[n:]
	return n, nil
}

// A long entry has the decoder read far ahead: what is asked of each of the lines there must
// not move all others, or a million of them never end.
func TestALongEntryBeforeAMillionShortOnes(t *testing.T) {
	const short, n = `{"problem": "a", "solution": "b"}` + "\n", 1_000_000
	in := &lines{limit: math.MaxInt64, last: -1}
	in.count([]byte(strings.Repeat("x\n\n", n)))
	for i := range n {
		if got := in.line(int64(3 * i)); got != 2*i+1 {
			t.Fatalf("entry %d is in line %d, want %d", i, got, 2*i+1)
		}
	}
	if len(in.ends) > 8 {
		t.Errorf("%d ends of lines are kept, and nobody will ask about them", len(in.ends))
	}
	long := `{"problem": "` + strings.Repeat("x", 1<<20) + `", "solution": "b"}` + "\n"
	d, err := ReadDataset(Math500, "f", strings.NewReader(long+strings.Repeat(short, 20_000)))
	if err != nil || d.Entries != 20_001 || d.rows[20_000].line != 20_001 {
		t.Fatalf("%+v, %v", d, err)
	}
}

// Space before a data set is read as fast as the rest, and is bounded.
func TestSpaceBeforeADataSet(t *testing.T) {
	const good = `{"problem": "a", "solution": "b"}` + "\n"
	in := &calls{r: strings.NewReader(strings.Repeat(" \n", 1<<20) + good)}
	d, err := ReadDataset(Math500, "f", in)
	if err != nil || d.Entries != 1 || d.rows[0].line != 1<<20+1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if most := 2<<20>>12 + 8; in.n > most {
		t.Errorf("%d reads of 2 MiB of space, at most %d", in.n, most)
	}
	_, err = ReadDataset(Math500, "f", strings.NewReader(strings.Repeat(" ", maxEntry+1<<20)))
	if want := fmt.Sprintf("f: line 1: %d bytes of space", maxEntry); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// calls counts the reads of a reader.
type calls struct {
	r io.Reader
	n int
}

func (c *calls) Read(p []byte) (int, error) {
	c.n++
	return c.r.Read(p)
}

// A trace keeps the order and the times of its requests, at another pace; which of them
// think, and where it begins, is the seed's.
func TestATraceIsPlayedAtTheRate(t *testing.T) {
	w := Of(read(t, Fast25, "fast25.jsonl"))
	w.ReasoningRatio = 0.5
	all := w.draw(1, 300, 2) // a third of a request a second is what the file has
	thinks := 0
	for i, a := range all {
		if i > 0 && a.at-all[i-1].at != 500*time.Millisecond {
			t.Fatalf("request %d comes %v after the one before", i, a.at-all[i-1].at)
		}
		if len(a.content) < (a.prompt+trace.BlockTokens-1)/trace.BlockTokens || i >= 3 && (a.prompt != all[i-3].prompt || a.answer != all[i-3].answer) {
			t.Fatalf("request %d: %+v", i, a)
		}
		if a.think > 0 {
			thinks++
		}
	}
	if thinks < 100 || thinks > 200 {
		t.Errorf("%d of 300 think", thinks)
	}
	starts := map[int]bool{}
	for seed := range uint64(50) {
		starts[w.draw(seed, 1, 1)[0].prompt] = true
	}
	if len(starts) != 3 {
		t.Errorf("50 seeds begin with prompts of %v tokens", starts)
	}
}

// What a data set has nothing of is drawn as in the reference workload.
func TestChatAndReasoningOfDataSets(t *testing.T) {
	chat, math500 := Of(read(t, ShareGPT, "sharegpt.json")), Of(read(t, Math500, "math500.jsonl"))
	for _, a := range chat.draw(1, 400, 1) {
		if known := a.prompt == 10 && a.answer == 17 || a.prompt == 6 && a.answer == 2 || a.prompt == 1 && a.answer == 1; known != (a.think == 0) {
			t.Fatalf("sharegpt: %+v", a)
		}
	}
	for _, a := range math500.draw(1, 400, 1) {
		if known := a.prompt == 9 && a.answer == 21 || a.prompt == 13 && a.answer == 15; known != (a.think > 0) {
			t.Fatalf("math500: %+v", a)
		}
		if a.think > 0 && (a.think < 600 || a.think > 6000) {
			t.Fatalf("math500: %+v", a)
		}
	}
}

// A share at which nothing of the data set would be played is a mistake.
func TestADataSetThatWouldNotBeUsed(t *testing.T) {
	for ratio, d := range map[float64]*Dataset{1: read(t, ShareGPT, "sharegpt.json"), 0: read(t, Math500, "math500.jsonl")} {
		o := small()
		o.Workload = Of(d)
		o.Workload.ReasoningRatio = ratio
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), "no request would be of the data set, "+d.Kind) {
			t.Errorf("%s at %v: error %v", d.Kind, ratio, err)
		}
	}
}

// A request that is longer than the cache is named before anything is played.
func TestARequestOfADataSetThatIsLongerThanTheCache(t *testing.T) {
	o := small()
	o.KVTokens = 2_176
	o.Workload = Of(read(t, Fast25, "fast25.jsonl"))
	o.Workload.Think = Span{100, 1500}
	err := o.Check()
	if want := "fast25.jsonl: line 4: input_length has 700 tokens, output_length 9, and up to 1500 of thinking: the cache holds 2176"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	o.Workload.ReasoningRatio = 0 // nobody thinks
	if err := o.Check(); err != nil {
		t.Errorf("without thinking: %v", err)
	}
}

func TestDurationIsHowLongRequestsCome(t *testing.T) {
	o := small()
	o.Duration = 100 * time.Second
	all, err := o.arrivals(1, 3)
	if err != nil || len(all) < 240 || len(all) > 360 || all[len(all)-1].at > o.Duration {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	if more := o.Workload.draw(1, len(all)+1, 3); more[len(all)].at <= o.Duration || !reflect.DeepEqual(more[:len(all)], all) {
		t.Error("they are not those that come until then")
	}
	o.Warm = len(all)
	if _, err := o.arrivals(1, 3); err == nil || !strings.Contains(err.Error(), "none is left") {
		t.Errorf("error %v", err)
	}
	o.Warm, o.Duration = QuarterWarm, time.Millisecond
	if _, err := o.arrivals(1, 1e-3); err == nil || !strings.Contains(err.Error(), "none is left") {
		t.Errorf("error %v", err)
	}
	o.Duration = maxDuration
	if _, err := o.arrivals(1, math.Pow(2, 20)); err == nil || !strings.Contains(err.Error(), "more than 1048576 requests") {
		t.Errorf("error %v", err)
	}
}
