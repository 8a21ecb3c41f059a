// Package unixsend sends on a Unix stream socket by plain system calls, within one
// time limit for all the bytes: whatever the other side reads of them, and however
// often a signal interrupts, it does not wait longer. It imports the standard
// library and x/sys.
package unixsend
