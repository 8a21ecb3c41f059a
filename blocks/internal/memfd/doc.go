// Package memfd makes the memory files of blocks: allocated to the last page,
// mapped read-write in the daemon, and only then sealed, so that nobody who maps
// one can make the daemon fault. It imports the standard library and x/sys, and
// must never hand out its map.
package memfd
