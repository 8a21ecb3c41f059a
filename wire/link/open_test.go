package link

import (
	"bytes"
	"testing"

	"meridian/wire"
)

var openKind = newKind[Open](TypeOpen,
	sample{"manifest", Frame{Req: 1}, Open{Manifest: []byte("model=m\ntenant=t\n")}},
	sample{"empty", Frame{Req: 3}, Open{}},
	sample{"longest", Frame{Req: 5}, Open{Manifest: bytes.Repeat([]byte("x"), 200)}},
)

func TestOpen(t *testing.T) { openKind.check(t) }

func TestOpenRefusesAManifestAboveTheLimit(t *testing.T) {
	longest := Open{Manifest: make([]byte, MaxManifest)}
	if _, err := Parse[Open](longest.Append(nil)); err != nil {
		t.Fatal(err)
	}
	openKind.refuse(t, "one more", Open{Manifest: make([]byte, MaxManifest+1)}.Append(nil), wire.CodeLength, 0)
}
