// Package llama measures what a prefill/decode pair of llama.cpp nodes saves,
// against a llama-server as it is: `mrdn llama run --compare` and `mrdn bench
// llama`. All processes are real, and so is the model; figures are of the machine
// that it runs on.
package llama
