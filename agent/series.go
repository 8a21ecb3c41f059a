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

A daemon serves these at /metrics of admin.http, with the go_ and process_
series of every Go program. Times are in seconds, sizes in bytes. The series of
label values that are known at the start are there from the start, at 0; those
of meridian_llama_ where [llama] is configured. The label peer has at most 256
values, reason the names of ` + "`mrdn errors`" + ` and other; fabric is a name of the
configuration, class one of urgent, soon, normal, bulk, operation one of pull,
push, offload, store, forward, cut-through, probe. What peers ask for is pull (direction out) and push
(direction in); their offloads are pushes of class bulk, their self-tests of class
normal. No label carries a request or a tenant.
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
