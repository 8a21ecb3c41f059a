package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"meridian/agent/adminpb"
	"meridian/fabric"
	"meridian/fabric/synthetic"
	"meridian/wire"
)

// attic is a fabric with objects of other clients, which a test answers.
type attic struct {
	fabric.Fabric
	read func(ctx context.Context, key string, limit uint64) (fabric.Object, error)
}

func (a attic) Label() string { return "attic" }

func (a attic) Object(ctx context.Context, key string, limit uint64) (fabric.Object, error) {
	return a.read(ctx, key, limit)
}

func newAttic(read func(context.Context, string, uint64) (fabric.Object, error)) attic {
	return attic{synthetic.New(synthetic.Options{}), read}
}

// withAttic is a daemon that has had such a fabric from its start.
func withAttic(t *testing.T, read func(context.Context, string, uint64) (fabric.Object, error)) *testNode {
	t.Helper()
	return startNode(t, shortDir(t), "one", "", newAttic(read))
}

// object reads one to its end, and checks each message.
func object(ctx context.Context, t *testing.T, n *testNode, fabricName, key string) (head *adminpb.ObjectPart, b []byte, err error) {
	t.Helper()
	s, err := n.adminClient(t).ReadObject(ctx, &adminpb.ReadObjectRequest{Fabric: fabricName, Key: key})
	if err != nil {
		return nil, nil, err
	}
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return head, b, nil
		case err != nil:
			return head, b, err
		case head == nil:
			head = m
		case m.Size != 0 || m.Verification != 0:
			t.Error("a later message says a size")
		}
		if len(m.Data) > objectPart || (m == head && len(m.Data) > 0) {
			t.Errorf("%d bytes in a message", len(m.Data))
		}
		b = append(b, m.Data...)
	}
}

func objectSeries(proof, outcome string) string {
	return fmt.Sprintf("meridian_fabric_objects_total{fabric=\"attic\",outcome=%q,verification=%q}", outcome, proof)
}

func driveObjects(t *testing.T, n *testNode) {
	t.Helper()
	read := func(context.Context, string, uint64) (fabric.Object, error) {
		return fabric.Object{B: []byte("x")}, nil
	}
	if err := n.fabrics.Add("attic", newAttic(read)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := object(t.Context(), t, n, "attic", "k"); err != nil {
		t.Fatal(err)
	}
}

// Each answer is told with its proof, and counted by it; the counts are there from the
// start.
func TestAnObjectIsToldWithWhatProvedIt(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	n := withAttic(t, func(_ context.Context, key string, limit uint64) (fabric.Object, error) {
		switch key {
		case "large":
			return fabric.Object{B: large}, nil
		case "proved":
			return fabric.Object{B: large[:5], CRC64: true}, nil
		}
		for code, name := range reasons {
			if name == key {
				return fabric.Object{}, &fabric.Error{Code: code, Fabric: "attic", Text: fmt.Sprintf("the limit is %d", limit)}
			}
		}
		return fabric.Object{}, nil
	})
	want := map[string]int{}
	for _, proof := range []string{"unverified", "crc64"} {
		for _, outcome := range []string{"ok", "refused", "failed"} {
			want[objectSeries(proof, outcome)] = 0
		}
	}
	counted := func() {
		t.Helper()
		for name, count := range want {
			if v, ok := n.series(t, name); !ok || v != fmt.Sprint(count) {
				t.Errorf("%s is %s, want %d", name, v, count)
			}
		}
	}
	counted()
	for key, c := range map[string]struct {
		body  []byte
		proof adminpb.Verification
		name  string
	}{
		"large":  {large, adminpb.Verification_VERIFICATION_UNVERIFIED, "unverified"},
		"proved": {large[:5], adminpb.Verification_VERIFICATION_CRC64, "crc64"},
		"empty":  {nil, adminpb.Verification_VERIFICATION_UNVERIFIED, "unverified"},
	} {
		head, b, err := object(t.Context(), t, n, "attic", key)
		if err != nil || !bytes.Equal(b, c.body) || head.Size != uint64(len(c.body)) || head.Verification != c.proof {
			t.Errorf("%s: %d bytes, first message %v, %v", key, len(b), head, err)
		}
		want[objectSeries(c.name, "ok")]++
	}
	for key, series := range map[string]string{
		"ABSENT": objectSeries("unverified", "failed"), "NO_PROGRESS": objectSeries("unverified", "failed"), "UNREACHABLE": objectSeries("unverified", "failed"),
		"CHECKSUM": objectSeries("crc64", "failed"), "DENIED": objectSeries("unverified", "refused"), "TOO_LARGE": objectSeries("unverified", "refused"),
		"INVALID": objectSeries("unverified", "refused"), strings.Repeat("k", maxObjectKey+1): objectSeries("unverified", "refused"),
	} {
		_, b, err := object(t.Context(), t, n, "attic", key)
		name := key
		if len(key) > maxObjectKey {
			name = "INVALID"
		}
		if d := adminpb.Detail(err); d.GetName() != name || b != nil {
			t.Errorf("%.20s: %d bytes, %v", key, len(b), err)
		}
		if key == "TOO_LARGE" && !strings.Contains(err.Error(), fmt.Sprint(maxObject)) {
			t.Errorf("the bound is not said: %v", err)
		}
		want[series]++
	}
	counted()
	for name, code := range map[string]wire.Code{"link": wire.CodeUnsupported, "atic": wire.CodeAbsent} {
		if _, _, err := object(t.Context(), t, n, name, "large"); adminpb.Detail(err).GetCode() != uint32(code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	counted()
}

// Two objects are read at a time; the third is refused at once. A client that goes gives
// its place back, and what is read for it ends.
func TestObjectsThatAreReadHaveTwoPlaces(t *testing.T) {
	began := make(chan struct{}, 3)
	n := withAttic(t, func(ctx context.Context, key string, _ uint64) (fabric.Object, error) {
		if key == "free" {
			return fabric.Object{}, nil
		}
		began <- struct{}{}
		<-ctx.Done()
		return fabric.Object{}, fabric.ContextError(ctx, "attic")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, objectsAtATime)
	for range objectsAtATime {
		go func() {
			_, _, err := object(ctx, t, n, "attic", "hangs")
			ended <- err
		}()
	}
	for range objectsAtATime {
		<-began
	}
	if _, _, err := object(t.Context(), t, n, "attic", "free"); adminpb.Detail(err).GetName() != "BUSY" || !strings.Contains(err.Error(), "the limit is 2") {
		t.Errorf("a third: %v", err)
	}
	cancel()
	for range objectsAtATime {
		if err := <-ended; err == nil {
			t.Error("a call that was given up succeeded")
		}
	}
	until(t, "the places are free", func() bool {
		_, _, err := object(t.Context(), t, n, "attic", "free")
		return err == nil
	})
}

// A fabric that never answers, and a client that never reads, keep a place for as long as
// the bound says.
func TestAnObjectTakesNoLongerThanItsBound(t *testing.T) {
	n := withAttic(t, func(ctx context.Context, key string, limit uint64) (fabric.Object, error) {
		if key == "large" {
			return fabric.Object{B: make([]byte, limit)}, nil
		}
		<-ctx.Done()
		return fabric.Object{}, fabric.ContextError(ctx, "attic")
	})
	r := n.admin.objects
	r.within = time.Millisecond
	if _, _, err := object(t.Context(), t, n, "attic", "hangs"); adminpb.Detail(err).GetName() != "DEADLINE" {
		t.Errorf("a fabric that hangs: %v", err)
	}
	if _, err := n.adminClient(t).ReadObject(t.Context(), &adminpb.ReadObjectRequest{Fabric: "attic", Key: "large"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the client that does not read is let go", func() bool {
		v, _ := n.series(t, objectSeries("unverified", "failed"))
		return v == "2" && len(r.places) == 0
	})
}
