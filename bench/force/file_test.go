package force

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const goodHead = `{"meridian_signals":1,"name":"a","kind":"recorded","source":"a test","requests":2}`

const goodLines = `
{"id":"p1","ended":"cut","entropy":[1,2,3],"p_end":[0,0.5,1],"p_eos":[0,0,1],"eat_at":[2],"eat":[1.5],"sentences":[1,3]}

{"id":"p2","ended":"eos","p_end":[0.25]}
`

func TestARecordingIsReadAsItWasWritten(t *testing.T) {
	r, err := Read(strings.NewReader(goodHead + goodLines))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Requests) != 2 || r.Requests[0].Tokens() != 3 || r.Requests[1].PEnd[0] != 0.25 {
		t.Errorf("%+v", r)
	}
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	again, err := Read(&b)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("%v:\n%+v\n%+v", err, r, again)
	}
}

// Each message names the line and the value.
func TestABadRecordingIsRefusedWithItsLineAndValue(t *testing.T) {
	const one = `{"meridian_signals":1,"kind":"recorded","source":"a test"}` + "\n"
	long := strings.Repeat("0,", maxTokens) + "0"
	for _, c := range []struct{ in, want string }{
		{"", "is empty"},
		{"\n\n", "is empty"},
		{one, "no request"},
		{`{"kind":"recorded","source":"x"}`, "line 1: no meridian_signals"},
		{`{"meridian_signals":7}`, "line 1: meridian_signals is 7"},
		{`{"meridian_signals":1,"source":"x"}`, `line 1: kind is ""`},
		{`{"meridian_signals":1,"kind":"measured","source":"x"}`, `line 1: kind is "measured"`},
		{`{"meridian_signals":1,"kind":"recorded"}`, "line 1: no source"},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","end_tokens":-1}`, "end_tokens is -1"},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","requests":99999999}`, "requests is 99999999"},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","colour":"red"}`, `line 1: json: unknown field "colour"`},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","least_mass":-0.5}`, "least_mass is -0.5"},
		{`{"meridian_signals":1,"kind":"recorded","source":"` + strings.Repeat("x", maxText+1) + `"}`, "source has 4097 bytes"},
		{one + `{"id":"","ended":"cut","entropy":[1]}`, "line 2: request \"\": id has 0 bytes"},
		{one + `{"id":"a","entropy":[1]}`, `line 2: request "a": ended is ""`},
		{one + `{"id":"a","ended":"stop","entropy":[1]}`, `ended is "stop"`},
		{one + `{"id":"a","ended":"cut"}`, "no entropy, p_end or p_eos"},
		{one + `{"id":"a","ended":"cut","entropy":[1,-0.5]}`, `line 2: request "a": value 2 of entropy is -0.5: from 0 to 64`},
		{one + `{"id":"a","ended":"cut","entropy":[65]}`, "value 1 of entropy is 65"},
		{one + `{"id":"a","ended":"cut","p_end":[1.5]}`, "value 1 of p_end is 1.5: from 0 to 1"},
		{one + `{"id":"a","ended":"cut","p_eos":[-1]}`, "value 1 of p_eos is -1"},
		{one + `{"id":"a","ended":"cut","entropy":[1e99]}`, "number 1e99"},
		{one + `{"id":"a","ended":"cut","entropy":[1,NaN]}`, `line 2: invalid character 'N' looking for beginning of value, at byte 38: "t\",\"entropy\":[1,NaN]}"`},
		{one + `{"id":"a","ended":"cut","entropy":[Infinity]}`, "Infinity"},
		{one + `{"id":"a","ended":"cut","entropy":["1"]}`, "cannot unmarshal string"},
		{one + `{"id":"a","ended":"cut","entropy":[1,2],"p_end":[0]}`, "p_end has 1 values, another series 2"},
		{one + `{"id":"a","ended":"cut","entropy":[1],"eat":[1]}`, "1 values of eat at 0 positions"},
		{one + `{"id":"a","ended":"cut","entropy":[1],"eat_at":[2],"eat":[1]}`, "value 1 of eat_at is 2: ascending positions from 1 to 1"},
		{one + `{"id":"a","ended":"cut","entropy":[1,1],"sentences":[2,1]}`, "value 2 of sentences is 1"},
		{one + `{"id":"a","ended":"cut","entropy":[1],"sentences":[-1]}`, "number -1"},
		{one + `{"id":"a","ended":"cut","entropy":[1]}` + "\n" + `{"id":"a","ended":"cut","entropy":[1]}`, `line 3: request "a" is in line 2 too`},
		{one + `{"id":"a","ended":"cut","entropy":[1]} {}`, "line 2: something follows the object"},
		{one + `{"id":"a","ended":"cut","entropy":[1,2`, `line 2: the line is truncated, it ends with "ed\":\"cut\",\"entropy\":[1,2"`},
		{one + `[1,2]`, "line 2: json: cannot unmarshal array"},
		{one + `{"id":"a","ended":"cut","entropy":[` + long + `]}`, "131073 thinking tokens: at most 131072"},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","requests":2}` + "\n" + `{"id":"a","ended":"cut","entropy":[1]}`, "truncated: it has 1 requests, and its first line says 2"},
		{`{"meridian_signals":1,"kind":"recorded","source":"x","end_tokens":3}` + "\n" + `{"id":"a","ended":"marker","entropy":[1]}`, "ended by a marker of 3 tokens after 1"},
		{"\x1f\x8bnothing", "gzip"},
	} {
		if _, err := Read(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120q:\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

// A file that stops anywhere is an error, whatever its form. The last newline may be
// missing.
func TestATruncatedRecordingIsRefused(t *testing.T) {
	text := strings.TrimSpace(goodHead + goodLines)
	for n := range len(text) {
		if _, err := Read(strings.NewReader(text[:n])); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(text))
		}
	}
	var z bytes.Buffer
	r, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(&z, r); err != nil {
		t.Fatal(err)
	}
	for n := range z.Len() {
		if _, err := Read(bytes.NewReader(z.Bytes()[:n])); err == nil {
			t.Errorf("%d of %d compressed bytes were taken", n, z.Len())
		}
	}
}

// endless is a file of so many bytes, all of them b after the first line.
type endless struct {
	head string
	left int64
	b    byte
}

func (e *endless) Read(p []byte) (int, error) {
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	if e.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), e.left))
	for i := range p[:n] {
		p[i] = e.b
	}
	e.left -= int64(n)
	return n, nil
}

// A line of a gigabyte, a gigabyte of empty lines and a small file that unpacks to one
// are refused, and take no memory that grows with them.
func TestAHugeRecordingIsRefusedInLittleMemory(t *testing.T) {
	const gigabyte = 1 << 30
	bomb, pipe := io.Pipe()
	go func() {
		z := gzip.NewWriter(pipe)
		_, err := io.Copy(z, &endless{head: goodHead + "\n", left: gigabyte, b: '7'})
		_ = pipe.CloseWithError(err) // the reader has gone
	}()
	defer func() { _ = bomb.Close() }()
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"a long line": {&endless{head: goodHead + "\n", left: gigabyte, b: '7'}, "line 2 is longer than 4 MiB"},
		"a long head": {&endless{left: gigabyte, b: '{'}, "line 1 is longer than 4 MiB"},
		"empty lines": {&endless{head: goodHead + "\n", left: gigabyte, b: '\n'}, "the recording has more than 64 MiB"},
		"a gzip bomb": {bomb, "line 2 is longer than 4 MiB"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(c.in)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%s: %d bytes were allocated", name, took)
		}
	}
}

// What many small requests may hold together is bounded too.
func TestTooManyRequestsAreRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"meridian_signals":1,"kind":"recorded","source":"x"}` + "\n")
	for i := range maxRequests + 1 {
		b.WriteString(`{"id":"` + strings.Repeat("i", i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + `","ended":"cut","entropy":[1]}` + "\n")
	}
	if _, err := Read(strings.NewReader(b.String())); err == nil || !strings.Contains(err.Error(), "more than 4096 requests") {
		t.Errorf("%v", err)
	}
}

func TestAFileWithoutANameGetsItsOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mine.jsonl")
	if err := os.WriteFile(path, []byte(strings.Replace(goodHead, `"name":"a",`, "", 1)+goodLines), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadFile(path); err != nil || r.Header.Name != "mine" {
		t.Errorf("%q, %v", r.Header.Name, err)
	}
	if _, err := ReadFile(dir); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(pipe); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(goodHead + goodLines))
	f.Add([]byte(`{"meridian_signals":1,"kind":"synthetic","source":"x","end_tokens":3}` + "\n" + `{"id":"a","ended":"marker","entropy":[1,2,3,4],"sentences":[2]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		o := Defaults()
		for _, s := range r.sets() {
			if _, err := study(t.Context(), &s, &o.Rules); err != nil {
				t.Errorf("it was read and cannot be replayed: %v", err)
			}
		}
		var w bytes.Buffer
		if err := Write(&w, r); err != nil {
			t.Fatal(err)
		}
		r.Header.Requests = len(r.Requests)
		if again, err := Read(&w); err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("written and read again: %v", err)
		}
	})
}
