package blocks

import (
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"meridian/wire"
)

// args reads the arguments of one directive; missing ones are zero.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) str(key, def string) string {
	if arg, ok := a.d.Arg(key); ok && len(arg.Vals) > 0 {
		return arg.Vals[0]
	}
	return def
}

func (a args) list(key string) []string {
	arg, _ := a.d.Arg(key)
	return arg.Vals
}

func (a args) num(key string, def uint64) uint64 {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return n
}

func (a args) share(key string) float64 {
	v, err := strconv.ParseFloat(a.str(key, "0"), 64)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

func (a args) dur(key, def string) time.Duration {
	v, err := time.ParseDuration(a.str(key, def))
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

func (a args) tier(key, def string) wire.Tier {
	v, err := tierOf(a.str(key, def))
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return v
}

func (a args) keys() (k []wire.Key) {
	for _, n := range a.list("keys") {
		k = append(k, keyOf(n))
	}
	return k
}
