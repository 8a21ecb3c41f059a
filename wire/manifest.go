package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Limits of a manifest, in bytes.
const (
	MaxManifest      = 4096 // all lines together
	MaxManifestValue = 512  // one value
)

// Manifest describes the bytes of the blocks of one namespace: who may see
// them, which model made them, how they are laid out, and which part of the
// model one agent's blocks hold. Two manifests that differ in one field are
// two namespaces and never share a key.
//
// Text values are valid UTF-8 of at most MaxManifestValue bytes without
// control characters; an empty one is allowed.
type Manifest struct {
	Tenant, Model, Revision, Role, Dtype, Layout string

	BlockTokens       uint32 // tokens of a full block
	BlockBytes        uint32 // body of a full block; the last of a chain may be shorter
	KVHeads, HeadSize uint32
	LayerFirst        uint32 // first layer held here
	LayerLast         uint32 // last layer held here, included
	TPRank, TPSize    uint32 // tensor parallel
	PPRank, PPSize    uint32 // pipeline parallel
	DCPRank, DCPSize  uint32 // decode context parallel
	HashScheme        string // how the engine makes its block hashes

	// Left out of the canonical form where they are zero or empty.
	KVGroup     uint32 // index of the KV cache group of a hybrid model; 0: the first, or the only one
	KVGroupKind string // what its layers keep: full, sliding, mamba, ...
	KVWindow    uint32 // tokens that a sliding window sees; 0: no window
	ScaleBytes  uint32 // of KV scales, within BlockBytes; 0: none
	ScaleDtype  string
}

// ManifestError says which line of a manifest is not canonical, or which
// value is not valid. It matches CodeManifest.
type ManifestError struct {
	Line int    // from 1; 0 where the whole is at fault
	Key  string // the key that was expected at that line, or has the value
	Text string
}

func (e *ManifestError) Error() string {
	s := "manifest: "
	if e.Line > 0 {
		s += "line " + strconv.Itoa(e.Line) + ": "
	}
	if e.Key != "" {
		s += e.Key + ": "
	}
	return s + e.Text
}

// Unwrap returns CodeManifest.
func (e *ManifestError) Unwrap() error { return CodeManifest }

// manifestField is one line of the canonical form: a key, and where its value
// lies. Exactly one of text and num is set. A line of opt is there only where the
// value is neither 0 nor empty, so that a manifest made before the key existed keeps
// its bytes.
type manifestField struct {
	key  string
	opt  bool
	text func(*Manifest) *string
	num  func(*Manifest) *uint32
}

// manifestFields are the lines of the canonical form, sorted by key.
var manifestFields = [...]manifestField{
	{key: "block_bytes", num: func(m *Manifest) *uint32 { return &m.BlockBytes }},
	{key: "block_tokens", num: func(m *Manifest) *uint32 { return &m.BlockTokens }},
	{key: "dcp_rank", num: func(m *Manifest) *uint32 { return &m.DCPRank }},
	{key: "dcp_size", num: func(m *Manifest) *uint32 { return &m.DCPSize }},
	{key: "dtype", text: func(m *Manifest) *string { return &m.Dtype }},
	{key: "hash_scheme", text: func(m *Manifest) *string { return &m.HashScheme }},
	{key: "head_size", num: func(m *Manifest) *uint32 { return &m.HeadSize }},
	{key: "kv_group", opt: true, num: func(m *Manifest) *uint32 { return &m.KVGroup }},
	{key: "kv_group_kind", opt: true, text: func(m *Manifest) *string { return &m.KVGroupKind }},
	{key: "kv_heads", num: func(m *Manifest) *uint32 { return &m.KVHeads }},
	{key: "kv_window", opt: true, num: func(m *Manifest) *uint32 { return &m.KVWindow }},
	{key: "layer_first", num: func(m *Manifest) *uint32 { return &m.LayerFirst }},
	{key: "layer_last", num: func(m *Manifest) *uint32 { return &m.LayerLast }},
	{key: "layout", text: func(m *Manifest) *string { return &m.Layout }},
	{key: "model", text: func(m *Manifest) *string { return &m.Model }},
	{key: "pp_rank", num: func(m *Manifest) *uint32 { return &m.PPRank }},
	{key: "pp_size", num: func(m *Manifest) *uint32 { return &m.PPSize }},
	{key: "revision", text: func(m *Manifest) *string { return &m.Revision }},
	{key: "role", text: func(m *Manifest) *string { return &m.Role }},
	{key: "scale_bytes", opt: true, num: func(m *Manifest) *uint32 { return &m.ScaleBytes }},
	{key: "scale_dtype", opt: true, text: func(m *Manifest) *string { return &m.ScaleDtype }},
	{key: "tenant", text: func(m *Manifest) *string { return &m.Tenant }},
	{key: "tp_rank", num: func(m *Manifest) *uint32 { return &m.TPRank }},
	{key: "tp_size", num: func(m *Manifest) *uint32 { return &m.TPSize }},
}

// absent says that m's canonical form has no line for the field.
func (f *manifestField) absent(m *Manifest) bool {
	if f.text != nil {
		return f.opt && *f.text(m) == ""
	}
	return f.opt && *f.num(m) == 0
}

// append adds the field's value in m to b.
func (f *manifestField) append(b []byte, m *Manifest) []byte {
	if f.text != nil {
		return append(b, *f.text(m)...)
	}
	return strconv.AppendUint(b, uint64(*f.num(m)), 10)
}

// set stores the value v in m, and returns what is wrong with it.
func (f *manifestField) set(m *Manifest, v []byte) string {
	if f.text != nil {
		*f.text(m) = string(v)
		return checkManifestValue(string(v))
	}
	n, err := strconv.ParseUint(string(v), 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != string(v) {
		return fmt.Sprintf("%.32q is not a number of 32 bits in canonical decimal form", v)
	}
	*f.num(m) = uint32(n)
	return ""
}

// checkManifestValue returns what is wrong with a text value.
func checkManifestValue(v string) string {
	if len(v) > MaxManifestValue {
		return fmt.Sprintf("%d bytes, limit %d", len(v), MaxManifestValue)
	}
	if !utf8.ValidString(v) {
		return "not valid UTF-8"
	}
	for i, r := range v {
		if unicode.IsControl(r) {
			return fmt.Sprintf("control character %U at byte %d", r, i)
		}
	}
	return ""
}

// Check says whether m may be sent: a *ManifestError names the first value, in
// canonical order, that ParseManifest would refuse, or says that all are too long
// together.
func (m Manifest) Check() error {
	size := 0
	for i := range manifestFields {
		f := &manifestFields[i]
		if f.absent(&m) {
			continue
		}
		size += len(f.key) + len("=\n")
		if f.text == nil {
			var digits [10]byte
			size += len(f.append(digits[:0], &m))
			continue
		}
		v := *f.text(&m)
		if wrong := checkManifestValue(v); wrong != "" {
			return &ManifestError{Key: f.key, Text: wrong}
		}
		size += len(v)
	}
	return checkManifestSize(size)
}

func checkManifestSize(n int) error {
	if n > MaxManifest {
		return &ManifestError{Text: fmt.Sprintf("%d bytes, limit %d", n, MaxManifest)}
	}
	return nil
}

// Append appends the canonical form of m to b: one line "key=value\n" a field,
// sorted by key, numbers in decimal; fields that are left out where they are zero or
// empty only where they are not. It does not check the values.
func (m Manifest) Append(b []byte) []byte {
	for i := range manifestFields {
		f := &manifestFields[i]
		if f.absent(&m) {
			continue
		}
		b = append(append(b, f.key...), '=')
		b = append(f.append(b, &m), '\n')
	}
	return b
}

// ParseManifest reads a canonical manifest and nothing else: a missing,
// unknown, repeated or misplaced key, a number with a sign or leading zeros,
// an invalid value or bytes after the last line are each a *ManifestError.
func ParseManifest(b []byte) (Manifest, error) {
	if err := checkManifestSize(len(b)); err != nil {
		return Manifest{}, err
	}
	var m Manifest
	n := 1
	for i := range manifestFields {
		f := &manifestFields[i]
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		key, value, pair := bytes.Cut(line, []byte{'='})
		there := pair && string(key) == f.key
		if !there && f.opt {
			continue
		}
		var wrong string
		switch {
		case !there:
			wrong = fmt.Sprintf("expected here, got %.64q", line)
		case !ended:
			wrong = "the line does not end"
		default:
			wrong = f.set(&m, value)
		}
		if wrong == "" && f.absent(&m) {
			wrong = "left out where it is zero or empty"
		}
		if wrong != "" {
			return Manifest{}, &ManifestError{Line: n, Key: f.key, Text: wrong}
		}
		b = rest
		n++
	}
	if len(b) > 0 {
		return Manifest{}, &ManifestError{Line: n, Text: fmt.Sprintf("%d bytes after the last line", len(b))}
	}
	return m, nil
}

// Namespace returns BLAKE3-256 of the canonical form. A manifest that fails
// Check has a namespace that no canonical manifest has: its form is hashed behind an
// empty line, since a line break in a value may make the line of a key that is left
// out.
func (m Manifest) Namespace() Namespace {
	b := m.Append(make([]byte, 1, keyStack*8))
	if m.Check() != nil {
		b[0] = '\n'
		return digestOf(b)
	}
	return digestOf(b[1:])
}

// TenantID returns BLAKE3-256 of "tenant\n" and the tenant's name.
func (m Manifest) TenantID() [32]byte {
	return digestOf(append([]byte("tenant\n"), m.Tenant...))
}

// Diff returns the first key, in canonical order, whose values differ between
// m and o, and both values; field is "" where they are equal.
func (m Manifest) Diff(o Manifest) (field, mine, theirs string) {
	for i := range manifestFields {
		f := &manifestFields[i]
		a, b := string(f.append(nil, &m)), string(f.append(nil, &o))
		if a != b {
			return f.key, a, b
		}
	}
	return "", "", ""
}

// SameFamily reports whether m and o agree on tenant, model and role, so that
// a further difference is a mistake of geometry and worth naming.
func (m Manifest) SameFamily(o Manifest) bool {
	return m.Tenant == o.Tenant && m.Model == o.Model && m.Role == o.Role
}

// SamePart reports whether m and o are of the same part of a model: ranks, layers, and the
// KV cache group of a hybrid model. Parts of one model stand side by side, each with its
// own namespace.
func (m Manifest) SamePart(o Manifest) bool {
	return m.TPRank == o.TPRank && m.PPRank == o.PPRank && m.DCPRank == o.DCPRank &&
		m.LayerFirst == o.LayerFirst && m.LayerLast == o.LayerLast && m.KVGroup == o.KVGroup
}
