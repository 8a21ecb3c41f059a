package think

import (
	"fmt"
	"time"
)

// Cost is how long a step of the engine takes: a forward pass costs a base, a share for
// each token in it, and one for each token of context that decoding requests read.
type Cost struct {
	Name       string  `json:"name"`
	Source     string  `json:"source"`
	BaseUS     float64 `json:"base_us"`
	TokenUS    float64 `json:"token_us"`
	ContextUS  float64 `json:"context_token_us"`
	TokenBytes int     `json:"kv_bytes_a_token"`
	MoveGBs    float64 `json:"offload_gbs"` // a second, each way
}

// H100 is a model of 8 billion parameters on one H100.
func H100() Cost {
	return Cost{
		Name: "h100-8b",
		Source: "computed: Llama-3.1-8B (8.0e9 parameters in bf16, 32 layers, 8 KV heads of 128) by the data sheet of H100 SXM " +
			"(3.35 TB/s, 989 TFLOP/s bf16 dense) at 80 % of the bandwidth and half of the arithmetic; 25 GB/s for offloads",
		BaseUS:    16.0e9 / (3.35e12 * 0.8) * 1e6,
		TokenUS:   2 * 8.0e9 / (989e12 * 0.5) * 1e6,
		ContextUS: 131072 / (3.35e12 * 0.8) * 1e6, TokenBytes: 131072, MoveGBs: 25,
	}
}

// Seed are the fixed costs a token of the first design document: 6 µs, of which a step
// of 100 takes 600.
func Seed() Cost {
	return Cost{Name: "seed", Source: "ADR-0005: 6 and 18 µs a token, here the mean of both", TokenUS: 12, TokenBytes: 131072, MoveGBs: 25}
}

// Costs are the presets.
func Costs() []Cost { return []Cost{H100(), Seed()} }

func (c *Cost) check() error {
	for _, v := range []float64{c.BaseUS, c.TokenUS, c.ContextUS} {
		if !(v >= 0 && v < 1e9) {
			return fmt.Errorf("a step cost of %v µs", v)
		}
	}
	if c.BaseUS+c.TokenUS <= 0 || c.TokenBytes < 0 || !(c.MoveGBs > 0) {
		return fmt.Errorf("step costs %+v: a step takes time, and so does an offload", *c)
	}
	return nil
}

func (c *Cost) step(tokens, context int) time.Duration {
	return time.Duration((c.BaseUS + c.TokenUS*float64(tokens) + c.ContextUS*float64(context)) * 1e3)
}

func (c *Cost) move(tokens int) time.Duration {
	return time.Duration(float64(tokens) * float64(c.TokenBytes) / c.MoveGBs)
}
