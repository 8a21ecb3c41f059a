package plane

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/internal/invariants/leak"
	"meridian/wire"
)

func TestMain(m *testing.M) { leak.Main(m) }

// golden is metadata that the wheel nixl-cu12 1.5.1 has written.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// written is metadata as the wheel writes it, without regions.
func written(agent string, conns ...string) []byte {
	field := func(tag, value string) string {
		return tag + string(binary.LittleEndian.AppendUint64(nil, uint64(len(value)))) + value + "|"
	}
	number := func(n int) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	s := "nixlSerDes|" + field("Agent", agent) + field("Conns", number(len(conns)))
	for _, c := range conns {
		s += field("t", "UCX") + field("c", c)
	}
	return []byte(s + field("", "MemSection") + field("nixlSecElms", number(0)))
}

func TestTheWheelsMetadataTellAnAgent(t *testing.T) {
	for name, whole := range map[string]bool{"whole.blob": true, "partial.blob": false} {
		if m, err := ParseMetadata(golden(t, name)); err != nil || m.Agent != "agentA" || m.Whole != whole {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestMetadataThatAreCutAnywhereAreRefused(t *testing.T) {
	for _, all := range [][]byte{golden(t, "whole.blob"), golden(t, "partial.blob"), written("app", "one", "two")} {
		for n := range all {
			if m, err := ParseMetadata(all[:n]); !errors.Is(err, wire.CodeInvalid) {
				t.Errorf("cut at %d of %d: %+v, %v", n, len(all), m, err)
			}
		}
	}
}

func TestMetadataTellAnAgentsLife(t *testing.T) {
	a, err := ParseMetadata(written("app", "address|1"))
	if err != nil || a.Agent != "app" {
		t.Fatal(a, err)
	}
	if b, err := ParseMetadata(append(written("app", "address|1"), "of a later release"...)); err != nil || b != a {
		t.Errorf("what follows makes it another one: %v", err)
	}
	for _, other := range [][]byte{written("app", "address|2"), written("app"), written("app", "address|1", "x"), written("app2", "address|1")} {
		if b, err := ParseMetadata(other); err != nil || b.Life == a.Life {
			t.Errorf("%q is the same: %v", other, err)
		}
	}
	for _, wrong := range [][]byte{written(""), written("a\x00b"), written("a\nb"), written(strings.Repeat("x", MaxName+1)), written("a", make([]string, maxConns+1)...)} {
		if _, err := ParseMetadata(wrong); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%.40q: %v", wrong, err)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(written("app", "address"))
	f.Add(golden(f, "whole.blob"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseMetadata(b); err == nil && (m.Agent == "" || !bytes.Contains(b, []byte(m.Agent))) {
			t.Errorf("%+v of %q", m, b)
		}
	})
}

var frames = []Frame{{Send, nil}, {Invalidate, []byte("agentA")}, {Load, []byte("nixlSerDes|")}}

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	var all []byte
	for _, f := range frames {
		n := len(all)
		if all = f.Append(all); len(all)-n != f.Length() {
			t.Errorf("%s: %d bytes, Length is %d", f.Verb, len(all)-n, f.Length())
		}
	}
	r := bufio.NewReader(bytes.NewReader(all))
	for _, want := range frames {
		if f, err := ReadFrame(r, nil); err != nil || f.Verb != want.Verb || !bytes.Equal(f.Body, want.Body) {
			t.Errorf("%+v, %v", f, err)
		}
	}
	if _, err := ReadFrame(r, nil); !errors.Is(err, io.EOF) || errors.Is(err, wire.CodeTruncated) {
		t.Error("the end:", err)
	}
	for _, f := range frames {
		b := f.Append(nil)
		for n := 1; n < len(b); n++ {
			if _, err := ReadFrame(bytes.NewReader(b[:n]), nil); !errors.Is(err, wire.CodeTruncated) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s cut at %d: %v", f.Verb, n, err)
			}
		}
	}
}

func TestFramesThatAreWrongAreRefusedBeforeTheirBody(t *testing.T) {
	for text, c := range map[string]struct {
		n    uint64
		b    string
		want wire.Code
	}{
		"a huge length":     {1 << 63, string(Load), wire.CodeLength},
		"just too much":     {uint64(MaxFrame) + 1, string(Load), wire.CodeLength},
		"too little":        {uint64(verbLen) - 1, string(Load), wire.CodeLength},
		"another verb":      {uint64(verbLen), "NIXLCOMM:XXXX", wire.CodeUnsupported},
		"two verbs":         {uint64(2 * verbLen), string(Send) + string(Send), wire.CodeInvalid},
		"a share too small": {uint64(verbLen) + 100, string(Load), wire.CodeBusy},
	} {
		_, err := ReadFrame(strings.NewReader(string(binary.LittleEndian.AppendUint64(nil, c.n))+c.b), func(n int) error {
			if n > 99 {
				return wire.CodeBusy
			}
			return nil
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", text, err, c.want)
		}
	}
}

func TestKeysOfStores(t *testing.T) {
	k := Key{"metadata", "a/b"}
	if got, err := ParseKey(k.String()); err != nil || got != k || k.String() != "/nixl/agents/metadata/a/b/NULL_AGENT" {
		t.Errorf("%v of %s, %v", got, k, err)
	}
	if got := (Key{"metadata", "a"}).Etcd(DefaultNamespace); got != "/nixl/agents//a/metadata" {
		t.Error("in etcd:", got)
	}
	for _, wrong := range []string{
		"", "/x", "/nixl/agents/metadata/NULL_AGENT", "/nixl/agents//a/NULL_AGENT", "/nixl/agents/l/a", "nixl/agents/l/a/NULL_AGENT", "/nixl/agents/l\n/a/NULL_AGENT",
		"/nixl/agents/l/a\x00/NULL_AGENT", Key{strings.Repeat("l", MaxLabel+1), "a"}.String(), Key{"l", strings.Repeat("a", MaxName+1)}.String(),
	} {
		if k, err := ParseKey(wrong); !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%.60q: %v, %v", wrong, k, err)
		}
	}
}

// requests are those of NIXL's client, with the bytes that the wheel's agent sends.
var requests = map[string]Request{
	"\x00\xce\xf7\x85<":    {Op: OpValidate},
	"\x0d\x53\x07\x00\x00": {Op: OpPing, Nonce: 1875},
	"\x01" + "\x27\x00\x00\x00\x00\x00\x00\x00/nixl/agents/metadata/agentA/NULL_AGENT" + "\x03\x00\x00\x00\x00\x00\x00\x00abc": {Op: OpSet, Key: "/nixl/agents/metadata/agentA/NULL_AGENT", Value: []byte("abc")},
	"\x05" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x27\x00\x00\x00\x00\x00\x00\x00/nixl/agents/metadata/agentB/NULL_AGENT":    {Op: OpCheck, Key: "/nixl/agents/metadata/agentB/NULL_AGENT"},
	"\x03" + "\x27\x00\x00\x00\x00\x00\x00\x00/nixl/agents/metadata/agentB/NULL_AGENT":                                         {Op: OpGet, Key: "/nixl/agents/metadata/agentB/NULL_AGENT"},
	"\x08" + "\x23\x00\x00\x00\x00\x00\x00\x00/nixl/agents/half/agentA/NULL_AGENT":                                             {Op: OpDelete, Key: "/nixl/agents/half/agentA/NULL_AGENT"},
}

func TestRequestsAreReadAsTheyWereWritten(t *testing.T) {
	for b, want := range requests {
		if got := want.Append(nil); string(got) != b {
			t.Errorf("%v is written %q, want %q", want.Op, got, b)
		}
		q, err := ReadRequest(strings.NewReader(b), nil)
		if err != nil || q.Op != want.Op || q.Key != want.Key || q.Nonce != want.Nonce || !bytes.Equal(q.Value, want.Value) {
			t.Errorf("%q: %+v, %v", b, q, err)
		}
		for n := 1; n < len(b); n++ {
			if _, err := ReadRequest(strings.NewReader(b[:n]), nil); !errors.Is(err, wire.CodeTruncated) {
				t.Errorf("%v cut at %d: %v", want.Op, n, err)
			}
		}
	}
}

func TestRequestsThatAreWrongAreRefused(t *testing.T) {
	number := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for text, c := range map[string]struct {
		b    string
		want wire.Code
	}{
		"another magic":      {"\x00\x00\x00\x00\x00", wire.CodeMagic},
		"WAIT":               {"\x06", wire.CodeUnsupported},
		"no request at all":  {"\xff", wire.CodeUnsupported},
		"CHECK of two":       {"\x05" + number(2), wire.CodeUnsupported},
		"CHECK of very many": {"\x05" + number(1<<62), wire.CodeUnsupported},
		"a huge key":         {"\x03" + number(1<<62), wire.CodeLength},
		"a huge value":       {"\x01" + number(1) + "k" + number(1<<40), wire.CodeLength},
		"a value too large":  {"\x01" + number(1) + "k" + number(uint64(MaxBlob)+1), wire.CodeLength},
	} {
		if _, err := ReadRequest(strings.NewReader(c.b), nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", text, err, c.want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for b := range requests {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		q, err := ReadRequest(r, nil)
		if err != nil {
			return
		}
		if again := q.Append(nil); !bytes.Equal(again, b[:len(b)-r.Len()]) {
			t.Errorf("%q was read, %q is written", b[:len(b)-r.Len()], again)
		}
	})
}
