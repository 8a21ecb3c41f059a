// Package metadata is what Mooncake nodes tell each other about themselves, and the
// ways in which they do: the planes.
//
//	key.go       the keys: mooncake/ram/NAME and mooncake/rpc_meta/NAME
//	endpoint.go  the value of rpc_meta: where a node answers handshakes
//	publisher.go keeps a node on a server, also one that was restarted
//
// The value of the other key is the descriptor of the node's segment: package segment.
//
// The package may import fabric, wire and blocks, internal/etcd, and what is below
// adapters/mooncake. It must never let a value pass that is above MaxBytes, nor
// repeat somebody else's text in an error beyond a bound.
package metadata
