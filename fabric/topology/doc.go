// Package topology knows the NICs, the RDMA ports and the GPUs of a host, and chooses the
// device that a fabric without a choice of its own should use.
//
//	device.go  what is known of a device and of a GPU
//	sysfs.go   what the kernel tells of them
//	file.go    the topology file, which knows better
//	choose.go  the choice, with a reason for each device that was not chosen
//
// Everything but addresses is read below a root, so that a test has the tree of a host
// that it is not: the packages that map NICs to RDMA devices (rdmamap among them) have the
// paths of sysfs as constants. What a driver's library knows of the GPUs is added by
// whoever may load that library.
//
// It reads files, and starts nothing. It may import the standard library and the TOML
// decoder. It must never import an adapter.
package topology
