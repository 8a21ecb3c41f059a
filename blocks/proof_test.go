package blocks_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/blocks"
	"meridian/wire"
)

func openStore(t *testing.T, always bool) (*blocks.Store, blocks.Owner, wire.Namespace) {
	t.Helper()
	s, err := blocks.Open(blocks.Config{Capacity: 4 << 20, ExtentBytes: 256 << 10, VerifyAlways: always})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	m := wire.Manifest{Tenant: "t", Model: "m"}
	if err := s.AddNamespace(m.Namespace(), m.TenantID()); err != nil {
		t.Fatal(err)
	}
	return s, s.NewOwner(0), m.Namespace()
}

// Bytes that the daemon itself wrote into a slot are published under the header
// that it claims for them only where they match it, whatever arena.verify is.
func TestAClaimedHeaderThatTheBytesDoNotMatchIsNeverPublished(t *testing.T) {
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprintf("verify always %v", always), func(t *testing.T) {
			s, o, ns := openStore(t, always)
			body := bytes.Repeat([]byte("kv"), 500)
			right := wire.Header{BodyLen: 1000, Tier: wire.ThinkActive, Sum: wire.SumOf(body)}
			other := right
			other.Sum[5] ^= 0x10
			short := right
			short.BodyLen = 999
			for i, c := range []struct {
				name string
				head wire.Header
				want wire.Code
			}{{"another sum", other, wire.CodeChecksum}, {"a shorter body", short, wire.CodeChecksum}, {"no sum", wire.Header{BodyLen: 1000}, wire.CodeChecksum}, {"nothing at all", wire.Header{}, wire.CodeChecksum}, {"right", right, wire.CodeOK}} {
				v, err := s.Reserve(o, ns, []uint32{1000}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				copy(s.Room(v[0])[wire.HeaderLen:], body)
				key := wire.Key{byte(i + 1)}
				k := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key, Head: &c.head, Att: wire.AttestProducer}}
				s.Commit(o, k)
				if wire.CodeOf(k[0].Err) != c.want {
					t.Errorf("%s: %v, want %v", c.name, k[0].Err, c.want)
				}
				if n := s.Lookup(ns, []wire.Key{key}, nil); (n == 1) != (c.want == wire.CodeOK) {
					t.Errorf("%s: %d blocks found", c.name, n)
				}
			}
			if st := s.Stats(); st.ChecksumFailures != 4 || st.Reserved != 0 || st.Leaked != 0 {
				t.Errorf("%d checksum failures, %d reserved, %d leaked", st.ChecksumFailures, st.Reserved, st.Leaked)
			}
		})
	}
}

// A fabric that answers OK and brings no bytes, or others, publishes nothing.
func TestABodyWithoutItsBytesIsNotPublished(t *testing.T) {
	s, o, ns := openStore(t, false)
	body := bytes.Repeat([]byte{3}, 2048)
	head, err := wire.Mint(wire.OutputCritical, body)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Reserve(o, ns, []uint32{2048}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.Room(v[0])
	key := wire.Key{1}
	k := []blocks.Commit{{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, NS: ns, Key: key, Head: &head, Att: wire.AttestProducer}}
	if s.Commit(o, k); !errors.Is(k[0].Err, wire.CodeChecksum) {
		t.Errorf("got %v", k[0].Err)
	}
	if s.Lookup(ns, []wire.Key{key}, nil) != 0 {
		t.Error("it is found")
	}
}
