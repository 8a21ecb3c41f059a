// Package real plays requests against real llama.cpp nodes, one with each policy, and
// reports what the clients see in the shape of the model's report (bench/think):
// `mrdn bench think --mode real-llamacpp`.
//
// A round is the same requests for each arm, one arm after the other; the next round
// begins with another arm, so that a busy machine hits all. Clients ask in a closed loop.
// One that has had its requests answered goes on with others, which are not counted, until
// all have: what is counted was always asked among all clients.
//
// A figure that is not measured is left out and named, never 0.
//
// It may import bench/think, bench/harness, bench/measure, adapters/llamacpp, and of agent
// what a client and a starter of nodes need. It must never read a node's clock: times are
// those of the client.
package real
