package wire

import (
	"bytes"
	"io"
	"testing"
)

// TestHotPathsDoNotAllocate covers what runs once a block or once a frame.
func TestHotPathsDoNotAllocate(t *testing.T) {
	small, large := patterned(700), patterned(300<<10)
	header := Header{BodyLen: 5, Sum: SumOf(nil)}.Append(nil)
	payload := payloadOf(t, ThinkActive, large)
	dst, room := make([]byte, len(large)), make([]byte, 0, HeaderLen)
	ns, hash := Manifest{}.Namespace(), patterned(keyStack)
	ref := Ref{Inc: 1}
	reader, src := NewReader(nil, Strict, MaxBody), bytes.NewReader(payload)

	for name, f := range map[string]func(){
		"ParseHeader strict":  func() { _, _ = ParseHeader(header, Strict, MaxBody) },
		"ParseHeader lenient": func() { _, _ = ParseHeader(header, Lenient, MaxBody) },
		"Header.Append":       func() { room = Header{}.Append(room[:0]) },
		"Header.Put":          func() { Header{}.Put(header) },
		"SumOf small":         func() { SumOf(small) },
		"SumOf large":         func() { SumOf(large) },
		"CopySum small":       func() { CopySum(dst, small) },
		"CopySum large":       func() { CopySum(dst, large) },
		"Seal":                func() { _, _ = Seal(payload, ThinkActive) },
		"Decode":              func() { _, _, _ = Decode(payload, Strict, MaxBody) },
		"KeyOf":               func() { KeyOf(ns, hash) },
		"Ref.Handle":          func() { RefOf(ref.Handle()) },
		"Code.String":         func() { _ = CodeTooMany.String() },
		"Reader": func() {
			src.Reset(payload)
			reader.Reset(src)
			if _, err := io.ReadFull(reader, dst); err != nil {
				t.Error(err)
			}
		},
	} {
		f() // the first call may fill a pool
		// The collector may empty a pool during a run, hence an average below one.
		if n := testing.AllocsPerRun(100, f); n >= 1 {
			t.Errorf("%s allocates %v times a call", name, n)
		}
	}
}
