// Package segment is the descriptor of a Mooncake segment: what a peer of the
// transfer engine publishes about itself, and the name by which it is opened.
//
//	descriptor.go  the descriptor, and where its data connections go
//	parse.go       JSON in
//	append.go      JSON out
//	name.go        segment names: HOST:PORT
//
// A descriptor is the same whichever way it travels: by the handshake, or as the
// value of a metadata key. What is read is what Mooncake's own engines read;
// descriptors of engines with several protocols are read as well. Numbers are never
// floating point, since addresses are above 2^53.
//
// The package has no sockets and no clock. It may import the standard library and
// wire. It must never copy a peer's text into an error beyond a bound.
package segment
