package demo

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"meridian/agent"
	"meridian/bench/measure"
	"meridian/bench/trace"
	"meridian/conformance/chaos"
)

// Report is what a run moved and found.
type Report struct {
	Size      string  `json:"size"`
	Seed      uint64  `json:"seed"`
	Fabric    string  `json:"fabric"`
	CPUs      int     `json:"cpus"`
	Seconds   float64 `json:"seconds"`
	Speed     float64 `json:"speed"` // of the replay, times the trace's own pace
	BlockKiB  int     `json:"block_kib"`
	Requests  int     `json:"requests"`
	Reasoning int     `json:"reasoning_requests"`
	ExitThink int     `json:"exit_think_events"`

	BlocksStored int    `json:"blocks_stored"`
	BytesStored  uint64 `json:"bytes_stored"`
	BlocksRead   int    `json:"blocks_read"`
	BytesRead    uint64 `json:"bytes_read"`

	Lookups       int     `json:"lookups"`
	Hits          int     `json:"hits"`
	HitRatio      float64 `json:"hit_ratio"`
	IdealLRU      float64 `json:"ideal_hit_ratio_lru"` // of a cache of CacheBlocks
	CacheBlocks   int     `json:"cache_blocks"`
	IdealInfinite float64 `json:"ideal_hit_ratio_infinite"`

	Paths []Path `json:"paths"`

	Pulls          int     `json:"pulls"`
	PullP50        float64 `json:"pull_p50_seconds"`
	PullP99        float64 `json:"pull_p99_seconds"`
	PullGBs        float64 `json:"pull_gbytes_per_second"` // while at least one pull ran
	MappedReads    int     `json:"mapped_reads"`
	MappedReadP50  float64 `json:"mapped_read_p50_seconds"`
	MappedReadP99  float64 `json:"mapped_read_p99_seconds"`
	MappedPerBatch float64 `json:"mapped_read_blocks_per_batch"`

	OffloadedBlocks uint64 `json:"offloaded_blocks"`
	OffloadedBytes  uint64 `json:"offloaded_bytes"`
	ReclaimedBytes  uint64 `json:"reclaimed_bytes"`
	ReadAgain       int    `json:"think_blocks_read_again"`

	BitsFlipped      int    `json:"bits_flipped"`
	ChecksumFailures uint64 `json:"checksum_failures_caught"`
	WrongBytes       uint64 `json:"wrong_bytes"`
	LeakedLeases     int    `json:"leaked_leases"`
	LeakedSlots      int    `json:"leaked_slots"`

	Judge    chaos.Report `json:"judge"`
	Failures []string     `json:"failures"`
}

// Path is what moved over one fabric by the transport really used.
type Path struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Fabric    string `json:"fabric"`
	Transport string `json:"transport"`
	Bytes     uint64 `json:"bytes"`
}

// report waits for the daemons to settle, asks the judge, and adds all up.
func (r *runner) report(ctx context.Context, sums map[string]summary, elapsed time.Duration, speed float64) (Report, error) {
	vars := map[string]agent.Varz{}
	for name, base := range r.http {
		v, err := settled(ctx, base)
		if err != nil {
			return Report{}, fmt.Errorf("daemon %s: %w", name, err)
		}
		vars[name] = v
	}
	pre, dec := sums[namePrefill], sums[nameDecode]
	rep := Report{
		Size: r.opt.Size, Seed: r.opt.Seed, Fabric: r.opt.Fabric, CPUs: runtime.NumCPU(), Seconds: elapsed.Seconds(), Speed: speed,
		BlockKiB: int(r.size.blockBytes >> 10), Requests: dec.Requests, Reasoning: dec.Reasoned, ExitThink: dec.Exits,
		BlocksStored: pre.Stored + dec.Stored, BytesStored: pre.StoredBytes + dec.StoredBytes,
		BlocksRead: pre.Read + dec.Read, BytesRead: pre.ReadBytes + dec.ReadBytes,
		Lookups: pre.Lookups, Hits: pre.Hits, CacheBlocks: int(r.size.prefill / uint64(r.size.blockBytes)),
		IdealInfinite: trace.LRU(r.reqs, 0).Ratio(), WrongBytes: pre.WrongBytes + dec.WrongBytes, ReadAgain: dec.ReadAgain,
		Failures: []string{}, Paths: []Path{},
	}
	rep.HitRatio = trace.Ideal{Lookups: pre.Lookups, Hits: pre.Hits}.Ratio()
	rep.IdealLRU = trace.LRU(r.reqs, rep.CacheBlocks).Ratio()
	rep.addDaemons(vars)
	if err := rep.addLatencies(ctx, r, dec); err != nil {
		return Report{}, err
	}
	if r.proxy != nil {
		rep.BitsFlipped = len(r.proxy.Flips())
	} else {
		n, err := r.corrupted(ctx)
		if err != nil {
			return Report{}, err
		}
		rep.BitsFlipped = n
	}
	if err := rep.addJudge(ctx, r.judge, vars); err != nil {
		return Report{}, err
	}
	rep.judgeItself()
	return rep, nil
}

func (rep *Report) addDaemons(vars map[string]agent.Varz) {
	for _, name := range []string{namePrefill, nameDecode} {
		v := vars[name]
		for _, m := range v.Moved {
			if m.Direction != "in" {
				continue // the other side counts the same bytes as they arrive
			}
			from := nameDecode
			if name == nameDecode {
				from = namePrefill
			}
			rep.Paths = append(rep.Paths, Path{From: from, To: name, Fabric: m.Fabric, Transport: m.Transport, Bytes: m.Bytes})
		}
		rep.OffloadedBlocks += v.Offload.Blocks
		rep.OffloadedBytes += v.Offload.Bytes
		rep.ReclaimedBytes += v.Offload.ReclaimedBytes
		rep.ChecksumFailures += v.ChecksumFailures
		rep.LeakedLeases += v.Blocks.Leases
		rep.LeakedSlots += v.Blocks.Reserved + v.Blocks.Quarantined + v.Blocks.Transient + v.Blocks.Leaked
	}
}

func (rep *Report) addLatencies(ctx context.Context, r *runner, dec summary) error {
	d, busy, bytes, err := pulls(ctx, r.socket(nameDecode, "admin"))
	if err != nil {
		return err
	}
	rep.Pulls = len(d)
	rep.PullP50, rep.PullP99 = measure.Quantile(d, 0.5).Seconds(), measure.Quantile(d, 0.99).Seconds()
	if busy > 0 {
		rep.PullGBs = float64(bytes) / busy.Seconds() / 1e9
	}
	local := make([]time.Duration, len(dec.Local))
	blocks := 0
	for i, ns := range dec.Local {
		local[i] = time.Duration(ns)
		blocks += dec.PerBlock[i]
	}
	rep.MappedReads = len(local)
	rep.MappedReadP50, rep.MappedReadP99 = measure.Quantile(local, 0.5).Seconds(), measure.Quantile(local, 0.99).Seconds()
	if len(local) > 0 {
		rep.MappedPerBatch = float64(blocks) / float64(len(local))
	}
	return nil
}

// addJudge tells the judge what is still open at the daemons and takes its
// verdict.
func (rep *Report) addJudge(ctx context.Context, socket string, vars map[string]agent.Varz) error {
	j, err := chaos.Dial(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	for name, v := range vars {
		for what, n := range openCounts(v) {
			if _, err := j.Tell(chaos.Event{Op: chaos.OpCount, Who: "demo", At: name, Name: what, N: int64(n)}); err != nil {
				return err
			}
		}
	}
	if _, err := j.Tell(chaos.Event{Op: chaos.OpSettle}); err != nil {
		return err
	}
	rep.Judge, err = j.Report()
	return err
}

// judgeItself lists what must not be.
func (rep *Report) judgeItself() {
	fail := func(bad bool, format string, args ...any) {
		if bad {
			rep.Failures = append(rep.Failures, fmt.Sprintf(format, args...))
		}
	}
	var moved uint64
	for _, p := range rep.Paths {
		moved += p.Bytes
	}
	fail(moved == 0, "no byte moved between the daemons")
	fail(rep.WrongBytes != 0, "%d wrong bytes reached a reader", rep.WrongBytes)
	fail(rep.BitsFlipped != 1, "%d bits were flipped on the way, not 1: the run proves nothing about corruption", rep.BitsFlipped)
	fail(rep.ChecksumFailures != uint64(rep.BitsFlipped), "%d of %d flipped bits were caught", rep.ChecksumFailures, rep.BitsFlipped)
	fail(rep.LeakedLeases != 0, "%d leases leaked", rep.LeakedLeases)
	fail(rep.LeakedSlots != 0, "%d slots leaked", rep.LeakedSlots)
	fail(rep.ExitThink != rep.Reasoning, "%d of %d reasoning requests were seen to stop thinking", rep.ExitThink, rep.Reasoning)
	fail(rep.OffloadedBytes == 0, "nothing was offloaded")
	if err := rep.Judge.Err(); err != nil {
		fail(true, "the judge: %v", err)
	}
}

// Err says how much Meridian did wrong, which Verdict lists, or is nil.
func (rep Report) Err() error {
	if n := len(rep.Failures); n > 0 {
		return fmt.Errorf("the demo failed: %d of its checks", n)
	}
	return nil
}
