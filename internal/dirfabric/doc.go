// Package dirfabric is a fabric that keeps blocks as files of a directory. It is not
// part of any program: it is what docs/adding-a-fabric.md was tried with, from
// outside of the daemon's packages, and its tests run a daemon that has it.
//
//	dir.go     the fabric: an index in memory of what the directory has
//	file.go    one file: a record that says whose block it is, then the payload
//	opener.go  the table [fabric.NAME] with kind = "dir"
//
// A file is written under another name and renamed when it is whole, so that a
// restart finds whole files only. Nothing is flushed to the disk: what survives is an
// end of the process, not of the machine. A file is trusted for nothing: each pull
// opens it without following links, wants a regular file of the length that the index
// has, compares the record, and hashes the body where it lies in the caller's memory.
//
// It may import fabric, wire, and what an opener needs. It must never write outside
// of its directory, nor remove a file that it did not make.
package dirfabric
