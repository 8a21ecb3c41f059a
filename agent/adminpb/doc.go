// Package adminpb is the admin API of a daemon, meridian.admin.v1: the
// messages and the gRPC service generated from admin.proto, and the two
// functions that carry a code of wire/errors.json through a gRPC error.
//
// The server is in package agent, the client in agent/client; `mrdn` is built
// on the client. The API is served on a Unix socket of mode 0600.
//
// It may import the standard library, grpc and protobuf. It must never
// import another room, and it must never carry the bytes of a block: those go
// through the engine socket, where a lease guards them. What ReadObject carries
// is no block: it is an object that a foreign client has put into a store, it
// lies in no arena, and no lease is about it. A fabric refuses the keys at which
// blocks may be.
//
// The generated files are checked in. A Go toolchain alone makes them again:
//
//	go generate ./agent/adminpb
package adminpb

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate admin.proto
