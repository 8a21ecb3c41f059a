// Package etcd is the one way in which this program talks to etcd: the official
// client, with bounds.
//
//	client.go  connection, and calls: get, put and delete if nothing changed
//	lease.go   keys that end when this process does
//	watch.go   what is below a prefix, and each change
//
// The official client is used, and not etcd's JSON gateway, since leases and watches
// are streams that somebody has to keep alive, move to the next endpoint and resume;
// the client does that and is well kept. It adds 2.3 MB to the daemon, which has gRPC
// anyway, and a handful of modules.
//
// Every call ends within Config.Call. A value that is larger than the caller allows is
// an error that names the key. Nothing is kept for a server that does not answer:
// calls fail with UNREACHABLE and the caller decides.
//
// The package may import the official client and gRPC. It must never log a password,
// or retry a change by itself: whether a change that got no answer was done is not
// known.
package etcd
