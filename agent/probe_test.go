package agent

import (
	"testing"

	"meridian/blocks"
)

// What the self-test moves over each path is not left in the arena of either side.
func TestTheSelfTestLeavesNoBlock(t *testing.T) {
	prefill, decode := pair(t)
	for _, n := range []*testNode{prefill, decode} {
		n.quietNow(t)
		n.store.List(func(v blocks.View) bool {
			t.Errorf("%s holds %x, %d bytes, after the self-test", n.id.name, v.Key[:4], v.Head.BodyLen)
			return true
		})
	}
}
