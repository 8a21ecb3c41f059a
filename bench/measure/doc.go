// Package measure is what the demo and the benchmarks have in common: quantiles,
// medians, how latencies are written, loops that time their calls, and what a
// report says of the machine. It may import the standard library only.
package measure
