package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A kind is one type of value: how it is written, and how it is read from the
// file (a decoded TOML value) and from a variable or a flag (text).
type kind[T any] struct {
	name string
	toml func(any) (T, error)
	text func(string) (T, error)
	show func(T) string // as it would be written in TOML
}

var (
	floats    = kind[float64]{"number", floatOf, floatText, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }}
	counts    = kind[uint32]{"integer", countOf, countText, func(v uint32) string { return strconv.FormatUint(uint64(v), 10) }}
	integers  = kind[int]{"integer", intOf, strconv.Atoi, strconv.Itoa}
	booleans  = kind[bool]{"boolean", exactly[bool]("true or false"), boolText, strconv.FormatBool}
	words     = kind[string]{"string", exactly[string]("a string"), textIs, strconv.Quote}
	secrets   = kind[Secret]{"secret string", secretOf, func(s string) (Secret, error) { return Secret(s), nil }, func(s Secret) string { return strconv.Quote(s.String()) }}
	sizes     = kind[uint64]{"bytes", sizeOf, ParseBytes, showSize}
	sizes32   = kind[uint32]{"bytes", below4G(sizeOf), below4G(ParseBytes), func(v uint32) string { return showSize(uint64(v)) }}
	durations = kind[time.Duration]{"duration", durationOf, durationText, func(d time.Duration) string { return strconv.Quote(d.String()) }}
	levels    = kind[slog.Level]{"string", levelOf, levelText, func(l slog.Level) string { return strconv.Quote(strings.ToLower(l.String())) }}
	strs      = kind[[]string]{"list of strings", listOf(words), listText(words), showList(words)}
	tokenIDs  = kind[[]int32]{"list of integers", listOf(tokens), listText(tokens), showList(tokens)}
	uidList   = kind[[]uint32]{"list of integers", listOf(counts), listText(counts), showList(counts)}
	tokens    = kind[int32]{"integer", tokenOf, tokenText, func(v int32) string { return strconv.Itoa(int(v)) }}
	autoCount = kind[int]{`integer or "auto"`, autoOf, autoText, showAuto}
	autoSize  = kind[capacity]{`bytes or "auto"`, capacityOf, capacityText, showCapacity}
)

// Auto is an automatic count, until it is resolved.
const Auto = -1

// capacity is a size that may be left to Load.
type capacity struct {
	bytes uint64
	auto  bool
}

func exactly[T any](want string) func(any) (T, error) {
	return func(v any) (T, error) {
		t, ok := v.(T)
		if !ok {
			return t, fmt.Errorf("must be %s", want)
		}
		return t, nil
	}
}

func textIs(s string) (string, error) { return s, nil }

func floatOf(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		return finite(v)
	case int64:
		return float64(v), nil
	}
	return 0, errors.New("must be a number")
}

func floatText(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errors.New("must be a number")
	}
	return finite(f)
}

func finite(f float64) (float64, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("must be a finite number")
	}
	return f, nil
}

func intOf(v any) (int, error) {
	i, ok := v.(int64)
	if !ok {
		return 0, errors.New("must be an integer")
	}
	return int(i), nil
}

func countOf(v any) (uint32, error) {
	i, ok := v.(int64)
	if !ok {
		return 0, errors.New("must be an integer")
	}
	if i < 0 || i > math.MaxUint32 {
		return 0, errors.New("must be between 0 and 4294967295")
	}
	return uint32(i), nil
}

func countText(s string) (uint32, error) {
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("must be an integer")
	}
	return countOf(i)
}

func tokenOf(v any) (int32, error) {
	i, ok := v.(int64)
	if !ok || i < 0 || i > math.MaxInt32 {
		return 0, errors.New("must be a token id: an integer between 0 and 2147483647")
	}
	return int32(i), nil
}

func tokenText(s string) (int32, error) {
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return tokenOf(nil)
	}
	return tokenOf(i)
}

func boolText(s string) (bool, error) {
	switch s {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

func secretOf(v any) (Secret, error) {
	s, ok := v.(string)
	if !ok {
		return "", errors.New("must be a string")
	}
	return Secret(s), nil
}

func durationOf(v any) (time.Duration, error) {
	s, ok := v.(string)
	if !ok {
		return 0, errors.New(`must be a string with a unit, such as "5s" or "250ms"`)
	}
	return durationText(s)
}

func durationText(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New(`must have a unit, such as "5s" or "250ms"`)
	}
	return d, nil
}

func levelOf(v any) (slog.Level, error) {
	s, _ := v.(string)
	return levelText(s)
}

func levelText(s string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, l.String()) {
			return l, nil
		}
	}
	return 0, errors.New("must be debug, info, warn or error")
}

func autoOf(v any) (int, error) {
	if v == "auto" {
		return Auto, nil
	}
	i, ok := v.(int64)
	if !ok {
		return 0, errors.New(`must be an integer or "auto"`)
	}
	if i < 0 || i > math.MaxInt32 {
		return 0, errors.New(`must be "auto", or at least 0`)
	}
	return int(i), nil
}

func autoText(s string) (int, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return autoOf(i)
	}
	return autoOf(s)
}

func showAuto(v int) string {
	if v == Auto {
		return `"auto"`
	}
	return strconv.Itoa(v)
}

func capacityOf(v any) (capacity, error) {
	if v == "auto" {
		return capacity{auto: true}, nil
	}
	n, err := sizeOf(v)
	if err != nil {
		err = fmt.Errorf(`%w, or "auto"`, err)
	}
	return capacity{bytes: n}, err
}

func capacityText(s string) (capacity, error) { return capacityOf(s) }

func showCapacity(c capacity) string {
	if c.auto {
		return `"auto"`
	}
	return showSize(c.bytes)
}

func listOf[T any](k kind[T]) func(any) ([]T, error) {
	return func(v any) ([]T, error) {
		l, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("must be a list, each entry %s", article(k.name))
		}
		out := make([]T, len(l))
		for i, e := range l {
			t, err := k.toml(e)
			if err != nil {
				return nil, fmt.Errorf("entry %d %w", i+1, err)
			}
			out[i] = t
		}
		return out, nil
	}
}

// listText reads a list from a variable or flag: entries separated by commas,
// and nothing at all is the empty list.
func listText[T any](k kind[T]) func(string) ([]T, error) {
	return func(s string) ([]T, error) {
		out := []T{}
		if strings.TrimSpace(s) == "" {
			return out, nil
		}
		for i, e := range strings.Split(s, ",") {
			t, err := k.text(strings.TrimSpace(e))
			if err != nil {
				return nil, fmt.Errorf("entry %d %w", i+1, err)
			}
			out = append(out, t)
		}
		return out, nil
	}
}

func showList[T any](k kind[T]) func([]T) string {
	return func(l []T) string {
		parts := make([]string, len(l))
		for i, e := range l {
			parts[i] = k.show(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// hexID is a rule: n bytes in hexadecimal, or nothing.
func hexID(n int) rule[string] {
	return rule[string]{fmt.Sprintf("%d hexadecimal digits, or empty", 2*n), func(s string) bool {
		b, err := hex.DecodeString(s)
		return s == "" || (err == nil && len(b) == n)
	}}
}

func oneOf(names ...string) rule[string] {
	return rule[string]{"one of " + strings.Join(names, ", "), func(s string) bool { return slices.Contains(names, s) }}
}

// orEmpty lets a rule allow the empty string too.
func orEmpty(r rule[string]) rule[string] {
	return rule[string]{"empty, or " + r.words, func(s string) bool { return s == "" || r.ok(s) }}
}
