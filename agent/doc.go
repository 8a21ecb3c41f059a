// Package agent is the daemon: it assembles the rooms into one process and
// connects them.
//
// Start opens the arena, the routes, the fabrics, the engines' socket and the
// operator's endpoints, in this order; Drain and Close take them down in the
// opposite one. Run is what meridiand calls: Start, signals, Drain.
//
//	agent.go     assembly, start and stop
//	fabrics.go   the fabrics, which agent/openers makes, and the routes
//	served.go    counts what peers ask by themselves
//	moves.go     counts what agent/transfer moves; zero.go: series that begin at 0
//	ready.go     self-test and readiness
//	admin.go     the gRPC API of adminpb; http.go: metrics and health
//
// The package may import every room below it but the adapters: what it must know of a
// fabric it asks by the interfaces of package fabric. It alone imports prometheus. It
// must never touch a body's bytes: wire and blocks do that.
package agent
