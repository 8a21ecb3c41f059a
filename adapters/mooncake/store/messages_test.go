package store

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"meridian/adapters/mooncake/structpack"
)

type method interface {
	ID() uint32
	Codes() (uint32, uint32)
}

// The ids and codes were measured with the wheel 0.3.13.post1.
func TestIdsAndTypeCodesAreTheMasters(t *testing.T) {
	for name, c := range map[string]struct {
		m    method
		want string
	}{
		"ServiceReady":        {fnServiceReady, "7b81bb56 00000000 1cb3cc34"},
		"Ping":                {fnPing, "d6c2dae5 3c6d83e0 742a8f52"},
		"ExistKey":            {fnExist, "89385f09 7cf91ed8 90e800d2"},
		"BatchExistKey":       {fnBatchExist, "b89fa6b0 00f78d62 2a5f8c5c"},
		"GetReplicaList":      {fnReplicas, "1f7ef174 7cf91ed8 88c6276c"},
		"BatchGetReplicaList": {fnBatchReplicas, "1b0d20ff 00f78d62 20c5453a"},
		"PutStart":            {fnPutStart, "65ea9ac1 e385bd0e c43927a6"},
		"PutEnd":              {fnPutEnd, "8e8b2099 d1819222 af2868cc"},
		"PutRevoke":           {fnPutRevoke, "a0767c44 1b7a228a af2868cc"},
		"BatchPutStart":       {fnBatchPutStart, "56be1822 5870c0a4 ad006d02"},
		"BatchPutEnd":         {fnBatchPutEnd, "80e020ab f57ea7c8 39fc52ce"},
		"Remove":              {fnRemove, "f1b09774 18e89fee af2868cc"},
		"BatchRemove":         {fnBatchRemove, "5902407d 197a9ca0 39fc52ce"},
		"RemoveAll":           {fnRemoveAll, "d978ceb0 48a6c274 86666834"},
		"ReMountSegment":      {fnRemount, "0b053b72 c6c66b88 af2868cc"},
		"UnmountSegment":      {fnUnmount, "6f10b465 d4c512e0 af2868cc"},
		"SegmentStatus":       {fnSegmentStatus, "573fd453 3c6d83e0 9851e9a8"},
		"BatchPutRevoke":      {fnBatchPutRevoke, "b82567aa 94ee5d44 39fc52ce"},
		"GracefulUnmount":     {fnGracefulUnmount, "a4ec3175 8e092e9c af2868cc"},
	} {
		ask, answer := c.m.Codes()
		if got := fmt.Sprintf("%08x %08x %08x", c.m.ID(), ask, answer); got != c.want {
			t.Errorf("%s: id and codes are %s, want %s", name, got, c.want)
		}
	}
}

var client0 = UUID{High: 0x1122334455667788, Low: 0x99aabbccddeeff00}

const client0Hex = "887766554433221100ffeeddccbbaa99"

func TestMessagesAreTheGoldenOnes(t *testing.T) {
	golden(t, "ExistKey", structpack.Tuple[keyQuery](), keyQuery{"hello_key", "default"}, "d81ef97c0968656c6c6f5f6b65790764656661756c74")
	golden(t, "Ping", structpack.Of[UUID](), client0, "e0836d3c"+client0Hex)
	golden(t, "PutStart", structpack.Tuple[putStart](),
		putStart{Client: client0, Key: "hello_key", Length: 4096, Config: replicateConfig{Replicas: 1}, Tenant: "default"},
		"0ebd85e3"+client0Hex+"0968656c6c6f5f6b6579"+"0010000000000000"+"0100000000000000"+"0000000000000000"+"0000000000000000"+"00000000000000000000"+"0764656661756c74")
	golden(t, "PutEnd", structpack.Tuple[putEnd](), putEnd{Client: client0, Meta: objectMeta{Key: "hello_key"}, Which: allReplicas, Tenant: "default"},
		"229281d1"+client0Hex+"0968656c6c6f5f6b6579"+"00"+"04000000"+"0764656661756c74")
	golden(t, "GetReplicaList", structpack.Of[expected[replicas]](),
		expected[replicas]{Value: replicas{
			List:    []replica{{ID: 7, Kind: replicaKind{Memory: &memoryReplica{buffer{Size: 4096, Address: 0x100000000000, Protocol: "tcp", Endpoint: "127.0.0.1:15001"}}}, Status: replicaComplete}},
			LeaseMS: 10000,
		}},
		"6c27c688"+"01"+"01"+"0700000000000000"+"00"+"0010000000000000"+"0000000000100000"+"03746370"+"0f3132372e302e302e313a3135303031"+"03000000"+"1027000000000000"+"00")
	golden(t, "GetReplicaList -704", structpack.Of[expected[replicas]](), expected[replicas]{Code: -704}, "6c27c688"+"00"+"40fdffff")
}

func golden[T any](t *testing.T, name string, c *structpack.Codec[T], v T, want string) {
	t.Helper()
	b, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(name, err)
	}
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s is\n%s, want\n%s", name, got, want)
	}
	back, err := c.Decode(b)
	if err != nil {
		t.Fatal(name, err)
	}
	if again, err := c.Append(nil, &back); err != nil || hex.EncodeToString(again) != want {
		t.Errorf("%s, read and written again: %x, %v", name, again, err)
	}
}

// As real clients and masters send them, with the type literal in front; and a key
// that needs lengths of two bytes.
func TestMessagesOfTheWheelAreRead(t *testing.T) {
	if got, err := askKey.Decode(unhex(t, "d91ef97c04fd800c800cff00056b313030300764656661756c74")); err != nil || got != (keyQuery{"k1000", "default"}) {
		t.Errorf("ExistKey: %+v, %v", got, err)
	}
	if got, err := askUUID.Decode(unhex(t, "e1836d3c04fd04048989ff00"+client0Hex)); err != nil || got != client0 {
		t.Errorf("Ping: %v, %v", got, err)
	}
	if got, err := structpack.Of[expected[pong]]().Decode(unhex(t, "538f2a740487fd0301ff010001000000000000000002000000")); err != nil || got.Value.Status != statusNeedRemount {
		t.Errorf("the answer to Ping: %+v, %v", got, err)
	}
	got, err := structpack.Of[expected[[]replica]]().Decode(unhex(t, "a72739c4048784fd0486fdfd0404800c800cfffffdfd0404800c800cfffffd800c04fffdfd04048989ff04800cfffd800c04040401ffff01ff"+
		"0100010101000000000000000000100000000000000000000000100000"+"037463700f3132372e302e302e313a3135303031"+"02000000"))
	if err != nil || len(got.Value) != 1 || *got.Value[0].Kind.Memory != (memoryReplica{buffer{Size: 4096, Address: 1 << 44, Protocol: "tcp", Endpoint: "127.0.0.1:15001"}}) ||
		got.Value[0].Status != replicaProcessing {
		t.Errorf("the answer to PutStart: %+v, %v", got, err)
	}
	key := strings.Repeat("k", 300)
	b, err := askKey.Append(nil, &keyQuery{key, "default"})
	if want := "d91ef97c082c01" + hex.EncodeToString([]byte(key)) + "070064656661756c74"; err != nil || hex.EncodeToString(b) != want {
		t.Errorf("a key of 300 bytes: %x, %v", b, err)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
