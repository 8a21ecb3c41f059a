package handshake

import (
	"strings"
	"testing"

	"meridian/adapters/mooncake/segment"
	"meridian/internal/door"
)

// A request of many small values costs no more than its bytes.
func TestARequestIsNotUnpackedIntoManyTimesItsSize(t *testing.T) {
	s := NewServer(Config{Refused: func(string, error) {}, Descriptor: func(string) segment.Descriptor { return segment.Descriptor{} }})
	text := []byte(`{"a":[` + strings.Repeat("{},", MaxFrame/3-8) + `{}]}`)
	for _, typ := range []Type{TypeConnection, TypeMetadata, TypeProbe, TypeNotify} {
		made := testing.AllocsPerRun(1, func() {
			if _, err := s.answer(&door.Conn{Peer: "p"}, frame{typ: typ, text: text}); err != nil && typ != TypeNotify {
				t.Error(err)
			}
		})
		if made > 1000 {
			t.Errorf("%s: %.0f allocations for %d bytes", typ, made, len(text))
		}
	}
}
