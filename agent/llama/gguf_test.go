package llama_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"
)

// ggufTensor is one tensor of a GGUF file.
type ggufTensor struct {
	name string
	dims []uint64
	kind uint32 // 0: f32
	data []byte
}

// ggufFile is a GGUF file of version 3, as far as a test takes one apart and puts
// it together. Source: the GGUF specification of ggml.
type ggufFile struct {
	keys    int
	kv      []byte // the keys with their values, as they stand in the file
	tensors []ggufTensor
}

const (
	ggufMagic = 0x46554747
	ggufAlign = 32 // of tensors' data, where the file names no other
)

// ggufReader reads numbers and strings off a file.
type ggufReader struct {
	b  []byte
	at int
}

func (r *ggufReader) u32() uint32 {
	r.at += 4
	return binary.LittleEndian.Uint32(r.b[r.at-4:])
}

func (r *ggufReader) u64() uint64 {
	r.at += 8
	return binary.LittleEndian.Uint64(r.b[r.at-8:])
}

func (r *ggufReader) text() string {
	n := int(r.u64())
	r.at += n
	return string(r.b[r.at-n : r.at])
}

// value skips a value of a kind.
func (r *ggufReader) value(t *testing.T, kind uint32) {
	t.Helper()
	sizes := map[uint32]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	switch {
	case kind == 8:
		_ = r.text()
	case kind == 9:
		of, n := r.u32(), r.u64()
		for range n {
			r.value(t, of)
		}
	case sizes[kind] > 0:
		r.at += sizes[kind]
	default:
		t.Fatalf("a value of kind %d", kind)
	}
}

func readGGUF(t *testing.T, path string) *ggufFile {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &ggufReader{b: b}
	if magic, version := r.u32(), r.u32(); magic != ggufMagic || version != 3 {
		t.Fatalf("%s: magic %x, version %d", path, magic, version)
	}
	tensors, keys := int(r.u64()), int(r.u64())
	f := &ggufFile{keys: keys, tensors: make([]ggufTensor, tensors)}
	begin := r.at
	for range keys {
		if r.text() == "general.alignment" {
			t.Fatalf("%s has an alignment of its own", path)
		}
		r.value(t, r.u32())
	}
	f.kv = b[begin:r.at]
	offsets := make([]uint64, tensors)
	for i := range f.tensors {
		x := &f.tensors[i]
		x.name = r.text()
		x.dims = make([]uint64, r.u32())
		for d := range x.dims {
			x.dims[d] = r.u64()
		}
		x.kind, offsets[i] = r.u32(), r.u64()
	}
	data := b[(r.at+ggufAlign-1)/ggufAlign*ggufAlign:]
	for i := range f.tensors {
		end := uint64(len(data))
		if i+1 < tensors {
			end = offsets[i+1] // with the padding behind it, which is written anew
		}
		f.tensors[i].data = bytes.Clone(data[offsets[i]:end])
	}
	return f
}

func (f *ggufFile) tensor(t *testing.T, name string) *ggufTensor {
	t.Helper()
	for i := range f.tensors {
		if f.tensors[i].name == name {
			return &f.tensors[i]
		}
	}
	t.Fatalf("the model has no tensor %s", name)
	return nil
}

// scale multiplies a tensor of f32.
func (x *ggufTensor) scale(t *testing.T, by float32) {
	t.Helper()
	if x.kind != 0 {
		t.Fatalf("%s is of kind %d, want f32", x.name, x.kind)
	}
	for i := 0; i+4 <= len(x.data); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(x.data[i:]))
		binary.LittleEndian.PutUint32(x.data[i:], math.Float32bits(v*by))
	}
}

func ggufText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// set adds a key: a string, a uint16, an int32 or a float32.
func (f *ggufFile) set(name string, value any) {
	f.keys++
	f.kv = ggufText(bytes.Clone(f.kv), name)
	kind := map[string]uint32{"uint16": 2, "int32": 5, "float32": 6, "string": 8}[fmt.Sprintf("%T", value)]
	f.kv = binary.LittleEndian.AppendUint32(f.kv, kind)
	if s, ok := value.(string); ok {
		f.kv = ggufText(f.kv, s)
		return
	}
	f.kv, _ = binary.Append(f.kv, binary.LittleEndian, value) // a number
}

func (f *ggufFile) write(t *testing.T, path string) {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, ggufMagic)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.keys))
	b = append(b, f.kv...)
	offset := uint64(0)
	for _, x := range f.tensors {
		b = binary.LittleEndian.AppendUint32(ggufText(b, x.name), uint32(len(x.dims)))
		for _, d := range x.dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, x.kind), offset)
		offset += (uint64(len(x.data)) + ggufAlign - 1) / ggufAlign * ggufAlign
	}
	pad := func() { b = append(b, make([]byte, (ggufAlign-len(b)%ggufAlign)%ggufAlign)...) }
	pad()
	for _, x := range f.tensors {
		b = append(b, x.data...)
		pad()
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// split writes a model as two shards, and returns the first one's path.
func (f *ggufFile) split(t *testing.T, dir string) string {
	t.Helper()
	half := len(f.tensors) / 2
	parts := []*ggufFile{{keys: f.keys, kv: f.kv, tensors: f.tensors[:half]}, {tensors: f.tensors[half:]}}
	for i, p := range parts {
		p.set("split.no", uint16(i))
		p.set("split.count", uint16(len(parts)))
		p.set("split.tensors.count", int32(len(f.tensors)))
		p.write(t, fmt.Sprintf("%s/m-%05d-of-%05d.gguf", dir, i+1, len(parts)))
	}
	return fmt.Sprintf("%s/m-00001-of-%05d.gguf", dir, len(parts))
}

// lora writes an adapter of rank 2 that changes what one matrix of the model gives.
func (f *ggufFile) lora(t *testing.T, path, matrix string, seed int) {
	t.Helper()
	const rank = 2
	dims := f.tensor(t, matrix).dims
	fill := func(n uint64) []byte {
		b := make([]byte, 0, 4*n)
		for i := range int(n) {
			v := float32((i*31+seed)%17-8) / 40
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	out := &ggufFile{tensors: []ggufTensor{
		{name: matrix + ".lora_a", dims: []uint64{dims[0], rank}, data: fill(dims[0] * rank)},
		{name: matrix + ".lora_b", dims: []uint64{rank, dims[1]}, data: fill(rank * dims[1])},
	}}
	out.set("general.type", "adapter")
	out.set("general.architecture", "llama")
	out.set("adapter.type", "lora")
	out.set("adapter.lora.alpha", float32(rank))
	out.write(t, path)
}
