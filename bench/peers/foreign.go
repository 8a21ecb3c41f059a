package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/metadata"
	"meridian/bench/measure"
)

// Segment is one that somebody else serves: its name, as engines open it, and the
// metadata server that knows it, as engines take that.
type Segment struct{ Name, Metadata string }

// NoServer is the metadata server of segments that are found without one.
const NoServer = metadata.P2P

// foreignTarget is the one row of such a run.
const foreignTarget = "te-target"

var errNoMemory = errors.New("it has registered no memory")

// MeasureSegment reads, and where Options.Ops says so writes, the first buffer of a
// segment by our initiator. A write is read back and compared before it is measured:
// the buffer's content is lost. Cells that need more than the buffer are not measured.
func MeasureSegment(ctx context.Context, opt Options, s Segment) (rep SegmentReport, err error) {
	opt.Streams = []int{1, 4}
	if len(opt.Ops) == 0 {
		opt.Ops = []Op{Read}
	}
	if err := opt.fill(); err != nil {
		return rep, err
	}
	began := time.Now()
	if rep.Report, err = (&run{opt: opt}).describe(); err != nil {
		return rep, err
	}
	rep.Systems = []SystemInfo{{Name: foreignTarget, About: "Meridian's initiator, the target " + s.Name, Read: "READ", Write: "WRITE", Verify: verifiedNever}}
	rep.Versions["meridian"] = opt.Version
	plane, err := metadata.Open(metadata.Config{Server: s.Metadata})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	d, _, err := plane.Get(ctx, s.Name)
	if err != nil {
		return rep, err
	}
	if len(d.Buffers) == 0 {
		return rep, fmt.Errorf("segment %s: %w", s.Name, errNoMemory)
	}
	peer, err := json.Marshal(transferPeer{s.Name, d.Buffers[0].Addr})
	if err != nil {
		return rep, err
	}
	for _, c := range matrix(opt) {
		if c.near() > d.Buffers[0].Len {
			why := fmt.Sprintf("the first buffer has %d bytes, want %d", d.Buffers[0].Len, c.near())
			rep.Cells = append(rep.Cells, CellReport{c, []Result{{System: foreignTarget, Error: why}}})
			continue
		}
		c.Set = min(c.Set, d.Buffers[0].Len)
		c.Set -= c.Set % c.Size
		opt.Progress(c.String())
		got, err := measureSegment(ctx, opt, c, plane, peer)
		if err != nil {
			return rep, fmt.Errorf("%s: %w", c, err)
		}
		rep.Cells = append(rep.Cells, got)
	}
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}

// SegmentReport is the report of MeasureSegment. A cell that was not measured has an
// Error.
type SegmentReport struct{ Report }

// Rows is the report for people.
func (r SegmentReport) Rows() (head []string, rows [][]string) {
	head = []string{"cell", "GB/s", "least-most", "p50", "p99", "p99.9"}
	for _, c := range r.Cells {
		for _, res := range c.Results {
			if res.Error != "" {
				rows = append(rows, []string{c.String(), "not measured: " + res.Error})
				continue
			}
			rows = append(rows, []string{c.String(), number("%.2f", res.Rate), spread(res), measure.Latency(res.P50), measure.Latency(res.P99), measure.Latency(res.P999)})
		}
	}
	return head, rows
}

// Note says on what it was measured.
func (r SegmentReport) Note() string { return r.where() }

func measureSegment(ctx context.Context, opt Options, c Cell, plane engine.Resolver, peer json.RawMessage) (out CellReport, err error) {
	n := &transferInitiator{resolver: plane}
	if err := n.prepare(ctx, c, peer); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if c.Op == Write {
		if err := n.writeAndReadBack(ctx); err != nil {
			return out, err
		}
	}
	batches := make([]int, c.Streams)
	var samples []sample
	for round := range opt.Rounds + 1 { // the first one warms up
		took, elapsed, err := measure.During(c.Streams, opt.Round, func(w int) error {
			batches[w]++
			return n.move(ctx, w, batches[w]-1, nil)
		})
		if err != nil {
			return out, err
		}
		if round > 0 {
			samples = append(samples, sample{rate: float64(uint64(len(took))*c.batchBytes()) / 1e9 / elapsed.Seconds(), took: took})
		}
	}
	return summarize(c, []system{{name: foreignTarget}}, map[string][]sample{foreignTarget: samples}, nil), nil
}

// writeAndReadBack proves that a batch of each stream arrives where it should.
func (n *transferInitiator) writeAndReadBack(ctx context.Context) error {
	for w := range n.order.Streams {
		if err := n.move(ctx, w, 0, nil); err != nil {
			return err
		}
		back := slices.Clone(n.ops[w])
		for j := range back {
			back[j].B = make([]byte, n.order.Size)
		}
		n.segment.Read(ctx, back)
		for j := range back {
			err := back[j].Err
			if err == nil {
				err = expect(back[j].B, seedLocal, n.order.local(w, j))
			}
			if err != nil {
				return fmt.Errorf("what was written is not read back: %w", err)
			}
		}
	}
	return nil
}
