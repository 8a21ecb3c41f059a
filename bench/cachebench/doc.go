// Package cachebench compares what the block store keeps with what other policies of
// eviction would have kept, on published request traces: LRU, S3-FIFO (SOSP '23) and
// Belady's, which knows the future. It replays the store's own bookkeeping
// (blocks.Core), not a model of it, as an engine uses it.
//
// All figures are counts of a deterministic replay: the same input gives the same
// report on every machine. The package may import blocks, wire, bench/trace and
// bench/plot.
package cachebench
