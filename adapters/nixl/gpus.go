package nixl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/adapters/nixl/control"
)

// gpuTimeout bounds the question for the GPUs. A driver that nothing else uses sets them
// up for it, which takes a second each.
const gpuTimeout = 30 * time.Second

// GPUs asks NVIDIA's driver for its version and its GPUs, by a helper of its own: a driver
// that hangs holds up nothing else, and ends with that helper.
func GPUs(ctx context.Context, c HelperConfig) (driver string, list []control.GPU, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gpuTimeout, fmt.Errorf("NVIDIA's driver did not answer for %v: %w", gpuTimeout, context.DeadlineExceeded))
	defer cancel()
	p, err := launch(&c, "", func(string, []byte) {})
	if err != nil {
		return "", nil, err
	}
	m, err := ask[*control.GPUList](ctx, p, &control.GPUs{}, -1)
	p.end(errors.New("it has answered"))
	if err != nil {
		return "", nil, err
	}
	return m.Driver, m.GPUs, nil
}
