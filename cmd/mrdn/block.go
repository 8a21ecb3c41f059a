package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"meridian/agent/adminpb"
	"meridian/agent/client"
	"meridian/agent/config"
	"meridian/wire"
)

func newBlockCmd(a *app) *cobra.Command {
	return group(a, "block", "The blocks that the daemon holds",
		"  mrdn block ls --tier OutputCritical\n  mrdn block put prompt.kv\n  mrdn block verify KEY",
		newBlockLsCmd(a), newBlockStatCmd(a), newBlockVerifyCmd(a), newBlockPutCmd(a), newBlockGetCmd(a))
}

func newBlockLsCmd(a *app) *cobra.Command {
	var tier, ns string
	var limit uint32
	c := &cobra.Command{
		Use:         "ls",
		Short:       "List published blocks",
		Long:        "Lists published blocks, in no order, up to --limit.",
		Example:     "  mrdn block ls\n  mrdn block ls --tier ThinkComplete --limit 10 -o wide",
		Args:        exactly(),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.Flags().StringVar(&tier, "tier", "", "only this tier: ThinkComplete, ThinkActive, OutputCritical")
	c.Flags().StringVar(&ns, "namespace", "", "only this namespace, in hexadecimal")
	c.Flags().Uint32Var(&limit, "limit", 1000, "at most so many")
	c.RunE = a.command(func(ctx context.Context, _ []string) (result, error) {
		req := &adminpb.ListBlocksRequest{Namespace: ns, Limit: limit}
		if tier != "" {
			t, err := wire.ParseTier(tier)
			if err != nil {
				return nil, usage("--tier: %v", err)
			}
			req.Tier = adminpb.Tier(t) + 1
		}
		if _, err := wire.ParseNamespace(ns); ns != "" && err != nil {
			return nil, usage("--namespace %q: it must be 64 hexadecimal digits", ns)
		}
		if limit == 0 {
			return nil, usage("--limit 0: it must be above 0")
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) { return listBlocks(ctx, adm, req) })
	})
	return c
}

func listBlocks(ctx context.Context, adm *client.Admin, req *adminpb.ListBlocksRequest) (result, error) {
	stream, err := adm.ListBlocks(ctx, req)
	if err != nil {
		return nil, err
	}
	r := blocksResult{[]block{}}
	for {
		b, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		r.Blocks = append(r.Blocks, blockOf(b))
	}
}

func newBlockStatCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:         "stat KEY",
		Short:       "Describe one block",
		Long:        "Shows a block's tier, place, checksum, who vouched for it, and its header as it\ntravels. The exit code is 1 when the key is not known.",
		Example:     "  mrdn block stat 0f3c...",
		Args:        exactly("KEY"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		key, err := parseKey(args[0])
		if err != nil {
			return nil, err
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			b, err := adm.StatBlock(ctx, &adminpb.StatBlockRequest{Key: key.String()})
			if err != nil {
				return nil, notHere(err)
			}
			return blockOf(b), nil
		})
	})
	return c
}

func newBlockVerifyCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "verify KEY",
		Short: "Hash a block again where it lies",
		Long: `Asks the daemon to hash the block's bytes again and compare them with the
checksum in its header. The exit code is 5 when they differ, 1 when the key is
not known.`,
		Example:     "  mrdn block verify 0f3c...",
		Args:        exactly("KEY"),
		Annotations: map[string]string{accessKey: readOnly},
	}
	c.RunE = a.command(func(ctx context.Context, args []string) (result, error) {
		key, err := parseKey(args[0])
		if err != nil {
			return nil, err
		}
		return a.withAdmin(ctx, func(adm *client.Admin) (result, error) {
			v, err := adm.VerifyBlock(ctx, &adminpb.VerifyBlockRequest{Key: key.String()})
			if err != nil {
				return nil, notHere(err)
			}
			r := verifyResult{key.String(), v.GetOk(), v.GetWant(), v.GetGot(), v.GetLength(), v.GetDurationNs(), attestName(v.GetAttest())}
			if !r.OK {
				err = integrity("the daemon does not serve it; look for failing memory, and load the block again", "block %s: the body does not match its checksum", short(r.Key, false))
			}
			return r, err
		})
	})
	return c
}

// notHere replaces the hint of ABSENT, which speaks to an engine.
func notHere(err error) error {
	f := asCommandFailure(err)
	if f.code == wire.CodeAbsent {
		f.hint = "mrdn block ls lists the keys that are here"
	}
	return f
}

func parseKey(s string) (wire.Key, error) {
	k, err := wire.ParseKey(s)
	if err != nil {
		return k, usage("KEY: %v", err)
	}
	return k, nil
}

type block struct {
	Key        string `json:"key"`
	Namespace  string `json:"namespace"`
	Tier       string `json:"tier"`
	Where      string `json:"where"`
	Length     uint32 `json:"length"`
	Sum        string `json:"sum"`
	Attest     string `json:"attest"`
	Refs       uint32 `json:"refs"`
	Pins       uint32 `json:"pins"`
	Slot       uint32 `json:"slot"`
	Generation uint32 `json:"generation"`
	Segment    uint32 `json:"segment"`
	Offset     uint64 `json:"offset"`
	Header     string `json:"header"`
	HeaderTier string `json:"header_tier"`
}

func blockOf(b *adminpb.Block) block {
	return block{
		Key: b.GetKey(), Namespace: b.GetNamespace(), Tier: tierName(b.GetTier()), Where: b.GetWhere(), Length: b.GetLength(),
		Sum: b.GetSum(), Attest: attestName(b.GetAttest()), Refs: b.GetRefs(), Pins: b.GetPins(), Slot: b.GetSlot(), Generation: b.GetGeneration(),
		Segment: b.GetSegment(), Offset: b.GetOffset(), Header: b.GetHeader(), HeaderTier: tierName(b.GetHeaderTier()),
	}
}

func (b block) grid(bool) grid {
	return grid{rows: [][]string{
		{"key", b.Key}, {"namespace", b.Namespace}, {"tier", b.Tier}, {"where", b.Where},
		{"length", fmt.Sprintf("%d (%s)", b.Length, config.FormatBytes(uint64(b.Length)))},
		{"sum", b.Sum}, {"attest", b.Attest}, {"references", number(b.Refs)}, {"pins", number(b.Pins)},
		{"slot", fmt.Sprintf("%d, generation %d", b.Slot, b.Generation)},
		{"segment", fmt.Sprintf("%d, offset %d", b.Segment, b.Offset)},
		{"header", b.Header}, {"header tier", b.HeaderTier},
	}}
}

type blocksResult struct {
	Blocks []block `json:"blocks"`
}

func (r blocksResult) grid(wide bool) grid {
	g := grid{head: []string{"KEY", "TIER", "WHERE", "LENGTH", "ATTEST", "REFS", "PINS"}}
	if wide {
		g.head = append(g.head, "NAMESPACE", "SUM", "SLOT", "GENERATION")
	}
	for _, b := range r.Blocks {
		row := []string{b.Key, b.Tier, b.Where, config.FormatBytes(uint64(b.Length)), b.Attest, number(b.Refs), number(b.Pins)}
		if wide {
			row = append(row, b.Namespace, b.Sum, number(b.Slot), number(b.Generation))
		}
		g.rows = append(g.rows, row)
	}
	if len(g.rows) == 0 {
		g.note = "no blocks"
	}
	return g
}

type verifyResult struct {
	Key        string `json:"key"`
	OK         bool   `json:"ok"`
	Want       string `json:"want"`
	Got        string `json:"got"`
	Length     uint32 `json:"length"`
	DurationNS uint64 `json:"duration_ns"`
	Attest     string `json:"attest"`
}

func (r verifyResult) grid(bool) grid {
	state := "ok"
	if !r.OK {
		state = "failed"
	}
	return grid{rows: [][]string{
		{"result", state}, {"key", r.Key}, {"header says", r.Want}, {"bytes are", r.Got}, {"attest", r.Attest},
		{"length", config.FormatBytes(uint64(r.Length))},
		{"took", duration(time.Duration(r.DurationNS))},
	}}
}

// tierName is the wire's name of a tier; empty when the daemon gave none.
func tierName(t adminpb.Tier) string {
	if t == adminpb.Tier_TIER_UNSPECIFIED {
		return ""
	}
	return wire.Tier(t - 1).String()
}

func attestName(t adminpb.Attest) string {
	if t == adminpb.Attest_ATTEST_UNSPECIFIED {
		return ""
	}
	return enumWord(t.String(), "ATTEST_")
}
