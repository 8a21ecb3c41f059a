package llama

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/agent/openai"
	"meridian/wire"
)

func testGeometry() llamacpp.Geometry {
	return llamacpp.Geometry{Version: 2, Streams: 1, Layers: []llamacpp.Layer{{K: llamacpp.Tensor{Type: 1, Row: 4}, V: llamacpp.Tensor{Type: 1, Row: 4}}}}
}

func TestABlockWithAFlippedByteNeverGetsIntoAState(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	out, err := llamacpp.NewAssembler(f, testGeometry(), []int32{1, 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, out.BlockBytes(0))
	head, err := wire.Mint(wire.OutputCritical, body)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{n: &Node{log: slog.New(slog.DiscardHandler)}}
	for i := range body {
		bad := slices.Clone(body)
		bad[i] ^= 0x10
		if err := j.write(out, 0, &client.Block{Body: bad, Head: head}); !errors.Is(err, wire.CodeChecksum) {
			t.Errorf("byte %d flipped: %v, want %v", i, err, wire.CodeChecksum)
		}
	}
	if err := out.Finish(); err == nil {
		t.Error("the state counts as whole")
	}
	if got := j.n.Stats().BadBlocks; got != uint64(len(body)) {
		t.Errorf("%d bad blocks are counted, want %d", got, len(body))
	}
}

func TestAPartnerOfAnotherKindIsToldWhatDiffers(t *testing.T) {
	m := llamacpp.Manifest("default", llamacpp.Model{Name: "m", Build: "b1"}, testGeometry(), 16)
	s := &server{manifest: m, context: 8, vocabulary: 100}
	good := PrefillRequest{Model: "m", Namespace: m.Namespace().String(), Manifest: string(m.Append(nil)), Tokens: []int32{1, 2}}
	if err := s.agrees("m", good); err != nil {
		t.Fatal(err)
	}
	q8 := testGeometry()
	q8.Layers[0].K.Type = 8
	for _, c := range []struct {
		name  string
		other wire.Manifest
		want  []string
	}{
		{"another KV type", llamacpp.Manifest("default", llamacpp.Model{Name: "m", Build: "b1"}, q8, 16), []string{"dtype", "f16/f16", "q8_0/f16"}},
		{"another model", llamacpp.Manifest("default", llamacpp.Model{Name: "m", Hash: [32]byte{9}, Build: "b1"}, testGeometry(), 16), []string{"revision"}},
		{"another build", llamacpp.Manifest("default", llamacpp.Model{Name: "m", Build: "b2"}, testGeometry(), 16), []string{"revision", "b1", "b2"}},
		{"another block size", llamacpp.Manifest("default", llamacpp.Model{Name: "m", Build: "b1"}, testGeometry(), 32), []string{"block_"}},
	} {
		q := good
		q.Namespace, q.Manifest = c.other.Namespace().String(), string(c.other.Append(nil))
		var said *openai.Error
		err := (&Node{}).errorFor(s.agrees("m", q))
		if !errors.As(err, &said) || said.Status != http.StatusConflict {
			t.Errorf("%s: %v, want a conflict", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(said.Message, w) {
				t.Errorf("%s: %q does not name %q", c.name, said.Message, w)
			}
		}
	}
	for _, c := range []struct {
		change func(*PrefillRequest)
		want   string
	}{
		{func(q *PrefillRequest) { q.Tokens = nil }, "0 tokens"},
		{func(q *PrefillRequest) { q.Tokens = make([]int32, 8) }, "8 tokens"},
		{func(q *PrefillRequest) { q.Tokens = []int32{1, 100} }, "token 1 is 100"},
		{func(q *PrefillRequest) { q.Tokens = []int32{-1} }, "token 0 is -1"},
		{func(q *PrefillRequest) { q.Model = "x" }, `"x"`},
	} {
		q := good
		c.change(&q)
		if err := s.agrees("m", q); err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: %v, want %q", q, err, c.want)
		}
	}
}
