package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/agent/adminpb"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/wire"
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

// prober is a path; hang: one that never answers.
type prober struct{ hang bool }

func (p prober) Probe(ctx context.Context, _ string) (string, float64, error) {
	if p.hang {
		<-ctx.Done()
		return "tcp", 0, ctx.Err()
	}
	return "tcp", 1, nil
}

// Paths that hang take no other's time, and the answer says of each path what became of it
// before the caller's time is over.
func TestAProbeOfAPathThatHangsHoldsUpNoOther(t *testing.T) {
	n := startNode(t, shortDir(t), "one", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var paths []path
		var rows []*adminpb.Probe
		add := func(pr fabric.Prober) {
			paths, rows = append(paths, path{name: "f/p", pr: pr}), append(rows, &adminpb.Probe{})
		}
		for range probeWidth - 1 {
			add(prober{hang: true})
		}
		for range 20 {
			add(prober{})
		}
		add(prober{hang: true})
		add(prober{hang: true}) // finds no place
		n.probePaths(ctx, paths, rows)
		if ctx.Err() != nil {
			t.Error("the answer comes when the caller has gone")
		}
		for i, r := range rows {
			hangs := paths[i].pr.(prober).hang
			if r.Ok == hangs || hangs && r.Code != uint32(wire.CodeDeadline) {
				t.Errorf("path %d: %v", i, r)
			}
		}
		if last := rows[len(rows)-1]; !strings.Contains(last.Text, "not tried") {
			t.Errorf("%v", last)
		}
	})
}
