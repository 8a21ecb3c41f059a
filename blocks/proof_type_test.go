package blocks_test

import (
	"bytes"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/wire"
)

// Proof of other memory, even of equal bytes, is none: the slot's own are hashed.
func TestCommitTakesProofOfTheSlotsOwnBytesOnly(t *testing.T) {
	s, o, ns := openStore(t, false)
	good := bytes.Repeat([]byte{7}, 4096)
	bad := bytes.Repeat([]byte{8}, 4096)
	head := wire.Header{BodyLen: 4096, Sum: wire.SumOf(good)}
	for i, c := range []struct {
		name  string
		bytes []byte
		proof func(room []byte) wire.Verified
		head  *wire.Header
		want  wire.Code
	}{
		{"of the slot", good, wire.Hash, &head, wire.CodeOK},
		{"of the slot, header minted", good, wire.Hash, nil, wire.CodeOK},
		{"of the slot, and not the header's", bad, wire.Hash, &head, wire.CodeChecksum},
		{"of the right bytes elsewhere", bad, func([]byte) wire.Verified { return wire.Hash(good) }, &head, wire.CodeChecksum},
		{"of a part", good, func(b []byte) wire.Verified { return wire.Hash(b[:4095]) }, &head, wire.CodeOK},
		{"none", bad, func([]byte) wire.Verified { return wire.Verified{} }, &head, wire.CodeChecksum},
	} {
		v, err := s.Reserve(o, ns, []uint32{4096}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		room := s.Room(v[0])[wire.HeaderLen:]
		copy(room, c.bytes)
		key := wire.Key{byte(i + 1)}
		k := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key, Head: c.head, Len: 4096, Att: wire.AttestProducer, Proof: c.proof(room)}}
		s.Commit(o, k)
		if wire.CodeOf(k[0].Err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, k[0].Err, c.want)
		}
		view := []blocks.View{{NS: ns, Key: key}}
		lease, err := s.Acquire(o, view, time.Minute, false)
		if (view[0].Err == nil) != (c.want == wire.CodeOK) {
			t.Errorf("%s: acquire: %v, %v", c.name, view[0].Err, err)
		}
		if view[0].Err == nil {
			if h, _, err := wire.Decode(s.Payload(view[0]), wire.Strict, wire.MaxBody); err != nil || h.Sum != head.Sum {
				t.Errorf("%s: payload: %v, %v", c.name, h, err)
			}
		}
		s.Release(o, lease)
	}
}
