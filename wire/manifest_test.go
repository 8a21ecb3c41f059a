package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

var fullManifest = Manifest{
	Tenant: "acme", Model: "qwen3-0.6b", Revision: "c1899de289a04d12100db370d81485cdf75e47ca",
	Role: "kv", Dtype: "bfloat16", Layout: "NHD",
	BlockTokens: 16, BlockBytes: 1835008, KVHeads: 8, HeadSize: 128, LayerFirst: 0, LayerLast: 27,
	TPRank: 0, TPSize: 1, PPRank: 0, PPSize: 1, DCPRank: 0, DCPSize: 1,
	HashScheme: "vllm-sha256_cbor",
}

// edgeManifest has values that a careless parser would cut.
var edgeManifest = Manifest{
	Tenant: "Zürich=北京", Model: "a=b", Revision: " ", Role: "draft",
	BlockTokens: math.MaxUint32, TPRank: 7, TPSize: 8,
}

// with is fullManifest with a change.
func (m Manifest) with(change func(*Manifest)) Manifest {
	change(&m)
	return m
}

var (
	groupManifest = fullManifest.with(func(m *Manifest) {
		m.Model, m.KVGroup, m.KVGroupKind, m.KVWindow = "gemma-3-1b", 2, "sliding", 4096
	})
	scaleManifest = fullManifest.with(func(m *Manifest) { m.Dtype, m.ScaleBytes, m.ScaleDtype = "fp8_e4m3", 2048, "float32" })
)

// goldenManifests have digests made with the reference implementation of
// BLAKE3 over text that this package did not make.
var goldenManifests = []struct {
	name              string
	m                 Manifest
	namespace, tenant string
}{
	{"zero", Manifest{}, "5398390ee77f2778d0d4b60f89a84abff89be821184aee5652e2c959bf3a70cc", "3626484b168d359509665e5c61460b574f17a2c31b5d03e6cbef74a53c183ed4"},
	{"full", fullManifest, "8475b3727770cf69359f6781b55dce1fb48fdb9fe0516a894692172c5dadbbbe", "40be60bc68a315153d268a43987cebb7522edcf5cc532e9156bdc3a8dd697bbe"},
	{"edge", edgeManifest, "2bbcd69ea43d8b7bb5982f981e9371de8ef3590b428bc43e67cb86ede83f0740", "62858de4f5ff336b0e5915b9a50b6c419c52cc3bf98345c18894b8ed4108bcf2"},
	{"group", groupManifest, "8f6b0b40457f8bef8c29e00df3f3010a4cd40e3e15e2ab7935d4b089aae3ee39", "40be60bc68a315153d268a43987cebb7522edcf5cc532e9156bdc3a8dd697bbe"},
	{"scales", scaleManifest, "ce0dac3d62cd1baa25dba797e0f6d3ee4ee3cb4b4cfcef58d057fd2fa509e48d", "40be60bc68a315153d268a43987cebb7522edcf5cc532e9156bdc3a8dd697bbe"},
}

const fullManifestText = `block_bytes=1835008
block_tokens=16
dcp_rank=0
dcp_size=1
dtype=bfloat16
hash_scheme=vllm-sha256_cbor
head_size=128
kv_heads=8
layer_first=0
layer_last=27
layout=NHD
model=qwen3-0.6b
pp_rank=0
pp_size=1
revision=c1899de289a04d12100db370d81485cdf75e47ca
role=kv
tenant=acme
tp_rank=0
tp_size=1
`

func TestManifestGolden(t *testing.T) {
	if got := string(fullManifest.Append([]byte("before"))); got != "before"+fullManifestText {
		t.Fatalf("canonical form:\n%s", got)
	}
	for _, g := range goldenManifests {
		if got := g.m.Namespace().String(); got != g.namespace {
			t.Errorf("%s: namespace %s, want %s", g.name, got, g.namespace)
		}
		if got := Key(g.m.TenantID()).String(); got != g.tenant {
			t.Errorf("%s: tenant %s, want %s", g.name, got, g.tenant)
		}
		back, err := ParseManifest(g.m.Append(nil))
		if err != nil || back != g.m {
			t.Errorf("%s came back as %+v, %v", g.name, back, err)
		}
		if err := g.m.Check(); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}

// setField gives field i of a manifest a value that no golden manifest has.
func setField(m *Manifest, i int) {
	switch f := reflect.ValueOf(m).Elem().Field(i); f.Kind() {
	case reflect.String:
		f.SetString(f.String() + "x")
	default:
		f.SetUint(f.Uint() + 1)
	}
}

// TestManifestEveryFieldIsInTheNamespace also fails when a field of the struct
// has no line in the canonical form.
func TestManifestEveryFieldIsInTheNamespace(t *testing.T) {
	typ := reflect.TypeFor[Manifest]()
	if typ.NumField() != len(manifestFields) {
		t.Fatalf("%d fields, %d keys", typ.NumField(), len(manifestFields))
	}
	seen := map[string]bool{}
	for i := range typ.NumField() {
		other := fullManifest
		setField(&other, i)
		if other.Namespace() == fullManifest.Namespace() {
			t.Errorf("%s is not in the namespace", typ.Field(i).Name)
		}
		field, mine, theirs := fullManifest.Diff(other)
		if strings.ReplaceAll(field, "_", "") != strings.ToLower(typ.Field(i).Name) || mine == theirs || seen[field] {
			t.Errorf("%s: Diff says %q %q %q", typ.Field(i).Name, field, mine, theirs)
		}
		seen[field] = true
		isFamily := !strings.Contains("Tenant Model Role", typ.Field(i).Name)
		if fullManifest.SameFamily(other) != isFamily || other.SameFamily(fullManifest) != isFamily {
			t.Errorf("%s: SameFamily is %v", typ.Field(i).Name, !isFamily)
		}
	}
	for i := 1; i < len(manifestFields); i++ {
		if manifestFields[i-1].key >= manifestFields[i].key {
			t.Errorf("%s stands before %s", manifestFields[i-1].key, manifestFields[i].key)
		}
	}
}

func TestManifestDiffNamesTheFirstFieldAndBothValues(t *testing.T) {
	other := fullManifest
	other.TPSize, other.BlockTokens, other.Layout = 2, 32, "HND"
	if field, mine, theirs := fullManifest.Diff(other); field != "block_tokens" || mine != "16" || theirs != "32" {
		t.Fatalf("%q %q %q", field, mine, theirs)
	}
	if field, mine, theirs := fullManifest.Diff(fullManifest); field != "" || mine != "" || theirs != "" {
		t.Fatalf("equal manifests differ: %q %q %q", field, mine, theirs)
	}
}

// refusedManifests are changes to fullManifestText and the line at which a
// reader must stop.
var refusedManifests = []struct {
	name, from, to string
	line           int
	key            string
}{
	{"empty", fullManifestText, "", 1, "block_bytes"},
	{"no-last-newline", "tp_size=1\n", "tp_size=1", 19, "tp_size"},
	{"missing-line", "dtype=bfloat16\n", "", 5, "dtype"},
	{"missing-last-line", "tp_size=1\n", "", 19, "tp_size"},
	{"repeated-line", "dtype=bfloat16\n", "dtype=bfloat16\ndtype=bfloat16\n", 6, "hash_scheme"},
	{"swapped-lines", "role=kv\ntenant=acme\n", "tenant=acme\nrole=kv\n", 16, "role"},
	{"unknown-key", "tenant=acme\n", "tenant=acme\ntower=1\n", 18, "tp_rank"},
	{"unknown-key-last", "tp_size=1\n", "tp_size=1\nzone=1\n", 20, ""},
	{"blank-line", "model=", "\nmodel=", 12, "model"},
	{"space-before-equals", "model=", "model =", 12, "model"},
	{"upper-case-key", "model=", "Model=", 12, "model"},
	{"no-equals", "layout=NHD", "layout", 11, "layout"},
	{"leading-zero", "block_tokens=16", "block_tokens=016", 2, "block_tokens"},
	{"plus-sign", "block_tokens=16", "block_tokens=+16", 2, "block_tokens"},
	{"negative", "tp_rank=0", "tp_rank=-1", 18, "tp_rank"},
	{"hexadecimal", "block_tokens=16", "block_tokens=0x10", 2, "block_tokens"},
	{"space-in-number", "block_tokens=16", "block_tokens= 16", 2, "block_tokens"},
	{"underscore-in-number", "block_bytes=1835008", "block_bytes=1_835_008", 1, "block_bytes"},
	{"empty-number", "block_tokens=16", "block_tokens=", 2, "block_tokens"},
	{"33-bit-number", "block_tokens=16", "block_tokens=4294967296", 2, "block_tokens"},
	{"carriage-return", "tenant=acme\n", "tenant=acme\r\n", 17, "tenant"},
	{"tab", "tenant=acme", "tenant=ac\tme", 17, "tenant"},
	{"nul", "tenant=acme", "tenant=ac\x00me", 17, "tenant"},
	{"delete", "tenant=acme", "tenant=ac\x7fme", 17, "tenant"},
	{"c1-control", "tenant=acme", "tenant=ac\u0085me", 17, "tenant"},
	{"broken-utf8", "tenant=acme", "tenant=ac\xffme", 17, "tenant"},
	{"long-value", "tenant=acme", "tenant=" + strings.Repeat("a", MaxManifestValue+1), 17, "tenant"},
	{"bytes-behind", "tp_size=1\n", "tp_size=1\nx", 20, ""},
	{"group-zero", "kv_heads=8\n", "kv_group=0\nkv_heads=8\n", 8, "kv_group"},
	{"group-kind-empty", "kv_heads=8\n", "kv_group=1\nkv_group_kind=\nkv_heads=8\n", 9, "kv_group_kind"},
	{"group-twice", "kv_heads=8\n", "kv_group=1\nkv_group=1\nkv_heads=8\n", 9, "kv_heads"},
	{"group-leading-zero", "kv_heads=8\n", "kv_group=01\nkv_heads=8\n", 8, "kv_group"},
	{"window-before-heads", "kv_heads=8\n", "kv_window=1\nkv_heads=8\n", 8, "kv_heads"},
	{"window-zero", "layer_first=0\n", "kv_window=0\nlayer_first=0\n", 9, "kv_window"},
	{"scale-bytes-zero", "tenant=acme\n", "scale_bytes=0\ntenant=acme\n", 17, "scale_bytes"},
	{"scale-dtype-empty", "tenant=acme\n", "scale_dtype=\ntenant=acme\n", 17, "scale_dtype"},
	{"scale-dtype-before-bytes", "tenant=acme\n", "scale_dtype=x\nscale_bytes=1\ntenant=acme\n", 18, "tenant"},
	{"scale-behind", "tp_size=1\n", "tp_size=1\nscale_bytes=1\n", 20, ""},
	{"scale-no-newline", "tenant=acme\ntp_rank=0\ntp_size=1\n", "scale_bytes=1", 17, "scale_bytes"},
}

func TestParseManifestRefusesAllButTheCanonicalForm(t *testing.T) {
	for _, c := range refusedManifests {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(fullManifestText, c.from, c.to, 1)
			m, err := ParseManifest([]byte(text))
			var me *ManifestError
			if !errors.As(err, &me) || !errors.Is(err, CodeManifest) || m != (Manifest{}) {
				t.Fatalf("%+v, %v", m, err)
			}
			if me.Line != c.line || me.Key != c.key {
				t.Fatalf("%v: line %d key %q, want %d %q", err, me.Line, me.Key, c.line, c.key)
			}
		})
	}
}

func TestParseManifestCutAtEveryByte(t *testing.T) {
	for _, g := range goldenManifests {
		text := g.m.Append(nil)
		for n := range text {
			if _, err := ParseManifest(text[:n]); !errors.Is(err, CodeManifest) {
				t.Fatalf("%s cut at %d: %v", g.name, n, err)
			}
		}
	}
}

func TestManifestLimits(t *testing.T) {
	long := strings.Repeat("é", MaxManifestValue/2)
	m := Manifest{
		Tenant: long, Model: long, Revision: long, Role: long, Dtype: long, Layout: long, HashScheme: long,
		BlockTokens: math.MaxUint32, BlockBytes: math.MaxUint32, KVHeads: math.MaxUint32, HeadSize: math.MaxUint32,
		LayerFirst: math.MaxUint32, LayerLast: math.MaxUint32, TPRank: math.MaxUint32, TPSize: math.MaxUint32,
		PPRank: math.MaxUint32, PPSize: math.MaxUint32, DCPRank: math.MaxUint32, DCPSize: math.MaxUint32,
	}
	b := m.Append(nil)
	if back, err := ParseManifest(b); err != nil || back != m {
		t.Fatalf("the largest manifest, %d bytes: %v", len(b), err)
	}
	m.KVGroupKind, m.ScaleDtype = strings.Repeat("k", MaxManifest-len(b)-len("kv_group_kind=\n")), ""
	if err := m.Check(); err != nil || len(m.Append(nil)) != MaxManifest {
		t.Errorf("a manifest of %d bytes: %v", len(m.Append(nil)), err)
	}
	m.ScaleBytes = 1
	wantError(t, m.Check(), &ManifestError{Text: "4110 bytes, limit 4096"})
	_, err := ParseManifest(bytes.Repeat([]byte{'a'}, MaxManifest+1))
	if want := "manifest: 4097 bytes, limit 4096"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	wantError(t, err, &ManifestError{Text: "4097 bytes, limit 4096"})
}

// TestManifestCannotForgeAnother: a value with a line break must not make the
// bytes, and with them the namespace, of some other valid manifest.
func TestManifestCannotForgeAnother(t *testing.T) {
	victim := fullManifest
	forged := fullManifest
	forged.Role = "kv\ntenant=acme\ntp_rank=0\ntp_size=1\n"
	forged.Tenant = ""
	err := forged.Check()
	wantError(t, err, &ManifestError{Key: "role", Text: "control character U+000A at byte 2"})
	if _, err := ParseManifest(forged.Append(nil)); !errors.Is(err, CodeManifest) {
		t.Fatalf("the forgery parses: %v", err)
	}
	if forged.Namespace() == victim.Namespace() {
		t.Fatal("the forgery has the victim's namespace")
	}

	// The line of a key that is left out where it is zero may be forged in place.
	victim.ScaleBytes = 5
	forged = fullManifest
	forged.Role += "\nscale_bytes=5"
	wantError(t, forged.Check(), &ManifestError{Key: "role", Text: "control character U+000A at byte 2"})
	if forged.Namespace() == victim.Namespace() || !bytes.Equal(forged.Append(nil), victim.Append(nil)) {
		t.Fatal("the forgery of an optional line has the victim's namespace, or another form than it")
	}
	for i := range manifestFields {
		if f := manifestFields[i]; f.text != nil {
			m := fullManifest
			*f.text(&m) = "a\nb"
			if err := m.Check(); !errors.Is(err, CodeManifest) || !strings.Contains(err.Error(), f.key) {
				t.Errorf("%s with a line break: %v", f.key, err)
			}
		}
	}
}
