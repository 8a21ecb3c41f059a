package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/adapters/mooncake/rpc"
	"meridian/adapters/mooncake/structpack"
	"meridian/wire"
)

// fakeMaster answers as a test says, by the id of the function.
type fakeMaster struct {
	t       *testing.T
	masters Masters

	mu    sync.Mutex
	do    map[uint32]func(body []byte) ([]byte, byte)
	heard map[uint32]int
}

func newFakeMaster(t *testing.T) *fakeMaster {
	t.Helper()
	f := &fakeMaster{t: t, do: map[uint32]func([]byte) ([]byte, byte){}, heard: map[uint32]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer context.AfterFunc(ctx, func() { c.Close() })()
				defer c.Close()
				for f.one(c) == nil {
				}
			})
		}
	})
	t.Cleanup(func() {
		stop()
		l.Close()
		all.Wait()
	})
	if f.masters, err = ParseMasters(l.Addr().String(), "", nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeMaster) one(c net.Conn) error {
	var head [20]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[12:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	id := binary.LittleEndian.Uint32(head[8:])
	f.mu.Lock()
	f.heard[id]++
	do := f.do[id]
	f.mu.Unlock()
	answer, code := []byte(nil), byte(rpc.CodeUnknown)
	if do != nil {
		answer, code = do(body)
	}
	out := append([]byte{0x15, 0, code, 0}, head[4:8]...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(answer)))
	out = binary.LittleEndian.AppendUint32(out, 0)
	_, err := c.Write(append(out, answer...))
	return err
}

// count is how often a function was called.
func (f *fakeMaster) count(id uint32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard[id]
}

// answers makes a function answer what do returns.
func answers[Q, A any](f *fakeMaster, m *rpc.Method[Q, A], ask *structpack.Codec[Q], do func(Q) A) {
	codec := structpack.Of[A]()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do[m.ID()] = func(body []byte) ([]byte, byte) {
		q, err := ask.Decode(body)
		if err != nil {
			f.t.Errorf("%s: %v", m.Name, err)
			return nil, byte(rpc.CodeBadArguments)
		}
		a := do(q)
		b, err := codec.Append(nil, &a)
		if err != nil {
			f.t.Errorf("%s: %v", m.Name, err)
		}
		return b, 0
	}
}

var (
	askKey      = structpack.Tuple[keyQuery]()
	askKeys     = structpack.Tuple[keys]()
	askPut      = structpack.Tuple[putStart]()
	askPuts     = structpack.Tuple[batchPutStart]()
	askEnd      = structpack.Tuple[putEnd]()
	askEnds     = structpack.Tuple[batchPutEnd]()
	askRevoke   = structpack.Tuple[putRevoke]()
	askRevokes  = structpack.Tuple[batchPutRevoke]()
	askUUID     = structpack.Of[UUID]()
	askRemount  = structpack.Tuple[remount]()
	askUnmount  = structpack.Tuple[unmount]()
	askGraceful = structpack.Tuple[gracefulUnmount]()
	askRemoves  = structpack.Tuple[batchRemove]()
)

// memoryEngine is peers' memory: bytes by segment and address.
type memoryEngine struct {
	mu      sync.Mutex
	bytes   map[string][]byte
	fail    map[string]error
	written int
}

func place(segment string, address uint64) string { return fmt.Sprintf("%s@%x", segment, address) }

func (e *memoryEngine) Read(_ context.Context, segment string, address uint64, to []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	copy(to, e.bytes[place(segment, address)])
	return e.fail[segment]
}

func (e *memoryEngine) Write(_ context.Context, segment string, address uint64, from []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail[segment] != nil {
		return e.fail[segment]
	}
	e.written++
	e.bytes[place(segment, address)] = bytes.Clone(from)
	return nil
}

func newMemoryEngine() *memoryEngine {
	return &memoryEngine{bytes: map[string][]byte{}, fail: map[string]error{}}
}

func fakeClient(t *testing.T, f *fakeMaster, e Engine) *Client {
	c := NewClient(Options{Masters: f.masters, Engine: e, Timeout: time.Minute})
	t.Cleanup(func() { c.Close() })
	return c
}

func complete(endpoint string, address, size uint64) replica {
	return replica{Status: replicaComplete, Kind: replicaKind{Memory: &memoryReplica{buffer{Size: size, Address: address, Protocol: "tcp", Endpoint: endpoint}}}}
}

func found(sum *uint64, list ...replica) func(keyQuery) expected[replicas] {
	return func(keyQuery) expected[replicas] {
		return expected[replicas]{Value: replicas{List: list, LeaseMS: 10_000, Checksum: sum}}
	}
}

func TestAGetGoesToTheNextReplicaWhereOneFailsOrIsWrong(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	body := []byte("the right bytes")
	sum := Checksum(body)
	n := uint64(len(body))
	e.fail["away:1"] = errors.New("no route")
	e.bytes[place("rotten:1", 16)] = []byte("the wrong bytes")
	e.bytes[place("good:1", 16)] = body
	c := fakeClient(t, f, e)
	half := complete("half:1", 16, n)
	half.Status = replicaProcessing
	rdma := complete("rdma:1", 16, n)
	rdma.Kind.Memory.Buffer.Protocol = "rdma"
	disk := replica{Status: replicaComplete, Kind: replicaKind{Disk: &diskReplica{Path: "/x", Size: n}}}
	away, rotten, good := complete("away:1", 16, n), complete("rotten:1", 16, n), complete("good:1", 16, n)

	answers(f, fnReplicas, askKey, found(&sum, half, rdma, disk, away, rotten, good))
	if b, o, err := c.Get(t.Context(), "k", 100); !bytes.Equal(b, body) || !o.Verified || err != nil {
		t.Errorf("%q %+v %v", b, o, err)
	}
	answers(f, fnReplicas, askKey, found(&sum, away, rotten))
	if b, _, err := c.Get(t.Context(), "k", 100); b != nil || !errors.Is(err, CodeChecksum) || !strings.Contains(err.Error(), "no route") {
		t.Errorf("%q %v", b, err)
	}
	answers(f, fnReplicas, askKey, found(nil, good))
	if b, o, err := c.Get(t.Context(), "k", 100); !bytes.Equal(b, body) || o.Verified || err != nil {
		t.Errorf("without a checksum: %q %+v %v", b, o, err)
	}
	answers(f, fnReplicas, askKey, found(&sum, half, rdma, disk))
	if _, _, err := c.Get(t.Context(), "k", 100); !errors.Is(err, ErrNoReplica) {
		t.Errorf("none that can be read: %v", err)
	}
}

// What a master may lie about a place: nothing is read, and no memory is taken for it.
func TestPlacesThatCannotBeAreNotRead(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, e)
	for name, r := range map[string]replica{
		"no size":      complete("a:1", 16, 0),
		"no address":   complete("a:1", 0, 16),
		"no segment":   complete("", 16, 16),
		"beyond 2^64":  complete("a:1", 1<<64-8, 16),
		"beyond limit": complete("a:1", 16, 1<<62),
	} {
		answers(f, fnReplicas, askKey, found(nil, r))
		if b, _, err := c.Get(t.Context(), "k", 1<<20); err == nil {
			t.Errorf("%s: %d bytes were read", name, len(b))
		}
		if _, err := c.GetInto(t.Context(), "k", make([]byte, 8)); err == nil {
			t.Errorf("%s: bytes were read into memory", name)
		}
	}
}

// An object that is another size in its next replica, or when it is asked for again, is
// not read into more or less memory than was taken for it.
func TestAnObjectWhoseSizeIsALie(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, e)
	e.fail["away:1"] = errors.New("no route")
	e.bytes[place("good:1", 16)] = []byte("body")
	answers(f, fnReplicas, askKey, found(nil, complete("away:1", 16, 4), complete("good:1", 16, 64)))
	if b, _, err := c.Get(t.Context(), "k", 100); b != nil || !errors.Is(err, wire.CodeTooLarge) {
		t.Errorf("a replica that is larger: %q, %v", b, err)
	}
	answers(f, fnReplicas, askKey, found(nil, complete("away:1", 16, 64), complete("good:1", 16, 4)))
	if b, o, err := c.Get(t.Context(), "k", 100); string(b) != "body" || o.Size != 4 || err != nil {
		t.Errorf("one that is smaller: %q, %v", b, err)
	}
	asked := uint64(0)
	answers(f, fnReplicas, askKey, func(keyQuery) expected[replicas] {
		asked++ // the first answer has no lease
		return expected[replicas]{Value: replicas{List: []replica{complete("good:1", 16, 4*asked)}, LeaseMS: 10_000 * (asked - 1)}}
	})
	if b, _, err := c.Get(t.Context(), "k", 100); b != nil || !errors.Is(err, wire.CodeTooLarge) {
		t.Errorf("another object in its place: %q, %v", b, err)
	}
}

// A read that takes longer than half of its lease takes the lease anew on the way,
// and gives up where the object has moved.
func TestALongReadRenewsItsLease(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, nil)
	const size = 4*readPart + 1
	var skew time.Duration
	c.now = func() time.Time { return time.Unix(0, 0).Add(skew) }
	c.engine = slowEngine{e, func() { skew += 3 * time.Second }}
	to := make([]byte, size)
	answers(f, fnReplicas, askKey, found(nil, complete("a:1", 16, size)))
	if _, err := c.GetInto(t.Context(), "k", to); err != nil {
		t.Error(err)
	}
	if n := f.count(fnReplicas.ID()); n != 3 {
		t.Errorf("the master was asked %d times, want 3", n)
	}
	asked := 0
	answers(f, fnReplicas, askKey, func(keyQuery) expected[replicas] {
		asked++
		return expected[replicas]{Value: replicas{List: []replica{complete("a:1", uint64(16*asked), size)}, LeaseMS: 10_000}}
	})
	if _, err := c.GetInto(t.Context(), "k", to); !errors.Is(err, CodeLeaseOver) {
		t.Errorf("an object that moves all the time: %v, want %v", err, CodeLeaseOver)
	}
}

func TestAPutThatFailsIsRevoked(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, e)
	revoked := 0
	answers(f, fnPutRevoke, askRevoke, func(q putRevoke) expected[structpack.Void] {
		if q.Client != c.id || q.Key != "k" {
			t.Errorf("%+v", q)
		}
		revoked++
		return expected[structpack.Void]{}
	})
	e.fail["away:1"] = errors.New("no route")
	rdma := complete("a:1", 16, 4)
	rdma.Kind.Memory.Buffer.Protocol = "rdma"
	for i, list := range [][]replica{
		{complete("away:1", 16, 4)},
		{complete("a:1", 16, 5)},
		{complete("a:1", 0, 4)},
		{rdma},
		{{Kind: replicaKind{Disk: &diskReplica{}}}},
		nil,
	} {
		answers(f, fnPutStart, askPut, func(putStart) expected[[]replica] { return expected[[]replica]{Value: list} })
		if _, err := c.Put(t.Context(), "k", []byte("body")); err == nil {
			t.Errorf("%d: a put without a place succeeded", i)
		}
		if revoked != i+1 {
			t.Errorf("%d: revoked %d times", i, revoked)
		}
	}
	if e.written != 0 {
		t.Errorf("%d writes", e.written)
	}
}

func TestAPutWaitsForSpaceAndGivesUp(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, e)
	var paused []time.Duration
	c.pause = func(ctx context.Context, d time.Duration) error {
		paused = append(paused, d)
		return ctx.Err()
	}
	left := 2
	answers(f, fnPutStart, askPut, func(putStart) expected[[]replica] {
		if left--; left >= 0 {
			return expected[[]replica]{Code: int32(CodeNoSpace)}
		}
		return expected[[]replica]{Value: []replica{complete("a:1", 16, 4)}}
	})
	answers(f, fnPutEnd, askEnd, func(q putEnd) expected[structpack.Void] {
		if q.Meta.Checksum == nil || *q.Meta.Checksum != Checksum([]byte("body")) {
			t.Error("the put ended without its checksum")
		}
		return expected[structpack.Void]{}
	})
	if _, err := c.Put(t.Context(), "k", []byte("body")); err != nil {
		t.Error(err)
	}
	if want := []time.Duration{firstPutWait, 2 * firstPutWait}; !slices.Equal(paused, want) {
		t.Errorf("paused for %v, want %v", paused, want)
	}
	left = 1 << 30
	before := f.count(fnPutStart.ID())
	if _, err := c.Put(t.Context(), "k", []byte("body")); !errors.Is(err, CodeNoSpace) {
		t.Error(err)
	}
	if n := f.count(fnPutStart.ID()) - before; n != putTries {
		t.Errorf("the master was asked %d times, want %d", n, putTries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.pause = func(context.Context, time.Duration) error {
		cancel()
		return pause(ctx, time.Hour)
	}
	if _, err := c.Put(ctx, "k", []byte("body")); !errors.Is(err, CodeNoSpace) {
		t.Error("a put whose caller left in the pause:", err)
	}
}

func TestABatchEndsEachObjectByItself(t *testing.T) {
	f, e := newFakeMaster(t), newMemoryEngine()
	c := fakeClient(t, f, e)
	e.fail["away:1"] = errors.New("no route")
	full := 1
	answers(f, fnBatchPutStart, askPuts, func(q batchPutStart) (out []expected[[]replica]) {
		for i, key := range q.Keys {
			var a expected[[]replica]
			switch key {
			case "there":
				a.Code = int32(CodeExists)
			case "full":
				if full--; full >= 0 {
					a.Code = int32(CodeNoSpace)
				} else {
					a.Value = []replica{complete("a:1", 64, q.Lengths[i])}
				}
			case "away":
				a.Value = []replica{complete("away:1", 16, q.Lengths[i])}
			case "odd":
				a.Code = -1
			default:
				a.Value = []replica{complete("a:1", uint64(128+i), q.Lengths[i])}
			}
			out = append(out, a)
		}
		return out
	})
	var ended, revoked []string
	answers(f, fnBatchPutEnd, askEnds, func(q batchPutEnd) []expected[structpack.Void] {
		for _, m := range q.Metas {
			ended = append(ended, m.Key)
		}
		return make([]expected[structpack.Void], len(q.Metas))
	})
	answers(f, fnBatchPutRevoke, askRevokes, func(q batchPutRevoke) []expected[structpack.Void] {
		revoked = append(revoked, q.Keys...)
		return make([]expected[structpack.Void], len(q.Keys))
	})
	items := []Item{{Key: "good", Body: []byte("1")}, {Key: "there", Body: []byte("2")}, {Key: "full", Body: []byte("3")}, {Key: "away", Body: []byte("4")}, {Key: "odd", Body: []byte("5")}}
	c.PutBatch(t.Context(), items)
	for i, want := range []bool{true, true, true, false, false} {
		if (items[i].Err == nil) != want {
			t.Errorf("%s: %v", items[i].Key, items[i].Err)
		}
	}
	if !items[1].Existed || items[0].Existed {
		t.Error("existed:", items[0].Existed, items[1].Existed)
	}
	if !slices.Equal(ended, []string{"good", "full"}) || !slices.Equal(revoked, []string{"away"}) {
		t.Errorf("ended %q, revoked %q", ended, revoked)
	}
}

// A master that answers for fewer or more objects than it was asked for is believed
// for none.
func TestABatchThatIsAnsweredForOthersFails(t *testing.T) {
	f := newFakeMaster(t)
	c := fakeClient(t, f, newMemoryEngine())
	ctx := t.Context()
	two := []string{"a", "b"}
	for _, n := range []int{0, 1, 3} {
		answers(f, fnBatchExist, askKeys, func(keys) []expected[bool] { return make([]expected[bool], n) })
		answers(f, fnBatchReplicas, askKeys, func(keys) []expected[replicas] { return make([]expected[replicas], n) })
		answers(f, fnBatchPutStart, askPuts, func(batchPutStart) []expected[[]replica] { return make([]expected[[]replica], n) })
		answers(f, fnBatchRemove, askRemoves, func(batchRemove) []expected[structpack.Void] { return make([]expected[structpack.Void], n) })
		if _, err := c.ExistBatch(ctx, two); err == nil {
			t.Error(n, "exist")
		}
		for _, err := range c.RemoveBatch(ctx, two, false) {
			if err == nil {
				t.Error(n, "remove")
			}
		}
		wants, items := []Want{{Key: "a"}, {Key: "b"}}, []Item{{Key: "a", Body: []byte("1")}, {Key: "b", Body: []byte("2")}}
		c.GetBatch(ctx, wants)
		c.PutBatch(ctx, items)
		for i := range two {
			if wants[i].Err == nil || items[i].Err == nil {
				t.Error(n, i, wants[i].Err, items[i].Err)
			}
		}
	}
}

func TestAMasterOfAnotherVersionIsNamedByEveryCall(t *testing.T) {
	f := newFakeMaster(t)
	c := fakeClient(t, f, nil)
	if _, err := c.Exist(t.Context(), "k"); !errors.Is(err, ErrVersion) {
		t.Errorf("a function that is not there: %v", err)
	}
	for _, do := range []func([]byte) ([]byte, byte){
		func([]byte) ([]byte, byte) { return nil, byte(rpc.CodeBadArguments) },
		func([]byte) ([]byte, byte) { return []byte("?"), 0 },
	} {
		f.mu.Lock()
		f.do[fnExist.ID()] = do
		f.mu.Unlock()
		if _, err := c.Exist(t.Context(), "k"); !errors.Is(err, ErrVersion) {
			t.Error(err)
		}
	}
	answers(f, fnExist, askKey, func(keyQuery) expected[bool] { return expected[bool]{Code: int32(CodeNotReady)} })
	if _, err := c.Exist(t.Context(), "k"); errors.Is(err, ErrVersion) || !errors.Is(err, CodeNotReady) {
		t.Error(err)
	}
}

// A probe names what is not there, has other arguments, or answers another type.
func TestAProbeNamesTheDifferences(t *testing.T) {
	f := newFakeMaster(t)
	c := fakeClient(t, f, nil)
	f.do[fnServiceReady.ID()] = func([]byte) ([]byte, byte) {
		b, _ := structpack.Of[expected[string]]().Append(nil, &expected[string]{Value: "2.0.0"})
		return b, 0
	}
	f.do[fnPutStart.ID()] = func([]byte) ([]byte, byte) { return nil, byte(rpc.CodeBadArguments) }
	f.do[fnReplicas.ID()] = func([]byte) ([]byte, byte) {
		b, _ := structpack.Of[expected[int64]]().Append(nil, &expected[int64]{Value: 1})
		return b, 0
	}
	answers(f, fnExist, askKey, func(keyQuery) expected[bool] { return expected[bool]{} })
	r, err := c.Probe(t.Context())
	if err != nil || r.Fits() {
		t.Fatal(err, r)
	}
	for _, want := range []string{"PutStart: differs: it has other arguments", "GetReplicaList: differs: it answers another type", "ExistKey: the same", "Ping: differs: it is not there"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q is not in\n%v", want, r)
		}
	}
}

func TestTheChecksumIsMooncakes(t *testing.T) {
	// The check value of CRC-64/ECMA-182.
	if got := Checksum([]byte("123456789")); got != 0x6c40df5f0b497347 {
		t.Errorf("%016x", got)
	}
	b := randomBody(1, 1000)
	for n := range b {
		slow := uint64(0)
		for _, x := range b[:n] {
			slow ^= uint64(x) << 56
			for range 8 {
				if slow>>63 != 0 {
					slow = slow<<1 ^ crcPolynomial
				} else {
					slow <<= 1
				}
			}
		}
		if got := Checksum(b[:n]); got != slow {
			t.Fatalf("%d bytes: %016x, want %016x", n, got, slow)
		}
	}
}
