package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// fits checks a report against a terminal of 80 columns.
func fits(t *testing.T, rep Report) {
	t.Helper()
	rows := rep.Rows()
	label := 0
	for _, r := range rows {
		if len(r) == 2 {
			label = max(label, len(r[0]))
		}
	}
	for _, r := range rows {
		width := len(r[0])
		if len(r) == 2 {
			width = label + 2 + len(r[1])
		}
		if width > Columns && !strings.HasPrefix(r[0], "FAIL: ") {
			t.Errorf("%d columns: %q", width, r)
		}
	}
	text := strings.Join(rows[len(rows)-1], "")
	if want := map[bool]string{true: "PASS: ", false: "FAIL: "}[rep.Err() == nil]; !strings.HasPrefix(text, want) {
		t.Errorf("the last line is %q, want %q", text, want)
	}
	for _, r := range rows {
		for _, unit := range []string{"GB/s", "MB", "KB"} {
			if strings.Contains(strings.Join(r, " "), unit) {
				t.Errorf("%q mixes units: sizes are in KiB, MiB and GiB", r)
			}
		}
	}
}

func TestTheTableFits80ColumnsAndEndsWithAVerdict(t *testing.T) {
	big := Report{
		Requests: 23608, Seconds: 1234.5, Reasoning: 11804, Speed: 1000, BytesStored: 999 << 30, BlocksStored: 1 << 24, BlockKiB: 1024,
		BytesRead: 999 << 30, BlocksRead: 1 << 24, HitRatio: 0.5, Lookups: 1 << 24, IdealLRU: 1,
		Paths:   []Path{{"prefill", "decode", "nixl-synth", "mem", 999 << 30}, {"decode", "prefill", "nixl-synth", "mem", 999 << 30}},
		PullP50: 12.345, PullP99: 99.999, PullGBs: 123.45, MappedReadP50: 12.345, MappedReadP99: 99.999, MappedPerBatch: 1234.5,
		OffloadedBytes: 999 << 30, OffloadedBlocks: 1 << 24, ReclaimedBytes: 999 << 30,
	}
	fits(t, big)
	big.Failures = []string{"2 leases leaked"}
	fits(t, big)
	if v := big.Verdict(); v != "FAIL: 2 leases leaked" {
		t.Error(v)
	}
}

// A line that is cut ends in half a unit.
func TestTheLongestProgressIsNotCut(t *testing.T) {
	g := gauge{pulled: 1023 << 30, rate: 99.99 * 1.07}
	g.last.Offload.Bytes = 1023<<30 - 1<<20
	if line := progressText(12031, 12031, 9999, &g); len(line) > Columns-1 {
		t.Errorf("%d columns: %q", len(line), line)
	}
}

func TestAChangingLineNeverWraps(t *testing.T) {
	var out bytes.Buffer
	p := Progress{W: &out, Terminal: true, state: &progressState{}}
	p.step(time.Unix(1, 0), "%s", strings.Repeat("x", 200))
	if n := strings.Count(out.String(), "x"); n != Columns-1 {
		t.Errorf("%d columns", n)
	}
}
