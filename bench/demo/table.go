package demo

import (
	"fmt"
	"time"
)

// Rows is the report for people: a name and a text a line.
func (rep Report) Rows() [][]string {
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	row("requests", "%d in %.1f s (%d reasoned, %d ExitThink), the trace at %.0f times its pace, %d CPUs",
		rep.Requests, rep.Seconds, rep.Reasoning, rep.ExitThink, rep.Speed, rep.CPUs)
	row("blocks stored", "%d of %d KiB, %s", rep.BlocksStored, rep.BlockKiB, bytesText(rep.BytesStored))
	row("blocks read", "%d, %s, every byte checked against its key", rep.BlocksRead, bytesText(rep.BytesRead))
	row("prefix hits", "%.4f (%d of %d block references, partial last blocks counted)", rep.HitRatio, rep.Hits, rep.Lookups)
	row("  ideal", "%.4f with plain LRU of %d blocks, %.4f without bound", rep.IdealLRU, rep.CacheBlocks, rep.IdealInfinite)
	for _, p := range rep.Paths {
		row("moved", "%s to %s: %s over %s, transport really used: %s", p.From, p.To, bytesText(p.Bytes), p.Fabric, p.Transport)
	}
	row("pull", "p50 %s, p99 %s (%d pulls), %.2f GB/s while pulling", secondsText(rep.PullP50), secondsText(rep.PullP99), rep.Pulls, rep.PullGBs)
	row("mapped read", "p50 %s, p99 %s (%d batches of %.1f blocks)", secondsText(rep.MappedReadP50), secondsText(rep.MappedReadP99), rep.MappedReads, rep.MappedPerBatch)
	row("offloaded", "%s in %d blocks, reclaimed %s; %d think blocks were read again", bytesText(rep.OffloadedBytes), rep.OffloadedBlocks, bytesText(rep.ReclaimedBytes), rep.ReadAgain)
	row("checksum failures", "caught %d of %d flipped bits, healed by pulling again", rep.ChecksumFailures, rep.BitsFlipped)
	row("wrong bytes", "%d", rep.WrongBytes)
	row("leaked", "%d leases, %d slots", rep.LeakedLeases, rep.LeakedSlots)
	row("judge", "%s", rep.Judge)
	return rows
}

func bytesText(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
}

// secondsText shows a latency with about three digits.
func secondsText(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
}
