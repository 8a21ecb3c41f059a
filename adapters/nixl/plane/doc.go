// Package plane is what NIXL agents tell each other about themselves, their metadata, and
// the ways in which they do: the planes. Client and server use the same codecs.
//
//	blob.go      an agent's metadata, as far as it says who the agent is
//	frame.go     P2P: agents ask each other, by IP and port
//	key.go       the keys under which metadata is in a store
//	request.go   TCPStore: the requests of NIXL's client
//	tcpstore.go  a client of a TCPStore
//	etcd.go      metadata in etcd, ours with a lease
//
// Who has an agent's metadata can read and write all memory that it names. Nothing in
// them is signed: whoever can write to a plane can be any agent there.
//
// The package may import wire, internal/etcd, internal/stranger and packages of control's
// bounds. It must never hold more of a value than MaxBlob, nor believe a length before the
// bytes have come.
package plane
