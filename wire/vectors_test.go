package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The vectors are files so that readers in other languages use the same ones.
// What is expected of each stands in vectorcases_test.go, by hand; this file
// checks that the package agrees, and that the files hold exactly that.

var rewrite = flag.Bool("rewrite", false, "write the vector files of conformance/vectors/mrdn-v1")

const vectorDir = "../conformance/vectors/mrdn-v1"

// vectorFileLimit is the largest payload that gets a file of its own; larger
// bodies are described only, in the index.
const vectorFileLimit = 4096

type vectorIndex struct {
	Format    string           `json:"format"`
	Payloads  []payloadVector  `json:"payloads"`
	Decode    []decodeVector   `json:"decode"`
	Envelopes []envelopeVector `json:"envelopes"`
	Manifests []manifestVector `json:"manifests"`
	Keys      []keyVector      `json:"keys"`
	Refs      []refVector      `json:"refs"`
}

// bodyVector describes a body: hex digits, one byte repeated, or the byte
// i mod 251 at each offset i.
type bodyVector struct {
	Kind   string  `json:"kind"` // hex, repeat, mod251
	Length int     `json:"length"`
	Hex    *string `json:"hex,omitempty"`  // kind hex
	Byte   *int    `json:"byte,omitempty"` // kind repeat
}

func (v bodyVector) bytes(t *testing.T) []byte {
	switch v.Kind {
	case "hex":
		b := fromHex(t, *v.Hex)
		if len(b) != v.Length {
			t.Fatalf("body of %d bytes says %d", len(b), v.Length)
		}
		return b
	case "repeat":
		return bytes.Repeat([]byte{byte(*v.Byte)}, v.Length)
	case "mod251":
		return patterned(v.Length)
	}
	t.Fatalf("unknown kind of body %q", v.Kind)
	return nil
}

type payloadVector struct {
	Name   string     `json:"name"`
	Tier   uint8      `json:"tier"`
	Body   bodyVector `json:"body"`
	Header string     `json:"header"`
	File   string     `json:"file,omitempty"`
}

// outcome is what one reader must answer.
type outcome struct {
	Code    Code           `json:"code"`
	Name    string         `json:"name"`
	Tier    *Tier          `json:"tier,omitempty"`     // if OK
	BodyLen *uint32        `json:"body_len,omitempty"` // if OK
	Values  map[string]any `json:"values,omitempty"`   // if not OK: the values that differ
}

type decodeVector struct {
	Name    string  `json:"name"`
	File    string  `json:"file"`
	Limit   uint32  `json:"limit"`
	Strict  outcome `json:"strict"`
	Lenient outcome `json:"lenient"`
}

type envelopeVector struct {
	Name       string `json:"name"`
	File       string `json:"file"`
	Code       Code   `json:"code"`
	PayloadLen int    `json:"payload_len"`
	RestLen    int    `json:"rest_len"`
}

type manifestVector struct {
	Name      string `json:"name"`
	File      string `json:"file"`
	Code      Code   `json:"code"`
	Line      int    `json:"line,omitempty"` // where a reader must stop, from 1
	Namespace string `json:"namespace,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
	TenantID  string `json:"tenant_id,omitempty"`
}

type keyVector struct {
	Namespace  string     `json:"namespace"`
	EngineHash bodyVector `json:"engine_hash"`
	Key        string     `json:"key"`
}

type refVector struct {
	Agent       string `json:"agent"`
	Incarnation string `json:"incarnation"` // decimal: beyond what a JSON number holds everywhere
	Slot        uint32 `json:"slot"`
	Generation  uint32 `json:"generation"`
	Handle      string `json:"handle"`
}

// outcomeOf turns an error into the form of the index.
func outcomeOf(h Header, err error) outcome {
	o := outcome{Code: CodeOf(err), Name: CodeOf(err).String()}
	if err == nil {
		o.Tier, o.BodyLen = &h.Tier, &h.BodyLen
		return o
	}
	switch e := err.(type) {
	case *TruncatedError:
		o.Values = map[string]any{"have": e.Have, "need": e.Need}
	case *MagicError:
		o.Values = map[string]any{"got": hex.EncodeToString(e.Got[:])}
	case *VersionError:
		o.Values = map[string]any{"got": e.Got}
	case *TierError:
		o.Values = map[string]any{"got": e.Got}
	case *PaddingError:
		o.Values = map[string]any{"got": hex.EncodeToString(e.Got[:])}
	case *TooLargeError:
		o.Values = map[string]any{"got": e.Got, "limit": e.Limit}
	case *ChecksumError:
		o.Values = map[string]any{"want": e.Want.String(), "got": e.Got.String()}
	case *TrailingError:
		o.Values = map[string]any{"n": e.N}
	}
	return o
}

// vectorSet collects the index and the files that belong to it.
type vectorSet struct {
	index vectorIndex
	files map[string][]byte
}

func (s *vectorSet) file(name string, b []byte) string {
	s.files[name] = b
	return name
}

func buildVectors(t *testing.T) *vectorSet {
	s := &vectorSet{index: vectorIndex{Format: "MRDN v1"}, files: map[string][]byte{}}
	s.addPayloads(t)
	s.addDecodes(t)
	s.addEnvelopes(t)
	s.addManifests(t)
	s.addNames(t)
	b, err := json.MarshalIndent(s.index, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	s.file("index.json", append(b, '\n'))
	return s
}

func (s *vectorSet) addPayloads(t *testing.T) {
	for _, v := range payloadCases() {
		body := v.Body.bytes(t)
		p := payloadOf(t, Tier(v.Tier), body)
		if got := hex.EncodeToString(p[:HeaderLen]); got != v.Header {
			t.Errorf("payload %s: header\n%s, want\n%s", v.Name, got, v.Header)
		}
		if len(p) <= vectorFileLimit {
			v.File = s.file("payload-"+v.Name+".mrdn", p)
		}
		s.index.Payloads = append(s.index.Payloads, v)
	}
}

func (s *vectorSet) addDecodes(t *testing.T) {
	for _, c := range decodeCases(t) {
		v := decodeVector{Name: c.name, Limit: c.limit, File: s.file("decode-"+c.name+".mrdn", c.payload)}
		for _, side := range []struct {
			mode Mode
			want error
			tier Tier
			out  *outcome
		}{{Strict, c.strict, c.tier, &v.Strict}, {Lenient, c.lenient, c.tier, &v.Lenient}} {
			h, body, err := Decode(c.payload, side.mode, c.limit)
			wantError(t, err, side.want)
			if err == nil && (h.Tier != side.tier || int(h.BodyLen) != len(body)) {
				t.Errorf("decode %s, %s: %+v, %d bytes of body", c.name, modeNames[side.mode], h, len(body))
			}
			*side.out = outcomeOf(h, err)
		}
		s.index.Decode = append(s.index.Decode, v)
	}
}

func (s *vectorSet) addEnvelopes(t *testing.T) {
	for _, c := range envelopeCases(t) {
		payload, rest, err := ParseEnvelope(c.bytes)
		if CodeOf(err) != c.v.Code || len(payload) != c.v.PayloadLen || len(rest) != c.v.RestLen {
			t.Errorf("envelope %s: %d bytes, rest %d, %v", c.v.Name, len(payload), len(rest), err)
		}
		c.v.File = s.file("envelope-"+c.v.Name+".mnck", c.bytes)
		s.index.Envelopes = append(s.index.Envelopes, c.v)
	}
}

func (s *vectorSet) addManifests(t *testing.T) {
	for _, g := range goldenManifests {
		s.index.Manifests = append(s.index.Manifests, manifestVector{
			Name: g.name, File: s.file("manifest-"+g.name+".txt", g.m.Append(nil)),
			Namespace: g.namespace, Tenant: g.m.Tenant, TenantID: g.tenant,
		})
	}
	for _, c := range refusedManifests {
		text := strings.Replace(fullManifestText, c.from, c.to, 1)
		s.index.Manifests = append(s.index.Manifests, manifestVector{
			Name: c.name, File: s.file("manifest-"+c.name+".txt", []byte(text)), Code: CodeManifest, Line: c.line,
		})
	}
}

func (s *vectorSet) addNames(t *testing.T) {
	ns := fullManifest.Namespace()
	for _, g := range goldenKeys {
		s.index.Keys = append(s.index.Keys, keyVector{ns.String(), bodyVector{Kind: "mod251", Length: g.n}, g.key})
	}
	for _, v := range refCases {
		inc, err := strconv.ParseUint(v.Incarnation, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := Ref{Agent: [16]byte(fromHex(t, v.Agent)), Inc: inc, Slot: v.Slot, Gen: v.Generation}
		if r.String() != v.Handle {
			t.Errorf("reference %+v: handle %s, want %s", r, r, v.Handle)
		}
		s.index.Refs = append(s.index.Refs, v)
	}
}

func TestVectorFiles(t *testing.T) {
	s := buildVectors(t)
	if t.Failed() {
		return
	}
	if *rewrite {
		if err := os.MkdirAll(vectorDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, b := range s.files {
			if err := os.WriteFile(filepath.Join(vectorDir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(vectorDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := s.files[e.Name()]; !ok && e.Name() != "README.md" {
			t.Errorf("%s belongs to no vector", e.Name())
		}
	}
	for name, want := range s.files {
		got, err := os.ReadFile(filepath.Join(vectorDir, name))
		if errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is missing: go test ./wire -run TestVectorFiles -rewrite", name)
		} else if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what the cases say", name)
		}
	}
}

func TestVectorNamesAreUnique(t *testing.T) {
	var names []string
	for _, v := range payloadCases() {
		names = append(names, "payload-"+v.Name)
	}
	for _, c := range decodeCases(t) {
		names = append(names, "decode-"+c.name)
	}
	for _, c := range envelopeCases(t) {
		names = append(names, "envelope-"+c.v.Name)
	}
	for _, g := range goldenManifests {
		names = append(names, "manifest-"+g.name)
	}
	for _, c := range refusedManifests {
		names = append(names, "manifest-"+c.name)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			t.Errorf("two vectors are called %s", names[i])
		}
	}
}
