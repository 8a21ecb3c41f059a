// Package grafana describes Meridian's dashboards as data: rows of panels with
// their queries, thresholds and meaning. Package main in gen renders them to
// JSON with Grafana's foundation SDK.
//
// The rows follow a transfer through its life: who is ready, what moves, what
// was refused, where blocks lie, what is reserved, what the requests do, which
// wait for a slot of a llama.cpp node, over which transport really, which thinking was cut short, and the process itself.
//
// To change a board, edit rows.go and run
//
//	go generate ./deploy/grafana
//
// A test fails while meridian.json is not what rows.go says. Never edit the
// JSON: Grafana's export has ids of one installation in it.
//
// This package imports the standard library only, so that a test of the daemon
// can hold [Series] against a live /metrics without pulling in the SDK.
package grafana

//go:generate go run ./gen -o meridian.json
