// Package unixrecv reads from a Unix stream socket by plain system calls, with the
// descriptors that come along. It imports the standard library and x/sys.
package unixrecv
