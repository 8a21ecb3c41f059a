// Package force shows what forcing the end of thinking is worth and when it goes
// wrong: it replays recorded series of signals through the scheduler's own Core,
// with the rules of the configuration, and counts which requests are cut short,
// why, where, and how many thinking tokens that saves.
//
// # Recordings
//
// A recording is a text file of JSON lines, gzip'd or not: a [Header], then a line
// a [Request]. Position n means after n thinking tokens; the first value of a
// series is that of the distribution that the first thinking token was drawn from.
// A recording says where it comes from, and is either recorded from a model or
// synthetic. [Read] trusts none of it: sizes are bounded, and what is wrong is told
// with its line and value.
//
// The recordings in testdata were made by [Record] (`mrdn bench force record`) with
// a model of 135 million parameters that has no thinking markers of its own: what
// it writes after a marker that was put there counts as thinking. They show how the
// rules behave on the signals of a real model, not what forcing does for a model
// that was trained to think. No recording says whether an answer was right, so
// nothing here says what a shorter thinking costs.
//
// # What is deterministic
//
// A replay counts, and measures nothing: the same recordings and rules give the
// same report on every machine. Recording depends on the machine.
//
// The package may import scheduler, the client of llama-server and bench/llama,
// which starts one.
package force
