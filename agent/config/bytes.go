package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of a size, the longer suffix first. A bare K or M is not among them:
// it means 1000 to some and 1024 to others.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

var errSize = errors.New(`must be bytes: an integer, or a string such as "64MiB" or "1.5GiB"`)

// ParseBytes reads a number of bytes: 4096, "64MiB", "1.5 GB".
func ParseBytes(s string) (uint64, error) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseUint(s, 10, 63); err == nil {
		return n, nil
	}
	for _, u := range units {
		num, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || f < 0 || math.IsNaN(f) || f*u.bytes >= math.MaxInt64 {
			return 0, errSize
		}
		return uint64(f * u.bytes), nil
	}
	return 0, errSize
}

func sizeOf(v any) (uint64, error) {
	switch v := v.(type) {
	case int64:
		if v >= 0 {
			return uint64(v), nil
		}
	case string:
		return ParseBytes(v)
	}
	return 0, errSize
}

// FormatBytes writes n for people, with three digits: 64 MiB, 1.25 GiB.
func FormatBytes(n uint64) string {
	if n < 1<<10 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f, i := float64(n), 0
	for f >= 999.5 && i < 6 { // 999.5 would print as 1e+03
		f /= 1 << 10
		i++
	}
	return strconv.FormatFloat(f, 'g', 3, 64) + " " + [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[i]
}

// showSize writes n as a config value: in the largest unit that is exact.
// below4G reads sizes of 32 bits.
func below4G[T any](read func(T) (uint64, error)) func(T) (uint32, error) {
	return func(v T) (uint32, error) {
		n, err := read(v)
		if err == nil && n > math.MaxUint32 {
			err = fmt.Errorf("must be at most %d", uint32(math.MaxUint32))
		}
		return uint32(n), err
	}
}

func showSize(n uint64) string {
	for i := 3; i >= 0; i-- {
		if u := uint64(1) << (10 * (i + 1)); n >= u && n%u == 0 {
			return strconv.Quote(strconv.FormatUint(n/u, 10) + units[i].suffix)
		}
	}
	return strconv.FormatUint(n, 10)
}
