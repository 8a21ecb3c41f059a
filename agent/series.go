package agent

import (
	"fmt"
	"slices"
	"strings"
)

// series documents one metric.
type series struct {
	name, kind, help string
	labels           []string
}

// MetricsMarkdown is docs/metrics.md: every series that a daemon has, from the
// descriptions that it serves.
func MetricsMarkdown() string {
	all := slices.Concat(newMetrics("", "").docs, collected, llamaSeries)
	slices.SortFunc(all, func(a, b series) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(`# Metrics

Made from the daemon's own descriptions: run the tests of package agent with
-rewrite, and do not edit it here.

A daemon serves these at /metrics of admin.http, besides the go_ and process_
series of every Go program. Times are in seconds, sizes in bytes. A series with
labels appears with its first event, those of meridian_llama_ where [llama] is
configured. The label peer has at most 256 values,
reason the names of ` + "`mrdn errors`" + `; no label carries a request or a tenant.
Counters end in _total, as the exposition format demands, also those that
Meridian 0.x named without it.

| series | type | labels | meaning |
|---|---|---|---|
`)
	for _, s := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.name, s.kind, strings.Join(s.labels, ", "), s.help)
	}
	return b.String()
}
