// Package measure is what the demo and the benchmarks have in common: quantiles,
// how latencies are written, and the congestion control that makes runs of one
// machine comparable. It may import the standard library only.
package measure
