// Package objects is the fabric by which blocks go to a Mooncake Store: each is an
// object there, whose content is the payload, header and body. docs/mooncake.md tells
// what its key is.
//
//	objects.go  the fabric
//	known.go    which handle names which object
//	raw.go      objects of other clients
//
// A Store evicts what it likes, and other clients remove and replace objects. So nothing
// is believed that was not just read: a pull compares the payload with its own checksum,
// and with the header that its handle was given for.
//
// The package may import fabric, wire, and the folders engine, handshake, rpc and store
// of mooncake. It must never remove or overwrite an object that it did not write in the
// same call.
package objects
