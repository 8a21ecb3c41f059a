// Package adminpb is the admin API of a daemon, meridian.admin.v1: the
// messages and the gRPC service generated from admin.proto, and the two
// functions that carry a code of wire/errors.json through a gRPC error.
//
// The server is in package agent, the client in agent/client; `mrdn` is built
// on the client. The API is served on a Unix socket of mode 0600.
//
// It may import the standard library, grpc and protobuf. It must never
// import another room, and it must never carry the bytes of a block: those go
// through the engine socket, where a lease guards them.
//
// The generated files are checked in. To make them again, with
// protoc 3.21 or later, protoc-gen-go 1.36.12 and protoc-gen-go-grpc 1.6.2 on
// the PATH:
//
//	go generate ./agent/adminpb
package adminpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative admin.proto
