package wire_test

import (
	"bytes"
	"errors"
	"fmt"

	"meridian/wire"
)

// A block whose body lies in its slot gets the header in front, in place; a
// reader refuses it when one bit changed on the way.
func Example() {
	slot := make([]byte, wire.HeaderLen+len("reasoning-kv"))
	copy(slot[wire.HeaderLen:], "reasoning-kv")
	if _, err := wire.Seal(slot, wire.ThinkComplete); err != nil {
		fmt.Println(err)
	}
	head, body, err := wire.Decode(slot, wire.Strict, 1<<20)
	fmt.Println(head.Tier, head.Sum, string(body), err)

	slot[40] ^= 1
	_, _, err = wire.Decode(slot, wire.Strict, 1<<20)
	fmt.Println(errors.Is(err, wire.CodeChecksum), wire.CodeOf(err))
	// Output:
	// ThinkComplete f0113489ef383028cecdb96b31a45b34 reasoning-kv <nil>
	// true CHECKSUM
}

// A stream from an agent of Meridian 0.2: take the envelope off, then read
// leniently.
func ExampleParseEnvelope() {
	payload, _ := wire.AppendPayload(nil, wire.OutputCritical, []byte("kv"))
	payload[12] = 7 // a tier byte that 0.x could write
	envelope, _ := wire.AppendEnvelope(nil, payload)

	inner, _, err := wire.ParseEnvelope(envelope)
	if err != nil {
		fmt.Println(err)
	}
	head, err := wire.NewReader(bytes.NewReader(inner), wire.Lenient, 1<<20).Header()
	fmt.Println(head.Tier, head.BodyLen, err)
	// Output: OutputCritical 2 <nil>
}
