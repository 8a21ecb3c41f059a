// Package agent is the daemon: it assembles the rooms into one process and
// connects them.
//
// Start opens the arena, the fabrics, the link, the engines' socket and the
// operator's faces, in this order; Drain and Close take them down in the
// opposite one. Run is what meridiand calls: Start, signals, Drain.
//
//	agent.go     assembly, start and stop
//	load.go      pulls what an engine asked for and is not here
//	flight.go    one load for all who ask for the same block at once
//	holders.go   who may have a block, and may be asked for it
//	quiet.go     slots that a fabric may still touch
//	offload.go   copies blocks that went cold to the routed fabric
//	group.go     all peers of the link as one fabric
//	account.go   counts every transfer, once
//	ready.go     self-test and readiness
//	admin.go     the gRPC API of adminpb; http.go: metrics and health
//
// The package may import every room below it. It alone imports prometheus. It
// must never touch a body's bytes: wire and blocks do that.
package agent
