package link

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

	"meridian/wire"
)

// -update writes the vectors anew. Another author's implementation is held to
// them, so a difference is a change of the protocol.
var update = flag.Bool("update", false, "write conformance/vectors/link-v1")

const vectorDir = "../../conformance/vectors/link-v1"

// vector is one whole frame. The README beside the vectors is its manual.
type vector struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Hex    string         `json:"hex"`
	Frame  map[string]any `json:"frame"`
	Fields any            `json:"fields"`
}

// refusal is a frame that must not pass.
type refusal struct {
	Name   string `json:"name"`
	Stage  string `json:"stage"` // what sees it: frame, payload, message
	Code   string `json:"code"`
	Number int    `json:"number"`
	Offset uint64 `json:"offset"` // from the start of the header, or of the payload
	Hex    string `json:"hex"`
}

func frameFields(f Frame) map[string]any {
	return map[string]any{
		"len": number(uint64(f.Len)), "type": number(uint64(f.Type)), "flags": number(uint64(f.Flags)), "class": number(uint64(f.Class)),
		"req": strconv.FormatUint(f.Req, 10), "arg": number(uint64(f.Arg)),
	}
}

func number(v uint64) json.Number { return json.Number(strconv.FormatUint(v, 10)) }

// vectorsOf are the vectors of the specimens of k.
func vectorsOf(t *testing.T, k *kind) (l []vector) {
	for _, s := range k.samples {
		b := AppendMessage(nil, s.f, s.m)
		f, err := ParseFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, vector{s.name, k.t.String(), hex.EncodeToString(b), frameFields(f), fields(s.m)})
	}
	return l
}

// dataVectors are those of DATA, which is no control frame.
func dataVectors() []vector {
	body := []byte("payload")
	f := Frame{Len: uint32(DataPrefixLen + len(body)), Type: TypeData, Class: ClassSoon, Req: 21, Arg: 1}
	b := append(AppendData(nil, f, 4096, len(body)), body...)
	return []vector{{"seven bytes of the second item", f.Type.String(), hex.EncodeToString(b), frameFields(f),
		map[string]any{"offset": number(4096), "body": hex.EncodeToString(body)}}}
}

// plainVectors are frames of a lane with PLAIN: the first specimen of each message
// that an engine's socket has besides HELLO.
func plainVectors(t *testing.T) (l []vector) {
	for _, k := range kinds {
		if k.t == TypeHello {
			continue
		}
		s := k.samples[0]
		b := AppendLocal(nil, true, s.f, s.m)
		f, fail := parseFrame(b, true)
		if fail != nil {
			t.Fatal(fail)
		}
		l = append(l, vector{k.t.String() + ", " + s.name, k.t.String(), hex.EncodeToString(b), frameFields(f), fields(s.m)})
	}
	return l
}

// refusals are frames that each break one rule.
func refusals() (l []refusal) {
	add := func(name, stage string, code wire.Code, off uint64, b []byte) {
		l = append(l, refusal{name, stage, code.String(), int(code), off, hex.EncodeToString(b)})
	}
	ping := AppendMessage(nil, Frame{Type: TypePing, Req: 1}, Empty{})
	pull := AppendMessage(nil, Frame{Type: TypePull, Req: 1}, pullKind.samples[0].m)
	header := func(f Frame, off int, v byte) []byte {
		b := with(AppendMessage(nil, f, Empty{}), off, v)
		return append(seal(b[:FrameLen:FrameLen]), b[FrameLen:]...)
	}
	message := func(t Type, p []byte) []byte { return AppendMessage(nil, Frame{Type: t, Req: 1}, raw(p)) }

	add("header cut after 23 bytes", "frame", wire.CodeLength, 23, ping[:23])
	add("one bit of the request id flipped", "frame", wire.CodeCRC, 20, with(ping, 8, 0))
	add("an undefined flag", "frame", wire.CodeInvalid, 5, header(Frame{Type: TypePing, Req: 1}, 5, 2))
	add("class 4", "frame", wire.CodeInvalid, 6, header(Frame{Type: TypePing, Req: 1}, 6, 4))
	add("reserved byte of the header", "frame", wire.CodeInvalid, 7, header(Frame{Type: TypePing, Req: 1}, 7, 1))
	add("a control frame without trailer", "frame", wire.CodeLength, 0, Frame{Type: TypePing, Req: 1, Len: 3}.Append(nil))
	add("PING with a payload", "frame", wire.CodeLength, 0, Frame{Type: TypePing, Req: 1, Len: 5}.Append(nil))
	add("DATA without a body byte", "frame", wire.CodeLength, 0, Frame{Type: TypeData, Req: 1, Len: 4}.Append(nil))
	add("DATA above 256 KiB + 4", "frame", wire.CodeLength, 0, Frame{Type: TypeData, Req: 1, Len: MaxData + 1}.Append(nil))
	add("an unknown type above 1 MiB", "frame", wire.CodeLength, 0, Frame{Type: 200, Req: 1, Len: MaxControl + 1}.Append(nil))
	add("one bit of the payload flipped", "payload", wire.CodeCRC, uint64(len(pull)-FrameLen-TrailerLen), with(pull, FrameLen+40, 0xff))
	add("trailer of the empty payload wrong", "payload", wire.CodeCRC, 0, with(ping, FrameLen, 1))

	add("OPEN of a manifest of 4097 bytes", "frame", wire.CodeLength, 0, Frame{Type: TypeOpen, Req: 1, Len: openFixed + MaxManifest + 1 + TrailerLen}.Append(nil))
	add("HELLO shorter than its fixed part", "frame", wire.CodeLength, 0, Frame{Type: TypeHello, Flags: FlagCritical, Len: helloFixed + TrailerLen - 1}.Append(nil))

	p := pullKind.payload(0)
	add("PULL of 2 items with the bytes of 1", "message", wire.CodeLength, uint64(len(p)-wantLen), message(TypePull, p[:len(p)-wantLen]))
	add("PULL of 4097 items", "message", wire.CodeLength, 8, message(TypePull, with(with(p, 8, 1), 9, 16)))
	add("PULL of 2^32-1 items", "message", wire.CodeLength, 8, message(TypePull, append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}, p[pullFixed:]...)))
	add("PULL with a byte after the last item", "message", wire.CodeLength, uint64(len(p)), message(TypePull, append(bytes.Clone(p), 0)))
	add("HELLO with another magic", "message", wire.CodeLinkMagic, 0, message(TypeHello, with(helloKind.payload(0), 0, 'X')))
	add("HELLO with lane 17", "message", wire.CodeInvalid, 48, message(TypeHello, with(helloKind.payload(0), 48, 17)))
	add("HELLO with 17 auth elements", "message", wire.CodeLength, 112, message(TypeHello, with(helloKind.payload(0), 112, 17)))
	add("HELLO with a reserved byte set", "message", wire.CodeInvalid, 49, message(TypeHello, with(helloKind.payload(0), 49, 1)))
	add("TABLE with tier 3", "message", wire.CodeInvalid, 22, message(TypeTable, with(tableKind.payload(0), 22, 3)))
	add("TABLE with attest 3", "message", wire.CodeInvalid, 23, message(TypeTable, with(tableKind.payload(0), 23, 3)))
	add("END with text that is not UTF-8", "message", wire.CodeInvalid, 12, message(TypeEnd, with(endKind.payload(1), 12, 0xff)))
	add("END with text of 257 bytes", "message", wire.CodeLength, 2, message(TypeEnd, with(with(endKind.payload(1), 2, 1), 3, 1)))
	add("ACQUIRE with hold 2", "message", wire.CodeInvalid, 8, message(TypeAcquire, with(acquireKind.payload(0), 8, 2)))
	add("MAP with kind 4", "message", wire.CodeInvalid, 8, message(TypeMap, with(mapKind.payload(0), 8, 4)))
	add("MAP of a staging ring with an id", "message", wire.CodeInvalid, 36, message(TypeMap, with(mapKind.payload(0), 36, 1)))
	add("PUT with a reserved byte set", "message", wire.CodeInvalid, 11, message(TypePut, with(putKind.payload(0), 11, 1)))
	add("TOKENS whose columns disagree", "message", wire.CodeInvalid, 4, message(TypeTokens, Tokens{Req: []uint32{1}, N: []uint8{2}, Tok: []int32{5}}.Append(nil)))
	add("FINISH with reason 2", "message", wire.CodeInvalid, 4, message(TypeFinish, with(finishKind.payload(0), 4, 2)))

	load := loadKind.payload(0)
	add("LOAD with hold 2", "message", wire.CodeInvalid, 8, message(TypeLoad, with(load, 8, 2)))
	add("LOAD of 257 holders", "message", wire.CodeLength, 10, message(TypeLoad, with(with(load, 10, 1), 11, 1)))
	add("LOAD with holder 3 of 2", "message", wire.CodeInvalid, 68, message(TypeLoad, with(load, 68, 3)))
	add("LOAD with a holder whose agent is zero", "message", wire.CodeInvalid, 16, message(TypeLoad, Load{Holders: []Holder{{Inc: 1}}}.Append(nil)))
	add("LOAD with a holder whose incarnation is zero", "message", wire.CodeInvalid, 32, message(TypeLoad, Load{Holders: []Holder{{Agent: [16]byte{1}}}}.Append(nil)))
	add("LOADED without an item", "frame", wire.CodeLength, 0, Frame{Type: TypeLoaded, Req: 1, Len: loadedFixed + TrailerLen}.Append(nil))
	add("LOADED of 0 items with the bytes of 2", "message", wire.CodeInvalid, 20, message(TypeLoaded, with(loadedKind.payload(1), 20, 0)))
	add("PUTAT with tier 3", "message", wire.CodeInvalid, 10, message(TypePutAt, with(putAtKind.payload(0), 10, 3)))
	add("PUTAT with an undefined flag", "message", wire.CodeInvalid, 11, message(TypePutAt, with(putAtKind.payload(0), 11, 2)))
	add("PUTAT with pin_ms and without PIN", "message", wire.CodeInvalid, 64, message(TypePutAt, with(putAtKind.payload(0), 64, 1)))
	add("RESERVE with an offset in the ring", "message", wire.CodeInvalid, 20, message(TypeReserve, with(reserveKind.payload(0), 20, 1)))
	add("FILL with last 2", "message", wire.CodeInvalid, 8, message(TypeFill, with(fillKind.payload(0), 8, 2)))
	add("PHASEAT of 257 tokens", "message", wire.CodeLength, 6, message(TypePhaseAt, with(with(phaseAtKind.payload(0), 6, 1), 7, 1)))
	both := resumeKind.payload(0)
	le.PutUint32(both[24:], MaxPrompt-1)
	add("RESUME of 260,001 tokens in all", "message", wire.CodeLength, 28, message(TypeResume, both))
	add("EVICTED with a reserved byte set", "message", wire.CodeInvalid, 10, message(TypeEvicted, with(evictedKind.payload(0), 10, 1)))
	add("PROCESS with a payload", "frame", wire.CodeLength, 0, Frame{Type: TypeProcess, Req: 1, Len: 5}.Append(nil))
	return l
}

// raw is a payload as bytes.
type raw []byte

func (r raw) Append(b []byte) []byte { return append(b, r...) }
func (r raw) Length() int            { return len(r) }

func vectorFile(t Type) string { return strings.ToLower(t.String()) + ".json" }

func writeJSON(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(vectorDir, name), append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectorDir, name))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestVectorsAreWrittenByThisVersion(t *testing.T) {
	if *update {
		for _, k := range kinds {
			writeJSON(t, vectorFile(k.t), vectorsOf(t, k))
		}
		writeJSON(t, vectorFile(TypeData), dataVectors())
		writeJSON(t, "plain.json", plainVectors(t))
		writeJSON(t, "refused.json", refusals())
	}
	for _, k := range kinds {
		var l []vector
		readJSON(t, vectorFile(k.t), &l)
		if got, want := asJSON(t, vectorsOf(t, k)), asJSON(t, l); got != want {
			t.Errorf("%v: this version writes\n%s\nthe vectors are\n%s", k.t, got, want)
		}
	}
	var data []vector
	readJSON(t, vectorFile(TypeData), &data)
	if got, want := asJSON(t, dataVectors()), asJSON(t, data); got != want {
		t.Errorf("DATA: this version writes\n%s\nthe vectors are\n%s", got, want)
	}
	var plain []vector
	readJSON(t, "plain.json", &plain)
	if got, want := asJSON(t, plainVectors(t)), asJSON(t, plain); got != want {
		t.Errorf("PLAIN: this version writes\n%s\nthe vectors are\n%s", got, want)
	}
}

func TestVectorsAreReadByThisVersion(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.json"))
	if err != nil || len(files) != len(kinds)+3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, k := range kinds {
		var l []vector
		readJSON(t, vectorFile(k.t), &l)
		for _, v := range l {
			checkVector(t, v, k, Splitter{Begun: true})
		}
	}
	var plain []vector
	readJSON(t, "plain.json", &plain)
	for _, v := range plain {
		i := slices.IndexFunc(kinds, func(k *kind) bool { return k.t.String() == v.Type })
		checkVector(t, v, kinds[i], Splitter{Begun: true, Plain: true})
	}
}

func checkVector(t *testing.T, v vector, k *kind, s Splitter) {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	n, ev, err := s.Next(b)
	if err != nil || n != len(b) || ev.Kind != EventMessage {
		t.Fatalf("%v %q: %d of %d, %+v, %v", k.t, v.Name, n, len(b), ev, err)
	}
	x, err := k.parse(ev.Payload)
	if err != nil || asJSON(t, fields(x)) != asJSON(t, v.Fields) || asJSON(t, frameFields(ev.Frame)) != asJSON(t, v.Frame) {
		t.Errorf("%v %q: %s, %v", k.t, v.Name, asJSON(t, fields(x)), err)
	}
}

func TestRefusedVectorsAreRefused(t *testing.T) {
	var l []refusal
	readJSON(t, "refused.json", &l)
	if got, want := asJSON(t, refusals()), asJSON(t, l); got != want {
		t.Errorf("this version has\n%s\nthe vectors are\n%s", got, want)
	}
	for _, v := range l {
		b, err := hex.DecodeString(v.Hex)
		if err != nil {
			t.Fatal(err)
		}
		stage := "frame"
		f, err := ParseFrame(b)
		var p []byte
		if err == nil {
			stage = "payload"
			p, err = payloadOf(f, b[FrameLen:])
		}
		if err == nil {
			stage = "message"
			_, err = kindOf(f.Type).parse(p)
		}
		var fe *FrameError
		if !errors.As(err, &fe) || stage != v.Stage || fe.Code.String() != v.Code || int(fe.Code) != v.Number || fe.Offset != v.Offset {
			t.Errorf("%s: %s at stage %s: %v", v.Name, v.Code, stage, err)
		}
	}
}
