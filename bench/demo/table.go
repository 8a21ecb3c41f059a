package demo

import (
	"fmt"
	"strings"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Rows is the report for people, within 80 columns: a name and a value, below it
// in one line what the word means, and the verdict at the end.
func (rep Report) Rows() [][]string {
	var rows [][]string
	row := func(name, meaning, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
		if meaning != "" {
			rows = append(rows, []string{"    " + meaning})
		}
	}
	row("requests", "reasoned: the model thought first; the end of thinking was seen for each",
		"%d in %.1f s; %d reasoned; trace at %.0f times its pace", rep.Requests, rep.Seconds, rep.Reasoning, rep.Speed)
	row("blocks stored", "a block is the KV cache of some tokens; engines put it into their daemon",
		"%s in %d blocks of %d KiB", config.FormatBytes(rep.BytesStored), rep.BlocksStored, rep.BlockKiB)
	row("blocks read", "by engines; each byte was compared with what its key stands for",
		"%s in %d blocks", config.FormatBytes(rep.BytesRead), rep.BlocksRead)
	row("prefix hits", "prompt blocks that were there already; an ideal LRU cache of this size",
		"%s of %d blocks; ideal cache %s", percent(rep.HitRatio), rep.Lookups, percent(rep.IdealLRU))
	for i, p := range rep.Paths {
		meaning := ""
		if i == len(rep.Paths)-1 {
			meaning = "bytes that arrived, and the transport that really carried them"
		}
		row("moved", meaning, "%s to %s: %s by %s over %s", p.From, p.To, config.FormatBytes(p.Bytes), p.Fabric, p.Transport)
	}
	row("pull", "one daemon fetches blocks from the other, with checksums; while one ran",
		"p50 %s, p99 %s, %s", measure.Latency(rep.PullP50), measure.Latency(rep.PullP99), rate(rep.PullGBs))
	row("mapped read", "an engine reads blocks of its own daemon in shared memory, in batches",
		"p50 %s, p99 %s, %.1f blocks a batch", measure.Latency(rep.MappedReadP50), measure.Latency(rep.MappedReadP99), rep.MappedPerBatch)
	row("offloaded", "think blocks that left the node when thinking ended; reclaimed: freed here",
		"%s in %d blocks, %s reclaimed", config.FormatBytes(rep.OffloadedBytes), rep.OffloadedBlocks, config.FormatBytes(rep.ReclaimedBytes))
	row("flipped bits", "the demo damages one bit on the way; it must be caught and pulled again",
		"%d, caught %d", rep.BitsFlipped, rep.ChecksumFailures)
	row("wrong bytes", "bytes that reached an engine and were not those that were stored", "%d", rep.WrongBytes)
	row("leaked", "leases (rights to read) and slots (places of blocks) that nobody gave back",
		"%d leases, %d slots", rep.LeakedLeases, rep.LeakedSlots)
	row("witness", "a process of its own that was told of every block and compared them",
		"%d blocks stored, %d served, %d missing", rep.Judge.Acked, rep.Judge.Served, rep.Judge.Absent)
	return append(rows, []string{rep.Verdict()})
}

// Verdict is one line that begins with PASS or FAIL.
func (rep Report) Verdict() string {
	if len(rep.Failures) > 0 {
		return "FAIL: " + strings.Join(rep.Failures, "; ")
	}
	return "PASS: no wrong byte was served, the flipped bit was caught, nothing leaked"
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f %%", 100*ratio) }

// rate shows GB/s (10^9 bytes) in the units of all sizes here: small rates in MiB/s.
func rate(gbytesPerSecond float64) string {
	mib := gbytesPerSecond * 1e9 / (1 << 20)
	if mib < 1024 {
		return fmt.Sprintf("%.1f MiB/s", mib)
	}
	return fmt.Sprintf("%.2f GiB/s", mib/1024)
}
