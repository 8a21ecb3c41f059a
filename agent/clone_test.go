package agent

import (
	"encoding/hex"
	"strings"
	"testing"

	"meridian/agent/finding"
)

// A state folder and a configuration that were copied to a second machine: the
// third daemon stays ready, says so in a few lines, and its doctor names both
// addresses.
func TestACopiedDaemonIsReportedAndNothingFlaps(t *testing.T) {
	dir := shortDir(t)
	b := startNode(t, dir, "b", listener("tcp://127.0.0.1:0", "a"))
	addr := b.Ports()["link"][0]
	first := startNode(t, dir, "a", dialler(addr, "b"))
	b.ready(t)
	cfg := loadConfig(t, shortDir(t), "a", dialler(addr, "b"))
	_, id, _ := first.Identity()
	cfg.Agent.ID = hex.EncodeToString(id[:])
	second := startConfig(t, cfg)
	second.ready(t)

	var found finding.Finding
	until(t, "the doctor names the copy", func() bool {
		for _, f := range b.findings() {
			if f.ID == "link.duplicate" {
				found = f
			}
		}
		return found.ID != ""
	})
	if strings.Count(found.Reason, "127.0.0.1:") != 2 || found.Severity != finding.Err || found.Fix == "" {
		t.Errorf("it says: %+v", found)
	}
	until(t, "the first one says why it is refused", func() bool {
		i := first.node.Peers()[0]
		return i.State.String() == "refused" && strings.Contains(i.Text, "two live daemons")
	})
	if n := strings.Count(b.log.String(), "readiness changed"); n > 3 {
		t.Errorf("readiness changed %d times", n)
	}
	if n := strings.Count(b.log.String(), "\n"); n > 40 {
		t.Errorf("%d log lines", n)
	}
	b.ready(t)
}

// What the link refuses is a finding, with the address and the reason.
func TestRefusedStrangersAreAFinding(t *testing.T) {
	dir := shortDir(t)
	b := startNode(t, dir, "b", listener("tcp://127.0.0.1:0", "a"))
	startNode(t, dir, "stranger", dialler(b.Ports()["link"][0], "b"))
	until(t, "the doctor tells of it", func() bool {
		for _, f := range b.findings() {
			if f.ID == "link.refused" && strings.Contains(f.Reason, `"stranger"`) && strings.Contains(f.Reason, "allow list") && strings.Contains(f.Subject, "127.0.0.1") {
				return true
			}
		}
		return false
	})
}
