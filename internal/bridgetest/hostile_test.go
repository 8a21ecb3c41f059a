package bridgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/adapters/mooncake/realengine"
	"meridian/agent/adminpb"
	"meridian/internal/testbed"
	"meridian/wire"
)

// waiting is what waits in a daemon to be sent on, and the limit.
func (h *house) waiting() (bytes, limit uint64) {
	h.t.Helper()
	var v struct {
		Gateway struct {
			Waiting uint64 `json:"waiting_bytes"`
			Limit   uint64 `json:"limit_bytes"`
		} `json:"gateway"`
	}
	if err := json.Unmarshal([]byte(h.page("/varz")), &v); err != nil {
		h.t.Fatal(err)
	}
	return v.Gateway.Waiting, v.Gateway.Limit
}

func (h *house) lacks(key wire.Key) {
	h.t.Helper()
	if _, err := h.admin.StatBlock(h.t.Context(), &adminpb.StatBlockRequest{Key: key.String()}); status.Code(err) != codes.NotFound {
		h.t.Errorf("%s has the block: %v", h.name, err)
	}
}

// An application that takes nothing uses up its part of the queue: what is brought for it
// is then refused as BUSY, before it is stored. Others have theirs. What was taken goes on
// when the application takes blocks again.
func TestAnApplicationThatTakesNothingUsesUpItsShare(t *testing.T) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := start(t, "house", listens("edge")+mooncakeTable(m.Engine)+nixlTable(t, n)+route("mooncake", "nixl")+route("link", "nixl-synth"))
	edge := start(t, "edge", dials(h)+writesThrough)
	edge.meets("house")
	n.meet()
	n.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { n.Signal(syscall.SIGCONT) })
	const size = 200_000
	taken := map[wire.Key][]byte{}
	refused := wire.Key{}
	for i := 0; refused == (wire.Key{}); i++ {
		key, payload := keyOf(fmt.Sprint("b", i)), payloadOf(t, wire.ThinkActive, testbed.Content(size, uint64(i)))
		m.gives(h, key, payload)
		answer := m.hear("mrdn put-")
		switch {
		case strings.HasPrefix(answer, "done "):
			taken[key] = payload
		case strings.HasSuffix(answer, " BUSY"):
			refused = key
		default:
			t.Fatal(answer)
		}
		if used, limit := h.waiting(); used > limit/4 {
			t.Fatalf("%d bytes wait for one application, of %d", used, limit)
		}
	}
	if len(taken) != (4<<20)/4/(size+wire.HeaderLen) {
		t.Errorf("%d blocks were taken", len(taken))
	}
	h.lacks(refused)
	edge.store(keyOf("other"), testbed.Content(size, 100))
	h.shows(`meridian_gateway_blocks_total{from="link",outcome="forwarded",to="nixl-synth"} 1`)
	h.shows(`meridian_gateway_blocks_total{from="mooncake",outcome="refused",to="nixl"} 1`)

	n.Signal(syscall.SIGCONT)
	h.shows(fmt.Sprintf(`meridian_gateway_blocks_total{from="mooncake",outcome="forwarded",to="nixl"} %d`, len(taken)))
	for key, payload := range taken {
		if got := n.takes(key); !bytes.Equal(got, payload) {
			t.Error("other bytes arrived")
		}
	}
	if used, _ := h.waiting(); used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}

// A payload that does not match its header is not stored, and no byte of it reaches the
// other world.
func TestNoByteThatWasNotCheckedReachesTheOtherWorld(t *testing.T) {
	m := &mooncakeApp{Engine: realengine.Start(t, 8<<20), t: t}
	n := newNIXLApp(t, "decode")
	h := start(t, "house", mooncakeTable(m.Engine)+nixlTable(t, n)+route("mooncake", "nixl"))
	n.meet()
	payload := payloadOf(t, wire.ThinkActive, testbed.Content(50_000, 1))
	payload[40]++
	m.gives(h, keyOf("wrong"), payload)
	if answer := m.hear("mrdn put-refused "); !strings.HasSuffix(answer, " CHECKSUM") {
		t.Error(answer)
	}
	payload[40]--
	m.gives(h, keyOf("right"), payload)
	if got := n.takes(keyOf("right")); !bytes.Equal(got, payload) {
		t.Error("other bytes arrived")
	}
	h.lacks(keyOf("wrong"))
	memory := n.Get(0, 4<<20)
	wrong := bytes.Clone(payload[32:64])
	wrong[8]++
	if bytes.Contains(memory, wrong) || bytes.Count(memory, payload[100:132]) != 1 {
		t.Error("bytes of the wrong payload are in the application's memory")
	}
	if used, _ := h.waiting(); used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}
