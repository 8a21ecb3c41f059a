package handshake

import (
	"encoding/json"
	"fmt"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Notify is a message of one application to another. Name says who sends it, in its
// own words.
type Notify struct {
	Name string `json:"name"`
	Text string `json:"notify_msg"`
}

const (
	success = "success"
)

type probeAnswer struct {
	Status string `json:"status"`
}

// connectionAnswer is what a peer that has no RDMA answers.
type connectionAnswer struct {
	LocalGID     string `json:"local_gid"`
	LocalLID     int    `json:"local_lid"`
	LocalNICPath string `json:"local_nic_path"`
	Payload      string `json:"payload"`
	PeerNICPath  string `json:"peer_nic_path"`
	QPNum        []int  `json:"qp_num"`
	ReplyMsg     string `json:"reply_msg"`
}

// text writes a message as Mooncake does: compact, with a newline.
func text(v any) []byte {
	b, _ := json.Marshal(v) // strings and numbers: cannot fail
	return append(b, '\n')
}

// object reads the text of a frame, which is a JSON object, into v.
func object(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("handshake: %s: %w", stranger.Text(err.Error()), wire.CodeInvalid)
	}
	return nil
}
