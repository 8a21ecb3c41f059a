package config

import (
	"slices"
	"strings"
)

// Nearest returns the name closest to what was written, if it is close enough
// to be meant: at most a third of the letters differ.
func Nearest(written string, names []string) (string, bool) {
	best, at := "", len(written)/3+1
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := distance(written, n); d <= at && (best == "" || d < at) {
			best, at = n, d
		}
	}
	return best, best != ""
}

// meant is Nearest, or the one name of which what was written is the first words or
// the last.
func meant(written string, names []string) (string, bool) {
	if n, ok := Nearest(written, names); ok {
		return n, true
	}
	var found []string
	for _, n := range names {
		if strings.HasPrefix(n, written+"_") || strings.HasSuffix(n, "_"+written) {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// distance is the number of insertions, deletions, substitutions and swaps of
// neighbours between a and b (optimal string alignment).
func distance(a, b string) int {
	before, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
