package demo

import (
	"fmt"

	"meridian/agent/config"
	"meridian/bench/measure"
)

// Rows is the report for people: a name and a text a line.
func (rep Report) Rows() [][]string {
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	row("requests", "%d in %.1f s (%d reasoned, %d ExitThink), the trace at %.0f times its pace, %d CPUs",
		rep.Requests, rep.Seconds, rep.Reasoning, rep.ExitThink, rep.Speed, rep.CPUs)
	row("blocks stored", "%d of %d KiB, %s", rep.BlocksStored, rep.BlockKiB, config.FormatBytes(rep.BytesStored))
	row("blocks read", "%d, %s, every byte checked against its key", rep.BlocksRead, config.FormatBytes(rep.BytesRead))
	row("prefix hits", "%.4f (%d of %d block references, partial last blocks counted)", rep.HitRatio, rep.Hits, rep.Lookups)
	row("  ideal", "%.4f with plain LRU of %d blocks, %.4f without bound", rep.IdealLRU, rep.CacheBlocks, rep.IdealInfinite)
	for _, p := range rep.Paths {
		row("moved", "%s to %s: %s over %s, transport really used: %s", p.From, p.To, config.FormatBytes(p.Bytes), p.Fabric, p.Transport)
	}
	row("pull", "p50 %s, p99 %s (%d pulls), %.2f GB/s while pulling", measure.Latency(rep.PullP50), measure.Latency(rep.PullP99), rep.Pulls, rep.PullGBs)
	row("mapped read", "p50 %s, p99 %s (%d batches of %.1f blocks)", measure.Latency(rep.MappedReadP50), measure.Latency(rep.MappedReadP99), rep.MappedReads, rep.MappedPerBatch)
	row("offloaded", "%s in %d blocks, reclaimed %s; %d think blocks were read again", config.FormatBytes(rep.OffloadedBytes), rep.OffloadedBlocks, config.FormatBytes(rep.ReclaimedBytes), rep.ReadAgain)
	row("checksum failures", "caught %d of %d flipped bits, healed by pulling again", rep.ChecksumFailures, rep.BitsFlipped)
	row("wrong bytes", "%d", rep.WrongBytes)
	row("leaked", "%d leases, %d slots", rep.LeakedLeases, rep.LeakedSlots)
	row("judge", "%s", rep.Judge)
	return rows
}
